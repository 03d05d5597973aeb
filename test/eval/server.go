package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/sleep"
)

// Bounds of a server that is started for an evaluation.
const (
	startMax = time.Minute
	stopMax  = 40 * time.Second
)

// server is the skete that the tasks are done with.
type server struct {
	c    *client.Client
	home string // "" = it is not ours
	cmd  *exec.Cmd
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

// open returns the server that the flags and the environment name, or starts one.
func (c config) open(ctx context.Context) (*server, error) {
	var cl *client.Client
	var err error
	switch {
	case c.modelURL != "":
		return start(ctx, c.skete, c.settings())
	case c.url != "":
		cl, err = client.New(client.Config{URL: c.url, Key: os.Getenv("SKETE_KEY")})
	case os.Getenv("SKETE_URL") != "" || os.Getenv("SKETE_HOME") != "":
		cl, err = client.FromEnv()
	default:
		return start(ctx, c.skete, nil)
	}
	if err != nil {
		return nil, err
	}
	return &server{c: cl}, nil
}

// settings are those of a server that shall know a model at a URL. They are JSON,
// which is YAML too.
func (c config) settings() []byte {
	entry := map[string]any{"name": c.model, "vendor": "compat", "id": c.model, "url": c.modelURL}
	if c.keyEnv != "" {
		entry["key_env"] = c.keyEnv
	}
	text, _ := json.Marshal(map[string]any{"models": []any{entry}}) // plain data
	return text
}

// start runs a program's server in a directory of its own, until it answers.
func start(ctx context.Context, skete string, settings []byte, env ...string) (s *server, err error) {
	s = &server{}
	if s.home, err = os.MkdirTemp("", "skete-eval-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, s.log.String()), s.stop())
		}
	}()
	if err := os.WriteFile(filepath.Join(s.home, "skete.yaml"), settings, 0o600); err != nil {
		return nil, err
	}
	// Tasks have no sandbox of another's shape to wait for: none is kept warm.
	cmd := exec.Command(skete, "serve", "--listen", "", "--set", "pool_demand=0")
	cmd.Env = append(append(os.Environ(), "SKETE_HOME="+s.home, "SKETE_CONFIG="), env...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for us alone
	cmd.WaitDelay = time.Second                           // what it leaves when it is killed holds its output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	if s.c, err = client.New(client.Config{Socket: client.SocketPath(s.home)}); err != nil {
		return nil, err
	}
	return s, s.ready(ctx)
}

func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	for {
		_, err := s.c.Info(ctx)
		if err == nil {
			return nil
		}
		if sleep.For(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// stop ends the server, if it is ours, with all that it has left.
func (s *server) stop() error {
	if s.c != nil {
		defer s.c.Close()
	}
	if s.home == "" {
		return nil
	}
	failed := []error{s.end()}
	return errors.Join(append(failed, os.RemoveAll(s.home))...)
}

func (s *server) end() error {
	if s.cmd == nil {
		return nil
	}
	err := s.destroyAll()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopMax, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	if !kill.Stop() {
		err = errors.Join(err, errors.New("the server did not stop by itself"))
	}
	return err
}

// destroyAll removes the sandboxes that a broken evaluation left.
func (s *server) destroyAll() error {
	if s.c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failed []error
	for sb, err := range s.c.Sandboxes(ctx, client.SandboxFilter{}) {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		if sb.State != "destroyed" {
			failed = append(failed, s.c.Sandbox(sb.ID).WithoutRevisions().Destroy(ctx))
		}
	}
	return errors.Join(failed...)
}
