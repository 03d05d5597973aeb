package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/tool"
)

// Bounds of one server.
const (
	toolsMax       = 500
	pagesMax       = 50
	connectMax     = 30 * time.Second // also one listing
	backoffFirst   = 500 * time.Millisecond
	backoffMost    = time.Minute
	backoffWaitMax = time.Second // a call waits that long for a server; else it fails
	stderrWait     = 500 * time.Millisecond
	noteBytesMax   = 300
	notesMax       = 5 // of one session
)

// live is a server as one thread uses it: a program that runs, or a session elsewhere.
type live struct {
	name string
	conf Server
	c    *Config
	// health is that of the server for the tenant, which other threads of it share.
	health *health
	// sweep ends what an earlier skete has left in a machine.
	sweep func(context.Context, tool.Place, tool.Pipes) error

	// lock is held, by what is in it, to start the server or to list its tools.
	lock chan struct{}
	// cs and the rest belong to the holder of lock.
	s        *session
	failures int // in a row
	next     time.Time
	why      error // the last failure
}

func newLive(s *Source, name string, h *health) *live {
	return &live{name: name, conf: s.c.Servers[name], c: &s.c, health: h, sweep: s.sweep, lock: make(chan struct{}, 1)}
}

// session is one life of a server.
type session struct {
	cs    *sdk.ClientSession
	pipe  tool.Pipe // nil = a URL
	way   *way      // nil = a program
	dead  chan struct{}
	ended atomic.Bool // it was seen to end
	stale atomic.Bool // its tools have changed
	works atomic.Bool // it has answered a call
	// blamed: why it cannot be used is in health.
	blamed atomic.Bool
	health *health
	tools  map[string]*sdk.Tool
	order  []string
	emits  sync.Map // progress token -> func(string)
	token  atomic.Int64

	asks chan struct{} // holds what is in it to ask a person

	mu    sync.Mutex
	calls []*underWay // the oldest first
	asked []string    // what it wanted to ask a person, and why no one was asked
}

// use returns the server, started if need be, and its tools as they are now.
func (l *live) use(ctx context.Context, p tool.Place) (*session, error) {
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.bury()
	if l.s == nil {
		if err := l.pause(ctx); err != nil {
			return nil, err
		}
		s, err := l.start(ctx, p)
		if err != nil {
			if ctx.Err() == nil {
				l.failed(err)
				l.health.fails(err)
			}
			return nil, err
		}
		l.s = s
	}
	if l.s.stale.CompareAndSwap(true, false) {
		if err := l.s.list(ctx); err != nil {
			l.s.stale.Store(true)
			err = l.s.told(err)
			if ctx.Err() == nil {
				l.blame(l.s, err)
			}
			return nil, err
		}
		l.health.lists(l.s)
	}
	return l.s, nil
}

// bury forgets a session that has ended.
func (l *live) bury() {
	if l.s == nil {
		return
	}
	if !l.s.over() {
		return
	}
	if l.s.works.Load() {
		l.failures = 0
	}
	err := l.s.told(io.EOF)
	l.failed(err)
	l.blame(l.s, err)
	l.s.close()
	l.s = nil
}

// over reports whether the server has ended, or the connection to it.
func (s *session) over() bool {
	select {
	case <-s.dead:
		return true
	default:
		return s.ended.Load()
	}
}

// saw notes what the error of a call says of the server.
func (l *live) saw(s *session, err error) {
	if s.over() || s.way != nil && s.way.fault() != nil {
		l.blame(s, s.told(err))
	}
}

// blame notes why a server cannot be used, once until the session works again: most end when
// they have failed.
func (l *live) blame(s *session, err error) {
	if s.blamed.CompareAndSwap(false, true) {
		l.health.fails(err)
	}
}

// worked notes that a server has answered a call.
func (l *live) worked(s *session) {
	s.blamed.Store(false)
	l.health.works()
}

func (l *live) failed(err error) {
	l.why = err
	l.next = time.Now().Add(min(backoffFirst<<min(l.failures, 10), backoffMost))
	l.failures++
}

// pause waits until the server may be started again, if that is soon.
func (l *live) pause(ctx context.Context) error {
	wait := time.Until(l.next)
	if l.failures == 0 || wait <= 0 {
		return nil
	}
	if wait > backoffWaitMax {
		return errs.Wrap(errs.Unavailable, l.why, "it failed %d times (%s) and is started again in %d s", l.failures, clip.Line(errs.Public(l.why), noteBytesMax), int(wait.Seconds())+1)
	}
	return sleep.For(ctx, wait)
}

// start connects, agrees on a protocol, and lists the tools.
func (l *live) start(ctx context.Context, p tool.Place) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	s := &session{dead: make(chan struct{}), tools: map[string]*sdk.Tool{}, asks: make(chan struct{}, 1), health: l.health}
	t, err := l.transport(ctx, p, s)
	if err != nil {
		return nil, err
	}
	roots := l.conf.Command != "" && p.Dir != ""
	can := &sdk.ClientCapabilities{}
	if roots {
		can.RootsV2 = &sdk.RootCapabilities{} //nolint:staticcheck // servers of the older protocols ask for them
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "skete", Version: l.c.version()}, &sdk.ClientOptions{
		Capabilities: can,
		ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return s.elicit(ctx, l.name, r)
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { s.progress(r.Params) },
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { s.stale.Store(true) },
	})
	if roots {
		c.AddRoots(&sdk.Root{URI: (&url.URL{Scheme: "file", Path: p.Dir}).String(), Name: "workspace"}) //nolint:staticcheck // as above
	}
	if s.cs, err = c.Connect(ctx, t, nil); err == nil {
		go func() { // ends with the session, which close waits for
			defer close(s.dead)
			_ = s.cs.Wait()
		}()
		if err = s.list(ctx); err == nil {
			l.health.lists(s)
			return s, nil
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = errs.Wrap(errs.Unavailable, err, "it did not answer within %s", connectMax)
	}
	err = s.told(err)
	s.close()
	return nil, err
}

// transport is the way to the server.
func (l *live) transport(ctx context.Context, p tool.Place, s *session) (sdk.Transport, error) {
	if l.conf.URL != "" {
		s.way = newWay(l, p)
		return s.way.transport(), nil
	}
	pipes, ok := p.Commands.(tool.Pipes)
	if !ok {
		return nil, errs.New(errs.Unsupported, "it runs in a sandbox, and this thread has none")
	}
	if err := l.sweep(ctx, p, pipes); err != nil {
		return nil, err
	}
	pipe, err := pipes.Pipe(ctx, tool.Program{Name: pipeName(l.name, p), Argv: append([]string{l.conf.Command}, l.conf.Args...), Env: l.conf.Env, Dir: p.Dir})
	if err != nil {
		return nil, err
	}
	s.pipe = pipe
	return overPipe{pipe, s.noted}, nil
}

// pipePrefix is how the names of all our programs begin.
const pipePrefix = "mcp-"

// pipeName is that of the one program that a thread has of a server.
func pipeName(name string, p tool.Place) string {
	return pipePrefix + name + "-" + short(string(p.Thread))
}

// overPipe is the SDK's transport to a program.
type overPipe struct {
	pipe  tool.Pipe
	noted func(*jsonrpc.Request)
}

// Connect implements the SDK's Transport.
func (o overPipe) Connect(context.Context) (sdk.Connection, error) {
	return newConn(heard{o.pipe}, o.noted), nil
}

// heard is a pipe that fails when it is known what the program wrote to stderr: the SDK closes
// one that fails, and nothing of it is read any more.
type heard struct{ tool.Pipe }

// Write implements io.Writer.
func (h heard) Write(data []byte) (int, error) {
	n, err := h.Pipe.Write(data)
	if err != nil {
		select {
		case <-h.Done():
		case <-time.After(stderrWait):
		}
	}
	return n, err
}

// list asks for all tools.
func (s *session) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	tools, order := map[string]*sdk.Tool{}, []string(nil)
	if r := s.cs.InitializeResult(); r == nil || r.Capabilities == nil || r.Capabilities.Tools == nil {
		s.tools, s.order = tools, nil
		return nil
	}
	cursor := ""
	for range pagesMax {
		res, err := s.cs.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
		if err != nil {
			return err
		}
		for _, t := range res.Tools {
			if t != nil && tools[t.Name] == nil && len(order) < toolsMax {
				tools[t.Name] = t
				order = append(order, t.Name)
			}
		}
		if cursor = res.NextCursor; cursor == "" || len(order) >= toolsMax {
			break
		}
	}
	s.tools, s.order = tools, order
	return nil
}

// noted is told of notifications of a program.
func (s *session) noted(r *jsonrpc.Request) {
	switch r.Method {
	case "notifications/tools/list_changed":
		s.stale.Store(true)
	case "notifications/progress":
		if p := parseProgress(r.Params); p != nil {
			s.progress(p)
		}
	}
}

// progress shows how far a call is.
func (s *session) progress(p *sdk.ProgressNotificationParams) {
	emit, ok := s.emits.Load(fmt.Sprint(p.ProgressToken))
	if !ok {
		return
	}
	text := strconv.FormatFloat(p.Progress, 'g', 6, 64)
	if p.Total > 0 {
		text += "/" + strconv.FormatFloat(p.Total, 'g', 6, 64)
	}
	if p.Message != "" {
		text += " " + clip.Line(s.mask()(p.Message), noteBytesMax)
	}
	emit.(func(string))(text + "\n") //nolint:forcetypeassert // nothing else is stored
}

// watch makes progress of a call reach emit until done.
func (s *session) watch(emit func(string)) (token string, done func()) {
	token = "call-" + strconv.FormatInt(s.token.Add(1), 10)
	s.emits.Store(token, emit)
	return token, func() { s.emits.Delete(token) }
}

// questions are those since the last call of it.
func (s *session) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// ends notes that the connection has ended, where an error of a call says so.
func (s *session) ends(err error) {
	if _, ok := answered(err); ok {
		return
	}
	if s.pipe != nil || errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) {
		s.ended.Store(true)
	}
}

// told says for people and models why a server failed, and keeps the cause for the log.
func (s *session) told(err error) error {
	if s.way != nil {
		if refused := s.way.fault(); refused != nil {
			return refused
		}
	}
	err = s.masked(err)
	text := words(err)
	if s.pipe != nil {
		if line := lastWords(s.pipe.Stderr()); line != "" {
			text += "; it wrote: " + line
		}
	}
	return errs.Wrap(errs.Unavailable, err, "%s", text)
}

// masked hides the secrets that a server was sent in the error that it answers.
func (s *session) masked(err error) error {
	wire, ok := answered(err)
	if s.way == nil || !ok {
		return err
	}
	clean := *wire
	clean.Message = s.mask()(wire.Message)
	return &clean
}

// rejected is the code of the errors that the SDK makes itself, where a transport fails.
const rejected = -32005

// answered returns the error with which a server has answered.
func answered(err error) (*jsonrpc.Error, bool) {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	return wire, ok && wire.Code != rejected
}

// words are what may be told of an error: no path and no address of this host.
func words(err error) string {
	if wire, ok := answered(err); ok {
		return "it answers with an error: " + clip.Line(wire.Message, noteBytesMax)
	}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e.Msg
	}
	switch {
	case errors.Is(err, errTooLong):
		return "it answers more than is taken"
	case strings.Contains(err.Error(), "unsupported protocol version"):
		return "it speaks no version of the protocol that skete does"
	case errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe):
		return "it ended"
	}
	return "it cannot be reached, or does not answer as it should"
}

// lastWords is the end of what a program wrote, on one line.
func lastWords(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return clip.Line(strings.ToValidUTF8(text[max(0, len(text)-2*noteBytesMax):], ""), 2*noteBytesMax)
}

// close ends the server. It may be repeated.
func (s *session) close() {
	if s.pipe != nil {
		_ = s.pipe.Close() // first: a server that hangs shall not be waited for
	}
	if s.cs != nil {
		_ = s.cs.Close()
		<-s.dead
	}
	if s.way != nil {
		s.way.close()
	}
	s.health.leaves(s)
}

// close ends the server.
func (l *live) close() {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.s != nil {
		l.s.close()
		l.s = nil
	}
}
