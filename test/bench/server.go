package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// server is a skete of this run alone: its own data directory, its own socket.
type server struct {
	home string
	cmd  *exec.Cmd
	c    *client.Client
	log  said
}

// said is what a program has said so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (b *bench) start(flags ...string) (*server, error) {
	home, err := os.MkdirTemp("", "skete-bench-")
	if err != nil {
		return nil, err
	}
	return b.startIn(home, flags...)
}

// startIn starts a server in a directory, which it removes when it stops.
func (b *bench) startIn(home string, flags ...string) (*server, error) {
	s := &server{home: home}
	if err := s.serve(b.skete, flags...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	return s, s.ready(b.ctx)
}

// serve starts the program in the server's directory.
func (s *server) serve(skete string, flags ...string) (err error) {
	// What nothing asked for keeps no machine warm: a cold create is to be cold.
	s.cmd = exec.Command(skete, append([]string{"serve", "--listen", "", "--set", "pool_demand=0"}, flags...)...)
	s.cmd.Env = append(os.Environ(), "SKETE_HOME="+s.home)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.WaitDelay = time.Second // what it leaves when it is killed holds its output
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if s.c, err = client.New(client.Config{Socket: s.socket()}); err != nil {
		s.kill()
		return err
	}
	return nil
}

// kill ends the server as a power cut of its process would, and waits for that.
func (s *server) kill() {
	if s.c != nil {
		s.c.Close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) socket() string { return client.SocketPath(s.home) }

// ready waits until the server answers and has booted a sandbox once, so that
// the first measurement does not pay for the probe.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := s.c.Info(ctx)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the server does not answer: %w\n%s", err, s.log.String()), s.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
	sb, err := s.sandbox(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, s.log.String()), s.stop())
	}
	return sb.Destroy(ctx)
}

func (s *server) sandbox(ctx context.Context) (*client.Sandbox, error) {
	sb, err := s.c.CreateSandbox(ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 512})
	if err != nil {
		return nil, err
	}
	return s.c.Sandbox(sb.ID), nil
}

// stop destroys what is left, ends the server and removes its directory.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failed []error
	if s.c != nil {
		for sb, err := range s.c.Sandboxes(ctx, client.SandboxFilter{}) {
			if err != nil {
				failed = append(failed, err)
				break
			}
			if sb.State != "destroyed" {
				failed = append(failed, s.c.Sandbox(sb.ID).Destroy(ctx))
			}
		}
		s.c.Close()
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(40 * time.Second):
		_ = s.cmd.Process.Kill()
		failed = append(failed, errors.New("the server did not stop by itself"))
	}
	return errors.Join(errors.Join(failed...), os.RemoveAll(s.home))
}

// rss returns the resident memory of the server in MB.
func (s *server) rss() (float64, error) { return memory(s.cmd.Process.Pid, "VmRSS:", "status") }

// memory reads one "Key: n kB" line of /proc/pid/file, in MB.
func memory(pid int, key, file string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), file))
	if err != nil {
		return 0, err
	}
	for l := range bytes.Lines(text) {
		if bytes.HasPrefix(l, []byte(key)) {
			var kb float64
			if _, err := fmt.Sscanf(string(bytes.TrimSpace(l[len(key):])), "%f", &kb); err != nil {
				return 0, err
			}
			return kb / 1024, nil
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/%s", key, pid, file)
}
