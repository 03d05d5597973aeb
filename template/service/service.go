// Package service starts what a template is for, and waits until it answers.
//
//	err := service.Begin(ctx, guest, service.Service{Start: "app serve", Ready: "app ping"})
//	if failed, ok := errors.AsType[*service.Error](err); ok { … }
//
// It is used where a template is built, to try whether it gets ready, and where
// a sandbox has booted from it. The service runs as a command under Key, so
// that its output can be read like that of any other.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/template"
)

// Key names the command that Begin starts.
const Key = "service:main"

// Timeout is how long Ready is tried unless said otherwise.
const Timeout = 30 * time.Second

const (
	readyEvery    = 300 * time.Millisecond
	callTimeout   = 15 * time.Second // to look at what failed
	lastBytesMax  = 4 << 10
	lastLinesMax  = 20
	spoolBytesMax = 16 << 20
)

// Service is a command and how to know that it answers. Both are for a shell;
// "" = there is none.
type Service struct {
	Start, Ready string
	Timeout      time.Duration // 0 = the package's
	// User, Dir and Env of both commands; zero = the sandbox's defaults.
	User, Dir string
	Env       map[string][]byte
}

// Of is the service of a template.
func Of(u template.Use) Service {
	return Service{Start: u.Start, Ready: u.Ready, Timeout: u.ReadyTimeout}
}

// Error says why a service is not ready.
type Error struct {
	How  string // a sentence without its end
	Last string // the last lines that the service, or else the last try of Ready, wrote
}

func (e *Error) Error() string {
	if e.Last == "" {
		return e.How
	}
	return e.How + "; it wrote last:\n" + e.Last
}

// Begin starts the service and returns when it is ready; one without Ready is
// ready when it was started. An *Error is the service's fault; any other is the
// machine's, or ctx's. What was started goes on in either case.
func Begin(ctx context.Context, guest *wire.Client, s Service) error {
	if s.Start != "" {
		if err := s.start(ctx, guest); err != nil {
			return err
		}
	}
	if s.Ready == "" {
		return nil
	}
	limit := cmp.Or(s.Timeout, Timeout)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last string
	for {
		err := s.try(within, guest, limit)
		if err == nil {
			return nil
		}
		if failed, is := errors.AsType[*Error](err); is {
			last = failed.Last
		} else if within.Err() == nil && !errors.Is(err, context.DeadlineExceeded) { // the guest may be the first to say so
			return err
		}
		if sleep.For(within, readyEvery) == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.notReady(ctx, guest, limit, last)
	}
}

func (s Service) command(text string) *wire.StartRequest {
	return &wire.StartRequest{
		Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(text)}, Env: s.Env, Cwd: []byte(s.Dir), User: s.User,
		SpoolBytesMax: spoolBytesMax, Overflow: wire.Overflow_OVERFLOW_DROP,
	}
}

func (s Service) start(ctx context.Context, guest *wire.Client) error {
	r := s.command(s.Start)
	r.Key, r.Background = Key, true
	res, err := guest.Process.Start(ctx, connect.NewRequest(r))
	switch err := wire.Err(err); {
	case errs.Is(err, errs.Invalid), errs.Is(err, errs.NotFound), errs.Is(err, errs.Denied):
		return &Error{How: "it cannot be started: " + errs.Public(err)}
	case err != nil:
		return err
	case res.Msg.Existed && res.Msg.Process.GetState() != wire.ProcessState_PROCESS_STATE_RUNNING:
		return &Error{How: "a command of the key " + Key + " was there before it"}
	}
	return nil
}

// try runs Ready once. An *Error: it did not end well.
func (s Service) try(ctx context.Context, guest *wire.Client, limit time.Duration) error {
	r := s.command(s.Ready)
	r.TimeoutMs = limit.Milliseconds()
	stream, err := guest.Process.Exec(ctx, connect.NewRequest(r))
	if err != nil {
		return wire.Err(err)
	}
	defer stream.Close()
	var out lines
	for stream.Receive() {
		if o := stream.Msg().GetOutput(); o != nil {
			out.add(o.Data)
		}
		if p := stream.Msg().GetExited(); p != nil {
			e := p.GetExit()
			if p.State != wire.ProcessState_PROCESS_STATE_EXITED || e == nil {
				break
			}
			if e.Code != 0 || e.Reason != "" {
				return &Error{How: "`ready` ended with " + ending(e), Last: out.text()}
			}
			return nil
		}
	}
	if err := stream.Err(); err != nil {
		return wire.Err(err)
	}
	return errs.New(errs.Unavailable, "the machine went away while its service was waited for")
}

func ending(e *wire.Exit) string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("status %d", e.Code)
}

// notReady says what the started command did meanwhile.
func (s Service) notReady(ctx context.Context, guest *wire.Client, limit time.Duration, last string) error {
	e := &Error{How: fmt.Sprintf("it was not ready in %s", limit), Last: last}
	if s.Start == "" {
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := guest.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: Key}))
	if err != nil {
		return e
	}
	p := res.Msg.Process
	if p.GetState() == wire.ProcessState_PROCESS_STATE_EXITED {
		e.How += ", and what `start` began had ended with " + ending(p.GetExit())
	}
	if text := output(ctx, guest, p); text != "" {
		e.Last = text
	}
	return e
}

// output is the end of what a command has written until now.
func output(ctx context.Context, guest *wire.Client, p *wire.ProcessInfo) string {
	from := func(s *wire.Spool) int64 { return max(0, s.GetSize()-lastBytesMax) }
	stream, err := guest.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{
		Key: p.Key, StdoutFrom: from(p.Stdout), StderrFrom: from(p.Stderr), NoFollow: true,
	}))
	if err != nil {
		return ""
	}
	defer stream.Close()
	var out lines
	for stream.Receive() {
		if o := stream.Msg().GetOutput(); o != nil {
			out.add(o.Data)
		}
	}
	return out.text()
}

// lines keeps the end of what was written.
type lines struct{ b []byte }

func (l *lines) add(b []byte) {
	l.b = append(l.b, b...)
	if extra := len(l.b) - 2*lastBytesMax; extra > 0 {
		l.b = append([]byte(nil), l.b[extra:]...)
	}
}

func (l *lines) text() string {
	b := l.b[max(0, len(l.b)-lastBytesMax):]
	all := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(b), "\uFFFD"), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lastLinesMax):], "\n")
}
