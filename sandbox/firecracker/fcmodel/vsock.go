package fcmodel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// vsock is the host's side of the device: a unix socket on which one asks for
// ports with "CONNECT <port>\n".
type vsock struct {
	m  *Model
	ln *net.UnixListener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	woken chan struct{} // closed, and made anew, when the machine's state changes
	shut  bool
	gated bool // nothing reaches the guest any more
}

// firstLocalPort is what the real one counts from.
const firstLocalPort = 1 << 30

func listenVsock(m *Model, path string) (*vsock, error) {
	ln, err := listen(path)
	if err != nil {
		return nil, err
	}
	v := &vsock{m: m, ln: ln, conns: map[net.Conn]struct{}{}, woken: make(chan struct{})}
	v.wg.Add(1)
	go v.accept()
	return v, nil
}

func (v *vsock) accept() {
	defer v.wg.Done()
	for n := uint32(firstLocalPort); ; n++ {
		conn, err := v.ln.Accept()
		if err != nil {
			return
		}
		if !v.track(conn) {
			_ = conn.Close()
			return
		}
		v.wg.Go(func() {
			defer v.drop(conn)
			v.serve(conn, n)
		})
	}
}

func (v *vsock) track(conn net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.shut {
		v.conns[conn] = struct{}{}
	}
	return !v.shut
}

func (v *vsock) drop(conn net.Conn) {
	v.mu.Lock()
	delete(v.conns, conn)
	v.mu.Unlock()
	_ = conn.Close()
}

// serve answers one connection. Where nothing listens it just hangs up.
func (v *vsock) serve(conn net.Conn, local uint32) {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	var port uint32
	if _, scanErr := fmt.Sscanf(strings.ToUpper(line), "CONNECT %d", &port); err != nil || scanErr != nil {
		return
	}
	g := v.awaitGuest()
	if g == nil {
		return
	}
	inside, err := g.Dial(context.Background(), port)
	if err != nil {
		return
	}
	if !v.track(inside) {
		_ = inside.Close()
		return
	}
	defer v.drop(inside)
	if _, err := fmt.Fprintf(conn, "OK %d\n%s", local, v.m.c.Greeting); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(inside, in)
		closeWrite(inside)
	}()
	_, _ = io.Copy(conn, inside)
	closeWrite(conn)
	<-done
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = conn.Close()
}

// awaitGuest: nothing is answered before the start and while paused.
func (v *vsock) awaitGuest() Guest {
	for {
		v.mu.Lock()
		woken, shut, gated := v.woken, v.shut, v.gated
		v.mu.Unlock()
		v.m.mu.Lock()
		state, g := v.m.state, v.m.guest
		v.m.mu.Unlock()
		switch {
		case shut || state == ended:
			return nil
		case state == running && !gated:
			return g
		case state == fresh || state == configured:
			return nil // the real one hangs until the driver is there, then hangs up
		}
		<-woken
	}
}

// gate keeps new connections waiting for ever, as releases before 1.17 do after
// a pause without a snapshot.
func (v *vsock) gate() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gated = true
}

// wake tells those who wait that the machine's state has changed.
func (v *vsock) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.woken)
	v.woken = make(chan struct{})
}

// reset drops all connections, as a snapshot does.
func (v *vsock) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c := range v.conns {
		_ = c.Close()
	}
}

func (v *vsock) close() {
	_ = v.ln.Close()
	v.mu.Lock()
	v.shut = true
	v.mu.Unlock()
	v.reset()
	v.wake()
	v.wg.Wait()
}

// listen binds a path of any length: the real one's working directory is the
// path's. The socket is never unlinked.
func listen(path string) (*net.UnixListener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	return ln, nil
}
