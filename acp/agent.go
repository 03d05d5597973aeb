package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// What is done with files that the agent changed.
const (
	Ask    = "ask"    // the person is asked
	Always = "always" // they are written to the editor's directory
	Never  = "never"  // they stay in the sandbox
)

// Config of an Agent.
type Config struct {
	// Connect returns the client that makes the calls. It is asked again after an error:
	// a server that is not there yet is an answer to a request, not the end.
	Connect func(context.Context) (*client.Client, error)
	// Name of the definition that sessions begin with, and Model; "" = the server's choice.
	Name, Model string
	// Sandbox is what the sandboxes of sessions are.
	Sandbox api.CreateSandbox
	// NoFiles: the editor's directory is not copied, and nothing is written to it.
	NoFiles bool
	// Write is what is done with changed files.
	Write string
	// State is a directory in which is kept what editor and sandboxes have agreed on.
	State   string
	Version string
	Log     *slog.Logger // nil = none
}

// Agent serves one editor.
type Agent struct {
	Config
	conn *sdk.Connection
	out  *output
	base context.Context // ends with the connection
	wg   sync.WaitGroup  // what outlives a request

	mu       sync.Mutex
	closed   bool // nothing begins any more
	client   *client.Client
	hello    *sdk.InitializeRequest
	sessions map[string]*session
}

// New returns an agent.
func New(c Config) *Agent {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Write = cmp.Or(c.Write, Ask)
	return &Agent{Config: c, sessions: map[string]*session{}}
}

// Run serves one editor until in ends or ctx does. Runs that are under way then go on.
// The goroutine that reads in ends with in.
func (a *Agent) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	r, w := io.Pipe()
	a.out = &output{w: out}
	a.out.told = func(id string) { a.background(func() { a.greet(a.base, id) }) }
	var stop context.CancelFunc
	a.base, stop = context.WithCancel(ctx)
	defer stop()
	a.conn = sdk.NewConnection(a.serve, a.out, r) // reads nothing before the pipe is filled
	a.conn.SetLogger(a.Log)
	failed := make(chan error, 1)
	go func() {
		err := pass(in, w, a.out.refuse)
		failed <- err
		w.CloseWithError(err)
	}()
	defer a.close()
	defer stop()
	select {
	case <-ctx.Done():
		w.CloseWithError(io.EOF)
		<-a.conn.Done()
		return nil
	case <-a.conn.Done():
		r.CloseWithError(io.ErrClosedPipe) // what is read no more must not hold pass
		return <-failed
	}
}

// close waits for what is under way, whose contexts have ended.
func (a *Agent) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.wg.Wait()
}

// enter counts what is under way; false: the connection is closed.
func (a *Agent) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.wg.Add(1)
	}
	return !a.closed
}

// background calls f beside requests. When the connection is closed already, it is called
// here: its context has ended.
func (a *Agent) background(f func()) {
	if !a.enter() {
		f()
		return
	}
	go func() {
		defer a.wg.Done()
		f()
	}()
}

// gone reports whether the client is.
func (a *Agent) gone() bool {
	select {
	case <-a.conn.Done():
		return true
	case <-a.base.Done():
		return true
	default:
		return false
	}
}

// method answers a request, or takes a notification.
type method func(context.Context, *Agent, json.RawMessage) (any, error)

// takes makes a method of a function with a type for its parameters.
func takes[P any](f func(*Agent, context.Context, *P) (any, error)) method {
	return func(ctx context.Context, a *Agent, params json.RawMessage) (any, error) {
		p := new(P)
		if len(params) == 0 {
			params = json.RawMessage("{}")
		}
		if err := json.Unmarshal(params, p); err != nil {
			return nil, sdk.NewInvalidParams(map[string]any{"error": err.Error()})
		}
		if v, ok := any(p).(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return nil, sdk.NewInvalidParams(map[string]any{"error": err.Error()})
			}
		}
		return f(a, ctx, p)
	}
}

// methods of the protocol that are served.
func methods() map[string]method {
	return map[string]method{
		sdk.AgentMethodInitialize:     takes((*Agent).initialize),
		sdk.AgentMethodAuthenticate:   takes((*Agent).authenticate),
		sdk.AgentMethodSessionNew:     takes((*Agent).newSession),
		sdk.AgentMethodSessionLoad:    takes((*Agent).loadSession),
		sdk.AgentMethodSessionResume:  takes((*Agent).resumeSession),
		sdk.AgentMethodSessionList:    takes((*Agent).listSessions),
		sdk.AgentMethodSessionClose:   takes((*Agent).closeSession),
		sdk.AgentMethodSessionSetMode: takes((*Agent).setMode),
		sdk.AgentMethodSessionPrompt:  takes((*Agent).prompt),
		sdk.AgentMethodSessionCancel:  takes((*Agent).cancel),
	}
}

// serve answers a request of the client.
func (a *Agent) serve(ctx context.Context, name string, params json.RawMessage) (res any, refused *sdk.RequestError) {
	if !a.enter() {
		return nil, sdk.NewInternalError(map[string]any{"error": "the connection is closed"})
	}
	defer a.wg.Done()
	defer func() {
		if p := recover(); p != nil {
			a.Log.Error("panic", "method", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, refused = nil, sdk.NewInternalError(map[string]any{"error": "internal error in " + name})
		}
	}()
	m, ok := methods()[name]
	if !ok {
		return nil, sdk.NewMethodNotFound(name)
	}
	if name != sdk.AgentMethodInitialize && a.greeting() == nil {
		return nil, sdk.NewInvalidRequest(map[string]any{"error": "initialize comes first"})
	}
	res, err := m(client.Through(ctx, a.program()), a, params)
	if err != nil {
		return nil, refusal(err)
	}
	return res, nil
}

func (a *Agent) greeting() *sdk.InitializeRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hello
}

// program is the name of the editor.
func (a *Agent) program() string {
	h := a.greeting()
	if h == nil || h.ClientInfo == nil || h.ClientInfo.Name == "" {
		return "acp"
	}
	return strings.TrimSpace(h.ClientInfo.Name + " " + h.ClientInfo.Version)
}

// notFound is the protocol's code for a resource that is not there.
const notFound = -32002

// refusal says what went wrong in the protocol's terms. Its message is for people.
func refusal(err error) *sdk.RequestError {
	if own, ok := errors.AsType[*sdk.RequestError](err); ok {
		return own
	}
	text := errs.Public(err)
	if hint := errs.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	e := sdk.NewInternalError(nil)
	switch {
	case unauthorized(err):
		e = sdk.NewAuthRequired(nil)
	case errors.Is(err, context.Canceled):
		e = sdk.NewRequestCancelled(nil)
	case errs.Is(err, errs.Invalid):
		e = sdk.NewInvalidParams(nil)
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.Limit):
		e = sdk.NewInvalidRequest(nil)
	case errs.Is(err, errs.NotFound):
		e.Code = notFound
	}
	e.Message, e.Data = text, map[string]any{"class": string(errs.Of(err))}
	return e
}

// unauthorized reports whether the server does not know the key.
func unauthorized(err error) bool {
	p, ok := errors.AsType[*client.Error](err)
	return ok && p.Status == 401
}

// keyMethod is the way in that clients are shown: there is nothing to do but to set a key.
const keyMethod = "key"

func (a *Agent) initialize(_ context.Context, p *sdk.InitializeRequest) (any, error) {
	a.mu.Lock()
	a.hello = p
	a.mu.Unlock()
	about := "Set SKETE_KEY, and SKETE_URL for a server elsewhere, in the environment of `skete acp`: the server's `skete key create` prints a key."
	return sdk.InitializeResponse{
		ProtocolVersion: sdk.ProtocolVersionNumber,
		AgentInfo:       &sdk.Implementation{Name: "skete", Title: new("skete: machines for agents"), Version: cmp.Or(a.Version, "dev")},
		AuthMethods:     []sdk.AuthMethod{{Agent: &sdk.AuthMethodAgent{Id: keyMethod, Name: "API key", Description: &about}}},
		AgentCapabilities: sdk.AgentCapabilities{
			LoadSession:         true,
			PromptCapabilities:  sdk.PromptCapabilities{Image: true, EmbeddedContext: true},
			SessionCapabilities: sdk.SessionCapabilities{List: &sdk.SessionListCapabilities{}, Resume: &sdk.SessionResumeCapabilities{}, Close: &sdk.SessionCloseCapabilities{}},
		},
	}, nil
}

// authenticate looks whether the key is good now.
func (a *Agent) authenticate(ctx context.Context, p *sdk.AuthenticateRequest) (any, error) {
	if p.MethodId != keyMethod {
		return nil, errs.New(errs.Invalid, "there is no way to authenticate called %.40q", p.MethodId)
	}
	_, err := a.server(ctx)
	return sdk.AuthenticateResponse{}, err
}

// server returns the client, once the server has taken its key.
func (a *Agent) server(ctx context.Context) (*client.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		return a.client, nil
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Login(ctx); err != nil {
		return nil, err
	}
	a.client = c
	return c, nil
}

// update tells the client of a session something. A client that is gone need not know.
func (a *Agent) update(id string, u sdk.SessionUpdate) {
	_ = a.conn.SendNotification(a.base, sdk.ClientMethodSessionUpdate, sdk.SessionNotification{SessionId: sdk.SessionId(id), Update: u})
}
