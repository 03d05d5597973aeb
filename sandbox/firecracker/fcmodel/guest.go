package fcmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/stage/plan"
	"github.com/skete-dev/skete/guest/wire"
)

// Limits.
const (
	guestBytesMax = 256 << 20
	dialTimeout   = 2 * time.Second
)

// process is a guest: the real program, out of the initramfs, as a process.
type process struct {
	port uint32
	host *channel.Host
	cmd  *exec.Cmd
	done chan struct{}
}

// BootProcess returns a Config.Boot that starts the guest program in an
// initramfs as a process of this host, with its files in dir.
func BootProcess(dir string, path func(string) string) func(BootSource) (Guest, error) {
	return func(source BootSource) (Guest, error) {
		params, err := plan.ParseParams(source.Args)
		if err != nil {
			return nil, err
		}
		port, ok := strings.CutPrefix(params.Boot.Channel, "vsock:")
		n, err := strconv.ParseUint(port, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("the guest's channel is %q", params.Boot.Channel)
		}
		program, err := fromInitramfs(path(source.Initrd), wire.GuestBinary[1:])
		if err != nil {
			return nil, err
		}
		return startProcess(dir, uint32(n), program, params.Boot, path(vsockName))
	}
}

// vsockName is the device's socket where the provider puts it.
const vsockName = "v.sock"

func startProcess(dir string, port uint32, program []byte, boot wire.Boot, vsock string) (Guest, error) {
	for _, d := range []string{"home", "state", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	socket := filepath.Join(dir, "host.sock")
	boot.Channel, boot.Mounts, boot.MemoryBytes = "unix:"+socket, false, 0
	boot.User, boot.UID, boot.GID = "user", uint32(os.Getuid()), uint32(os.Getgid())
	boot.Home, boot.StateDir, boot.Workdir = filepath.Join(dir, "home"), filepath.Join(dir, "state"), filepath.Join(dir, "work")
	data, err := json.Marshal(boot)
	if err != nil {
		return nil, err
	}
	binary, file := filepath.Join(dir, "guest"), filepath.Join(dir, "boot.json")
	if err := errors.Join(os.WriteFile(binary, program, 0o700), os.WriteFile(file, data, 0o600)); err != nil {
		return nil, err
	}
	host, err := channel.Listen(socket, func(conn net.Conn, port uint32) { toHost(conn, port, vsock) })
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "init", "--boot", file)
	cmd.Dir, cmd.Env = boot.Workdir, []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		_ = host.Close()
		return nil, err
	}
	p := &process{port: port, host: host, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
		_ = host.Close()
	}()
	return p, nil
}

// dialLong connects to a socket whose path may be longer than an address.
func dialLong(path string) (net.Conn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// toHost carries a stream that the guest opens as the device does: it connects to
// the socket that is named after the port of the host.
func toHost(conn net.Conn, port uint32, vsock string) {
	defer conn.Close()
	up, err := dialLong(fmt.Sprintf("%s_%d", vsock, wire.VsockHostPort))
	if err != nil {
		_ = wire.Refuse(conn, errs.Wrap(errs.Unavailable, err, "the host does not serve this machine"))
		return
	}
	if err := wire.Connect(up, port, time.Time{}); err != nil {
		_ = wire.Refuse(conn, err)
		return
	}
	defer up.Close()
	if wire.Grant(conn, port) != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, conn)
		_ = up.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, up)
	_ = conn.(*net.UnixConn).CloseWrite()
	<-done
}

// Dial implements Guest: nothing listens until the program has called.
func (p *process) Dial(_ context.Context, port uint32) (net.Conn, error) {
	if port != p.port {
		return nil, unix.ECONNREFUSED
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	first, err := p.host.Dial(ctx, wire.ControlPort)
	cancel()
	if err != nil {
		return nil, err
	}
	_ = first.Close()
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	go p.serve(theirs)
	return ours, nil
}

// serve is the guest's own half of opening a stream.
func (p *process) serve(conn net.Conn) {
	defer conn.Close()
	port, err := wire.Accept(conn)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	inside, err := p.host.Dial(ctx, port)
	cancel()
	if err != nil {
		_ = wire.Refuse(conn, err)
		return
	}
	defer inside.Close()
	if wire.Grant(conn, port) != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(inside, conn)
		closeWrite(inside)
	}()
	_, _ = io.Copy(conn, inside)
	closeWrite(conn)
	<-done
}

func pair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		var cerr error
		conns[i], cerr = net.FileConn(f)
		err = errors.Join(err, cerr, f.Close())
	}
	return conns[0], conns[1], err
}

// Stop implements Guest: it is a power cut.
func (p *process) Stop() { _ = p.cmd.Process.Kill() }

// Wait implements Guest.
func (p *process) Wait() { <-p.done }

// fromInitramfs reads one file out of a cpio archive of the "newc" format.
func fromInitramfs(path, name string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const header = 110
	var head [header]byte
	for {
		if _, err := io.ReadFull(f, head[:]); err != nil {
			return nil, fmt.Errorf("no %s in the initramfs: %w", name, err)
		}
		size, nameSize := hex8(head[54:62]), hex8(head[94:102])
		if !bytes.Equal(head[:6], []byte("070701")) || size > guestBytesMax || nameSize > 4096 {
			return nil, errors.New("the initramfs is no cpio archive")
		}
		entry := make([]byte, nameSize+pad(header+nameSize))
		if _, err := io.ReadFull(f, entry); err != nil {
			return nil, err
		}
		if strings.TrimRight(string(entry), "\x00") == name {
			data := make([]byte, size)
			_, err := io.ReadFull(f, data)
			return data, err
		}
		if _, err := f.Seek(size+pad(size), io.SeekCurrent); err != nil {
			return nil, err
		}
	}
}

func hex8(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 16, 64)
	if err != nil {
		return guestBytesMax + 1
	}
	return n
}

func pad(n int64) int64 { return (4 - n%4) % 4 }
