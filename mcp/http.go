package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/clip"
)

// HandlerConfig of a Handler.
type HandlerConfig struct {
	// API serves the calls that tools make.
	API http.Handler
	// Admit says who asks, and what that caller may do; false: it has answered.
	Admit   func(w http.ResponseWriter, r *http.Request) (Caller, bool)
	Version string
	Log     *slog.Logger // nil = none
}

// Caller is who a request is of.
type Caller struct {
	Request *http.Request // with what logs tell of it
	Owner   string        // for whom its sessions are
	Scopes  []string
}

// Handler serves the protocol over HTTP (streamable HTTP, without sessions that have to
// be remembered). The id that a client gets for its session holds the client's name, and
// tells its calls from those of others: so that it can cancel one.
type Handler struct {
	c      HandlerConfig
	client *client.Client
	http   *sdk.StreamableHTTPHandler

	mu      sync.Mutex
	servers map[string]*Server            // by scopes
	calls   map[string]context.CancelFunc // under way, by owner, session and id
}

// NewHandler returns a handler.
func NewHandler(c HandlerConfig) *Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{c: c, servers: map[string]*Server{}, calls: map[string]context.CancelFunc{}}
	var err error
	h.client, err = client.New(client.Config{URL: "http://skete", HTTPClient: &http.Client{Transport: within{c.API}}})
	if err != nil {
		panic("mcp: " + err.Error()) // its address is ours
	}
	h.http = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server { return h.server(callOf(r.Context()).scopes).sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: requestBytesMax, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // Admit knows by which names the server goes
	})
	return h
}

// call is a request, for what is done because of it.
type call struct {
	outer     *http.Request
	scopes    []string
	program   string          // the client's name, as its session has it
	cancelled <-chan struct{} // nil = nothing can cancel it
}

type callKey struct{}

func callOf(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call)
	return c
}

// cancellable returns a context that ends when the client cancels the call too.
func cancellable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	gone := callOf(ctx).cancelled
	if gone == nil {
		return ctx, cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-done }
}

const sessionHeader = "Mcp-Session-Id"

// message is what is looked at of a request's body.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	Method  string          `json:"method"`
	ID      json.RawMessage `json:"id"`
	Params  struct {
		RequestID  json.RawMessage `json:"requestId"`
		ClientInfo struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"clientInfo"`
	} `json:"params"`
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := h.c.Admit(w, r)
	if !ok {
		return
	}
	r = who.Request
	session := r.Header.Get(sessionHeader)
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNoContent) // there is nothing to forget
		return
	}
	c := call{outer: r, scopes: who.Scopes, program: programIn(session)}
	var m message
	var body []byte
	if r.Method == http.MethodPost {
		var err error
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytesMax))
		if err != nil {
			refuseBody(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if json.Unmarshal(body, &m) != nil {
			m.JSONRPC = "" // what is wrong with it the SDK says
		}
		prefix := who.Owner + "\n" + session + "\n"
		switch {
		case m.Method == "initialize":
			w.Header().Set(sessionHeader, newSession(m.Params.ClientInfo.Name, m.Params.ClientInfo.Version))
		case m.Method == "notifications/cancelled":
			h.cancel(prefix + string(m.Params.RequestID))
		case len(m.ID) > 0 && session != "":
			gone, end := h.begin(prefix + string(m.ID))
			defer end()
			c.cancelled = gone
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if !h.quick(w, r, body) {
		h.http.ServeHTTP(w, r)
	}
}

func refuseBody(w http.ResponseWriter, err error) {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		http.Error(w, "the request is too large: write files in parts", http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(w, "the request broke off", http.StatusBadRequest)
}

// begin notes a call that is under way. One with the same name is not there: ids are the
// client's own within its session; of two the newer one can be cancelled.
func (h *Handler) begin(name string) (gone <-chan struct{}, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[name] = cancel
	return ctx.Done(), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.calls, name)
		cancel()
	}
}

func (h *Handler) cancel(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.calls[name]; cancel != nil {
		cancel()
	}
}

// server returns the one for a key with these scopes.
func (h *Handler) server(scopes []string) *Server {
	scopes = slices.Sorted(slices.Values(scopes))
	name := strings.Join(scopes, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[name]
	if s == nil {
		s = New(Config{Client: h.client, Scopes: scopes, Version: h.c.Version, Log: h.c.Log})
		h.servers[name] = s
	}
	return s
}

// programMax bounds the name of a client.
const programMax = 64

// newSession is an id with the client's name in it.
func newSession(name, version string) string {
	program := clip.Line(strings.TrimSpace(name+" "+version), programMax)
	return rand.Text() + "." + base64.RawURLEncoding.EncodeToString([]byte(program))
}

// programIn is the client's name in the id of its session.
func programIn(session string) string {
	_, text, _ := strings.Cut(session, ".")
	program, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return clip.Line(string(program), programMax)
}

// within carries the calls of tools to the API's handler: as requests of the same
// caller, over the same connection as the request that they are made for.
type within struct{ api http.Handler }

// RoundTrip implements http.RoundTripper.
func (t within) RoundTrip(req *http.Request) (*http.Response, error) {
	outer := callOf(req.Context()).outer
	if outer == nil {
		return nil, errors.New("a call that no request asked for")
	}
	ctx, cancel := context.WithCancel(req.Context())
	r := req.Clone(ctx)
	r.Host, r.RemoteAddr, r.RequestURI, r.TLS = outer.Host, outer.RemoteAddr, req.URL.RequestURI(), outer.TLS
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if v := outer.Header.Values(name); len(v) > 0 {
			r.Header[name] = v
		}
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, to := io.Pipe()
	a := &answer{header: http.Header{}, to: to, begun: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serve(t.api, r)
	}()
	end := func() { cancel(); _ = body.Close(); <-done }
	select {
	case <-a.begun:
	case <-ctx.Done():
		err := ctx.Err()
		end()
		return nil, err
	}
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: &answerBody{body, end}, ContentLength: -1, Request: req,
	}, nil
}

// answerBody ends the call when it is closed.
type answerBody struct {
	io.Reader
	end func()
}

func (b *answerBody) Close() error { b.end(); return nil }

// answer is what the API answers, on its way to the client. One goroutine writes it.
type answer struct {
	header, sent http.Header
	to           *io.PipeWriter
	begun        chan struct{}
	status       int
}

func (a *answer) serve(h http.Handler, r *http.Request) {
	err := io.ErrUnexpectedEOF // of a handler that gave up
	defer func() {
		_ = recover() // http.ErrAbortHandler; others were answered and logged
		a.WriteHeader(http.StatusInternalServerError)
		_ = a.to.CloseWithError(err)
	}()
	h.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK)
	err = nil
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < 200 {
		return
	}
	a.status, a.sent = status, a.header.Clone()
	close(a.begun)
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(b)
}

// Flush implements http.Flusher: what is written is there.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }
