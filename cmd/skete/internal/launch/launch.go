// Package launch finds the server of a data directory, and starts one in the
// background when none answers.
//
//	err := launch.Ensure(ctx, launch.Config{Home: home, Client: c, Say: os.Stderr})
//
// Any number of programs may call Ensure at once: one of them starts the
// server, the others wait for it. The server outlives its starter: it has a
// process group and a session of its own and holds none of our descriptors.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// Time limits.
const (
	readyTimeout  = 60 * time.Second
	answerTimeout = 10 * time.Second
	pollEvery     = 20 * time.Millisecond
	sayEvery      = 5 * time.Second
)

// InUse is the exit status of `serve` when another server has the data directory.
const InUse = 75

// logTailBytes is what is shown of the log of a server that did not start.
const logTailBytes = 2 << 10

// Config says which server is meant.
type Config struct {
	Home   string
	Client *client.Client // of Home's socket
	Say    io.Writer      // progress for people
}

// LogPath is where a server in the background logs.
func LogPath(home string) string { return filepath.Join(home, "server.log") }

// Answers reports whether a server listens on the socket of home.
func Answers(ctx context.Context, home string) bool {
	conn, err := client.DialUnix(ctx, client.SocketPath(home))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Ensure returns when a server of c.Home takes requests, starting one if need be.
func Ensure(ctx context.Context, c Config) error {
	if c.answers(ctx) {
		return nil // if it is not ready yet, the first call will say so
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // no answer in no time says nothing
	}
	if err := os.MkdirAll(c.Home, 0o700); err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot make the data directory %s", c.Home).
			WithHint("set SKETE_HOME to a directory that is yours")
	}
	lock, err := lockFile(ctx, filepath.Join(c.Home, "start.lock"))
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks
	if c.answers(ctx) {
		return c.wait(ctx, nil) // another process was faster
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, err := c.start()
	if err != nil {
		return err
	}
	return c.wait(ctx, s)
}

// answers reports whether a server says anything, be it a refusal. That a
// socket takes connections is not enough: one of a dying process does.
func (c Config) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := c.Client.Ping(ctx)
	return err == nil || !errs.Temporary(err)
}

// lockFile takes a lock that ends with the file, and so with its process.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.Denied, err, "cannot write into the data directory").
			WithHint("set SKETE_HOME to a directory that is yours, or SKETE_URL to a server that runs")
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if sleep.For(ctx, pollEvery) != nil {
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}

// server is a server that we started.
type server struct {
	ended chan error
	log   string
	from  int64 // where its part of the log begins
}

// start runs `serve` in a session of its own. Not through /proc/self/exe:
// that name means gVisor.
func (c Config) start() (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot find our own program")
	}
	if gone, ok := strings.CutSuffix(exe, " (deleted)"); ok {
		exe = gone // the program was replaced while we ran
	}
	s := &server{ended: make(chan error, 1), log: LogPath(c.Home)}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.Denied, err, "cannot write the server's log")
	}
	defer out.Close()
	if info, err := out.Stat(); err == nil {
		s.from = info.Size()
	}
	cmd := exec.Command(exe, "serve", "--home", c.Home, "--background")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.Env = environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Fprintf(c.Say, "skete: no server answers; starting one in the background (embedded defaults, log %s)\n", s.log)
	if err := cmd.Start(); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot start the server")
	}
	go func() { s.ended <- cmd.Wait() }() // ends with us at the latest
	return s, nil
}

// environ is our environment without what means a client. The server runs in
// another directory: paths become absolute.
func environ() []string {
	var env []string
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "SKETE_URL", "SKETE_KEY", "SKETE_VM", "AGENT_VM", "NOTIFY_SOCKET":
			continue
		case "SKETE_CONFIG", "SKETE_GUEST", "SKETE_AGENTS_PROGRAM":
			if abs, err := filepath.Abs(value); err == nil && value != "" {
				pair = name + "=" + abs
			}
		}
		env = append(env, pair)
	}
	return env
}

// wait polls until the server is ready. s is nil when another process started it.
func (c Config) wait(ctx context.Context, s *server) error {
	began := time.Now()
	said := began
	for {
		err := c.Client.Ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			if s != nil {
				fmt.Fprintln(c.Say, "skete: the server goes on starting; `skete stop` ends it")
			}
			return context.Cause(ctx)
		}
		if s != nil && s.dead() && !c.answers(ctx) {
			return s.failure()
		}
		now := time.Now()
		if now.Sub(began) > readyTimeout {
			return errs.Wrap(errs.Unavailable, err, "the server did not become ready within %s", readyTimeout).
				WithHint("its log is %s", LogPath(c.Home))
		}
		if now.Sub(said) > sayEvery {
			said = now
			fmt.Fprintf(c.Say, "skete: still waiting for the server (%d s)%s\n", int(now.Sub(began).Seconds()), c.doing(ctx))
		}
		if sleep.For(ctx, pollEvery) != nil {
			return context.Cause(ctx)
		}
	}
}

// doing says what the server does that is waited for, if it says that.
func (c Config) doing(ctx context.Context) string {
	p, err := Holder(ctx, c.Home)
	if err != nil || p == nil {
		return ""
	}
	defer p.Close()
	if what := Starting(c.Home, p.PID); what != "" {
		return ": " + what
	}
	return ""
}

// dead reports whether our server ended for a reason that waiting does not
// mend; that another one has the data directory is none: it will answer soon.
func (s *server) dead() bool {
	select {
	case err := <-s.ended:
		s.ended <- err
		var exit *exec.ExitError
		return !errors.As(err, &exit) || exit.ExitCode() != InUse
	default:
		return false
	}
}

// failure tells why the server ended, in its own words.
func (s *server) failure() error {
	return errs.New(errs.Unavailable, "the server did not start:\n%s", s.tail()).
		WithHint("`skete doctor` looks for what is wrong; the log is %s", s.log)
}

func (s *server) tail() string {
	f, err := os.Open(s.log)
	if err != nil {
		return "(its log cannot be read)"
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "(its log cannot be read)"
	}
	from := max(s.from, info.Size()-logTailBytes)
	data, _ := io.ReadAll(io.NewSectionReader(f, from, logTailBytes))
	return "  " + strings.ReplaceAll(string(bytes.TrimSpace(data)), "\n", "\n  ")
}
