package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/wire"
)

// This file asks a run of a service whether it is ready.
//
// It reads what a program of the sandbox answers, so that is bounded in size
// and time.

// How a run is asked whether it is ready.
const (
	fast           = 50 * time.Millisecond // in the first eager
	slow           = time.Second
	eager          = 10 * time.Second
	steadyEvery    = 5 * time.Second // once it was ready
	timeout        = 2 * time.Second
	strikes        = 3 // missed in a row, then it is unready
	headerBytesMax = 64 << 10
	lineBytesMax   = 4 << 10 // of a line that is matched
)

var errNoMatch = errors.New("no line of its log matches yet")

// probe asks one run until ctx ends, and tells what changes.
type probe struct {
	Run         process.Run
	Declaration *wire.ServiceDeclaration
	Ready       bool // it was, when an earlier supervise asked
	// Moving is closed while commands are not stopped.
	Moving func() <-chan struct{}
	Tell   func(state wire.ServiceState, reason string)
}

// Watch returns when ctx ends, or nothing can change any more.
func (p *probe) Watch(ctx context.Context) {
	ask := p.asker(ctx)
	if ask == nil {
		p.Tell(wire.ServiceState_SERVICE_STATE_READY, "")
		return
	}
	if p.Ready {
		p.Tell(wire.ServiceState_SERVICE_STATE_READY, "")
	} else if !p.await(ctx, ask) {
		return
	}
	if p.Declaration.Readiness.GetLog() == nil { // a line that was written stays so
		p.steady(ctx, ask)
	}
}

// await asks until the run is ready.
func (p *probe) await(ctx context.Context, ask func(context.Context) error) bool {
	begun := time.Unix(0, p.Run.Info().GetStartedUnixNs())
	late := false
	for {
		err := ask(ctx)
		if err == nil {
			p.Tell(wire.ServiceState_SERVICE_STATE_READY, "")
			return true
		}
		age := time.Since(begun)
		if limit := readyWithin(p.Declaration); age > limit && !late && ctx.Err() == nil {
			late = true
			p.Tell(wire.ServiceState_SERVICE_STATE_UNREADY, fmt.Sprintf("it runs, but is not ready after %s: %v", limit, err))
		}
		wait := fast
		if age > eager {
			wait = slow
		}
		if !p.sleep(ctx, wait) {
			return false
		}
	}
}

// steady asks a run that was ready whether it still is.
func (p *probe) steady(ctx context.Context, ask func(context.Context) error) {
	missed := 0
	for p.sleep(ctx, steadyEvery) {
		err := ask(ctx)
		switch {
		case err == nil && missed >= strikes:
			p.Tell(wire.ServiceState_SERVICE_STATE_READY, "")
			missed = 0
		case err == nil:
			missed = 0
		case ctx.Err() == nil:
			if missed++; missed == strikes {
				p.Tell(wire.ServiceState_SERVICE_STATE_UNREADY, fmt.Sprintf("it runs, but does not answer any more: %v", err))
			}
		}
	}
}

// sleep waits, and while commands are stopped: those cannot answer.
func (p *probe) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-p.Moving():
		return true
	case <-ctx.Done():
		return false
	}
}

// asker returns what asks once; nil when running is being ready.
func (p *probe) asker(ctx context.Context) func(context.Context) error {
	switch r := p.Declaration.Readiness.GetProbe().(type) {
	case *wire.Readiness_Http:
		return func(ctx context.Context) error { return askHTTP(ctx, r.Http) }
	case *wire.Readiness_Tcp:
		return func(ctx context.Context) error { return askTCP(ctx, r.Tcp.GetPort()) }
	case *wire.Readiness_Log:
		l := newLineSearch(p.Run, r.Log.GetPattern())
		context.AfterFunc(ctx, l.close)
		return func(context.Context) error { return l.ask() }
	}
	return nil
}

// dialLoopback reaches a server of this machine, whichever loopback it chose.
func dialLoopback(ctx context.Context, port uint32) (net.Conn, error) {
	var d net.Dialer
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, derr := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if derr == nil {
			return conn, nil
		}
		if err == nil {
			err = derr
		}
	}
	return nil, err
}

func askTCP(ctx context.Context, port uint32) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialLoopback(ctx, port)
	if err != nil {
		return fmt.Errorf("nothing listens on port %d", port)
	}
	return conn.Close()
}

// askHTTP asks for a page and reads no more than the header of the answer.
func askHTTP(ctx context.Context, h *wire.HttpReadiness) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: headerBytesMax,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialLoopback(ctx, h.GetPort()) },
	}
	path := h.GetPath()
	if path == "" {
		path = "/"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(int(h.GetPort()))+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/html,*/*") // dev servers answer a program that wants anything with 404
	res, err := t.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("no answer from port %d", h.GetPort())
	}
	res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 399 {
		return fmt.Errorf("port %d answers with status %d", h.GetPort(), res.StatusCode)
	}
	return nil
}

// lineSearch looks for a line in a run's output. One goroutine asks.
type lineSearch struct {
	want *regexp.Regexp
	out  interface {
		Next(buf []byte) (n int, gap int64, err error)
		Close()
	}
	line []byte // its beginning, as far as it was read
	lock chan struct{}
	over bool
}

func newLineSearch(run process.Run, pattern string) *lineSearch {
	return &lineSearch{want: regexp.MustCompile(pattern), out: run.Output(0), lock: make(chan struct{}, 1)}
}

func (l *lineSearch) close() {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if !l.over {
		l.over = true
		l.out.Close()
	}
}

// ask goes through what was written since the last time. The line that is
// being written counts too: a prompt has no end.
func (l *lineSearch) ask() error {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.over {
		return errNoMatch
	}
	buf := make([]byte, 16<<10)
	for {
		n, gap, err := l.out.Next(buf)
		if err != nil {
			return err
		}
		if n == 0 && gap == 0 {
			break
		}
		if l.feed(buf[:n]) {
			return nil
		}
	}
	if l.want.Match(l.line) && len(l.line) > 0 {
		return nil
	}
	return errNoMatch
}

func (l *lineSearch) feed(data []byte) bool {
	for _, c := range data {
		if c == '\n' || c == '\r' {
			if l.want.Match(l.line) {
				return true
			}
			l.line = l.line[:0]
			continue
		}
		if len(l.line) < lineBytesMax {
			l.line = append(l.line, c)
		}
	}
	return false
}
