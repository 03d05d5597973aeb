package guest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
)

// This file begins the agents that the host sends. An agent is a process of the commands'
// user that is none of the commands: it is ours, has its stream to the host and one to
// guest.v1 as open descriptors, and ends with the first of them. Its program begins as
// root and becomes that user by itself, so that from then on no process of the user may
// look into it or trace it.

// Bounds of agents.
const (
	agentsMax     = 16               // at once
	agentHeadTime = 10 * time.Second // for the host to say which program it is
	agentLineMax  = 512              // of what an agent writes that is logged
	agentGrace    = 2 * time.Second  // of one whose stream has ended
	agentDir      = "agents"         // in the state directory
)

// agents runs them.
type agents struct {
	cfg     Config
	dir     string
	local   http.Handler
	slots   chan struct{}
	install sync.Mutex // one program is received at a time

	joining sync.Mutex // is held to add to wg, and to set closed: nothing joins after that
	closed  bool
	wg      sync.WaitGroup
}

func newAgents(cfg Config, all http.Handler) *agents {
	return &agents{
		cfg: cfg, dir: filepath.Join(cmp.Or(cfg.Boot.StateDir, pair.DefaultStateDir), agentDir), local: agentDoor(all), slots: make(chan struct{}, agentsMax),
	}
}

// agentDoor is what of guest.v1 an agent may ask for: what its tools need, by the rights
// of the commands' user.
func agentDoor(all http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, service := range []string{wire.ProcessName, wire.FileName, wire.ServiceName} {
			if strings.HasPrefix(r.URL.Path, "/"+service+"/") {
				all.ServeHTTP(w, r)
				return
			}
		}
		if r.URL.Path == wire.ControlHelloProcedure {
			all.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// Close refuses agents that would begin from now on, and waits until no other is left. The
// caller has ended the context of those.
func (a *agents) Close() {
	a.joining.Lock()
	a.closed = true
	a.joining.Unlock()
	a.wg.Wait()
}

// join adds one to those that Close waits for. False: it does not wait any more.
func (a *agents) join() bool {
	a.joining.Lock()
	defer a.joining.Unlock()
	if !a.closed {
		a.wg.Add(1)
	}
	return !a.closed
}

// serve begins an agent for a stream of the host, and returns when it has ended.
func (a *agents) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if !a.join() {
		_ = wire.Refuse(conn, errs.New(errs.Unavailable, "the machine's supervisor goes down"))
		return
	}
	defer a.wg.Done()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		_ = wire.Refuse(conn, errs.New(errs.Limit, "%d agents are in this machine", agentsMax))
		return
	}
	if wire.Grant(conn, wire.AgentPort) != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	program, err := a.program(conn)
	if err != nil {
		logf(a.cfg.Log, "an agent's program: %v", err)
		_ = wire.Refuse(conn, err)
		return
	}
	if err := a.run(ctx, conn, program); err != nil {
		logf(a.cfg.Log, "an agent: %v", err)
	}
}

// program returns the path of the program that the host wants, which it sends if it is not
// there. The answer OK or HAVE was written.
func (a *agents) program(conn net.Conn) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(agentHeadTime))
	want, err := wire.ReadAgentProgram(conn)
	if err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Time{})
	a.install.Lock()
	defer a.install.Unlock()
	path := filepath.Join(a.dir, want.Hash)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == want.Bytes {
		_, err := io.WriteString(conn, "HAVE\n")
		return path, err
	}
	if _, err := io.WriteString(conn, "SEND\n"); err != nil {
		return "", err
	}
	if err := a.receive(conn, path, want); err != nil {
		return "", err
	}
	a.removeOthers(want.Hash)
	_, err = io.WriteString(conn, "OK\n")
	return path, err
}

// receive puts what the host sends at path, in one step, once its hash is right.
func (a *agents) receive(r io.Reader, path string, want wire.AgentProgram) error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent's program cannot be kept")
	}
	f, err := os.CreateTemp(a.dir, ".new-*")
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent's program cannot be kept")
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	n, err := io.CopyN(io.MultiWriter(f, sum), r, want.Bytes)
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent's program ended after %d bytes, or could not be kept", n)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Hash {
		return errs.New(errs.Invalid, "the agent's program has another hash")
	}
	if err := errors.Join(f.Chmod(0o711), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the agent's program cannot be kept")
	}
	return nil
}

// removeOthers forgets the programs of earlier servers.
func (a *agents) removeOthers(keep string) {
	list, err := os.ReadDir(a.dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if e.Name() != keep {
			_ = os.Remove(filepath.Join(a.dir, e.Name()))
		}
	}
}

// run runs an agent until it, or its stream, ends.
func (a *agents) run(ctx context.Context, conn net.Conn, program string) error {
	host, theirs, err := socketpair()
	if err != nil {
		return err
	}
	defer host.Close()
	defer theirs.Close()
	local, localTheirs, err := socketpair()
	if err != nil {
		return err
	}
	defer local.Close()
	defer localTheirs.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := a.command(ctx, program, theirs, localTheirs)
	words, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0o644) // unlike ours
	_ = theirs.Close()
	_ = localTheirs.Close()
	var wg sync.WaitGroup
	wg.Go(func() { a.say(words) })
	wg.Go(func() { serveLocal(ctx, local, a.local) })
	splice(conn, host) // returns when either side has ended
	_ = conn.Close()
	grace := time.AfterFunc(agentGrace, cancel)
	wg.Wait() // its output ends with it
	err = cmd.Wait()
	grace.Stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return fmt.Errorf("it ended with %d", exit.ExitCode())
	}
	return nil
}

// command is the program's. Its own group is killed when ctx ends.
func (a *agents) command(ctx context.Context, program string, host, local *os.File) *exec.Cmd {
	b := a.cfg.Boot
	cmd := exec.CommandContext(ctx, program, strconv.FormatUint(uint64(b.UID), 10), strconv.FormatUint(uint64(b.GID), 10))
	cmd.Args[0] = "skete-agent"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8", "GOMAXPROCS=2", "GOMEMLIMIT=128MiB"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{host, local} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// say logs what an agent writes, cut.
func (a *agents) say(r io.Reader) {
	in := bufio.NewReaderSize(r, agentLineMax)
	for {
		line, long, err := in.ReadLine()
		if err != nil {
			return
		}
		for long && err == nil { // the rest is not kept
			_, long, err = in.ReadLine()
		}
		logf(a.cfg.Log, "agent: %q", line)
	}
}

// serveLocal serves guest.v1 to the one connection until it ends.
func serveLocal(ctx context.Context, conn net.Conn, h http.Handler) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler: h, MaxHeaderBytes: headerBytesMax, ReadHeaderTimeout: headerTimeout, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				cancel()
			}
		},
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	ln := newListener(ctx)
	go ln.offer(conn)
	_ = srv.Serve(ln)
	_ = srv.Close()
}

// splice copies both ways until either way ends.
func splice(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}

// socketpair returns two connected ends: ours as a connection, and the agent's.
func socketpair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "agent")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "agent")
	if ours, err = net.FileConn(f); err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}
