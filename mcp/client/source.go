package client

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Name is that of the source.
const Name = "mcp"

// Bounds of a Source.
const (
	liveMax   = 2000
	idleUsual = 10 * time.Minute
	manyMax   = 8 // servers that are asked at once for one thread
)

// Config of a Source.
type Config struct {
	// Servers by their names; Check finds nothing wrong with them.
	Servers map[string]Server
	// Held returns the secrets of a tenant for a request; nil = there are none.
	Held func(tenant string, u secret.User, q egress.Request) []secret.Held
	// Lookup finds the addresses of a host; nil = the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address; nil = the system does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots are the authorities of certificates; nil = the system's.
	Roots *x509.CertPool
	// Idle is after what time without a call a server is ended; 0 = ten minutes.
	Idle time.Duration
	// Called is told of each call of a server elsewhere; nil = none. It does not block.
	Called  func(Called)
	Version string
	Log     *slog.Logger // nil = none
}

// Called is a call of a server elsewhere: what there is to tell of it but its arguments and
// its answer.
type Called struct {
	Tenant string
	Server string
	Tool   string // of the server, or what was done with its resources and prompts
	Run    thread.RunID
	Result string // done, failed, or the code of a failure
	Bytes  int    // of the answer
	Took   time.Duration
}

func (c *Config) version() string { return cmp.Or(c.Version, "dev") }

// Source has the tools of the servers. It implements tool.Source.
type Source struct {
	c     Config
	names []string

	mu      sync.Mutex
	lives   map[place]*used
	healths map[customer]*health
	swept   map[house]chan struct{} // closed when that was done
	closed  bool
	ending  sync.WaitGroup
}

// place is whose a server is.
type place struct {
	tenant        string
	thread        thread.ID
	machine, boot string
	server        string
}

// house is a machine, from one start of it to the next.
type house struct{ tenant, machine, boot string }

func (k place) house() house { return house{k.tenant, k.machine, k.boot} }

// used is a server that is ended when it was not used for a while.
type used struct {
	*live
	users int
	idle  *time.Timer
}

// New returns a source.
func New(c Config) *Source {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Idle = cmp.Or(c.Idle, idleUsual)
	return &Source{c: c, names: slices.Sorted(maps.Keys(c.Servers)), lives: map[place]*used{}, healths: map[customer]*health{}, swept: map[house]chan struct{}{}}
}

// Name implements tool.Source.
func (s *Source) Name() string { return Name }

// Covers implements tool.Source.
func (s *Source) Covers(tenant, name string) bool {
	return slices.ContainsFunc(s.names, func(server string) bool { return s.c.Servers[server].mayUse(tenant, "") && covers(name, server) })
}

// covers reports whether a name, or a glob, can stand for a tool of a server.
func covers(name, server string) bool {
	begin := prefix + server + "__"
	if i := strings.IndexAny(name, `*?[{\`); i >= 0 {
		return strings.HasPrefix(name[:i], begin) || strings.HasPrefix(begin, name[:i]) || isCommon(func(c string) bool { return strings.HasPrefix(c, name[:i]) })
	}
	return strings.HasPrefix(name, begin) || isCommon(func(c string) bool { return c == name })
}

// wanted reports whether an agent that picks its tools by such patterns may have one of a
// server, which need not be started for any other.
func wanted(patterns []string, server string) bool {
	only := true // exceptions
	for _, p := range patterns {
		if strings.HasPrefix(p, "!") {
			continue
		}
		if only = false; covers(p, server) {
			return true
		}
	}
	return only && !slices.Contains(patterns, "!"+prefix+"*") && !slices.Contains(patterns, "!"+prefix+server+"__*")
}

// Find implements tool.Source.
func (s *Source) Find(ctx context.Context, p tool.Place) (found []tool.External, notes []string, err error) {
	type one struct {
		found  []tool.External
		notes  []string
		offers offers
	}
	var servers []string
	for _, name := range s.names {
		if s.c.Servers[name].mayUse(p.Tenant, p.Agent) && wanted(p.Tools, name) {
			servers = append(servers, name)
		}
	}
	all := make([]one, len(servers))
	room := make(chan struct{}, manyMax)
	var wait sync.WaitGroup
	for i, name := range servers {
		wait.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			o := &all[i]
			o.found, o.notes, o.offers = s.find(ctx, p, name)
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	seen := map[string]bool{}
	of := map[string]offers{}
	for i, o := range all {
		for _, e := range o.found {
			if !seen[e.Spec.Name] {
				seen[e.Spec.Name] = true
				found = append(found, e)
			}
		}
		notes = append(notes, o.notes...)
		of[servers[i]] = o.offers
	}
	return append(found, s.commonTools(servers, of)...), notes, nil
}

// find lists the tools of one server, and says what else it has.
func (s *Source) find(ctx context.Context, p tool.Place, name string) (found []tool.External, notes []string, has offers) {
	conf := s.c.Servers[name]
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("MCP server %s: ", name)+fmt.Sprintf(format, args...))
	}
	if conf.Command != "" && p.Commands == nil {
		note("it runs in a sandbox, and this thread has none")
		return nil, notes, has
	}
	l, done, err := s.hold(p, name)
	if err != nil {
		note("%s", errs.Public(err))
		return nil, notes, has
	}
	defer done()
	ses, err := l.use(ctx, p)
	if err != nil {
		note("%s", errs.Public(err))
		s.c.Log.Warn("an MCP server cannot be used", "server", name, "tenant", p.Tenant, "thread", p.Thread, "problem", clip.Line(err.Error(), 2*noteBytesMax))
		return nil, notes, has
	}
	left := 0
	for _, t := range l.listed(ses) {
		if !oneOf(conf.Tools, t.Name) {
			continue
		}
		e, err := external(name, conf, t)
		if err == nil {
			e.Spec.Description = ses.mask()(e.Spec.Description)
			found = append(found, e)
		} else if left++; left <= notesMax {
			note("its tool %q is left out: %v", clip.Line(t.Name, toolNameMax), err)
		}
	}
	return found, notes, offered(ses)
}

// listed are the tools in the server's order.
func (l *live) listed(s *session) (list []*sdk.Tool) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	for _, name := range s.order {
		list = append(list, s.tools[name])
	}
	return list
}

// named is one of them as it is now, nil = it is gone.
func (l *live) named(s *session, name string) *sdk.Tool {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	return s.tools[name]
}

// hold returns a server of a place, which is not ended before done.
func (s *Source) hold(p tool.Place, name string) (l *live, done func(), err error) {
	k := place{tenant: p.Tenant, thread: p.Thread, machine: p.Machine, boot: p.Boot, server: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errs.New(errs.Unavailable, "the server is going down")
	}
	u := s.lives[k]
	if u == nil {
		if len(s.lives) >= liveMax {
			return nil, nil, errs.New(errs.Limit, "%d MCP servers run, which is the most", liveMax)
		}
		u = &used{live: newLive(s, name, s.healthOf(name, p.Tenant))}
		s.lives[k] = u
	}
	if u.users++; u.idle != nil {
		u.idle.Stop()
	}
	return u.live, func() { s.letGo(k, u) }, nil
}

func (s *Source) letGo(k place, u *used) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.users--; u.users == 0 && s.lives[k] == u {
		u.idle = time.AfterFunc(s.c.Idle, func() { s.drop(func(other place, o *used) bool { return other == k && o == u && o.users == 0 }) })
	}
}

// drop ends servers, and returns when they are ended.
func (s *Source) drop(which func(place, *used) bool) {
	s.mu.Lock()
	var gone []*used
	for k, u := range s.lives {
		if which(k, u) {
			delete(s.lives, k)
			if u.idle != nil {
				u.idle.Stop()
			}
			gone = append(gone, u)
		}
	}
	for h := range s.swept {
		if !s.livesIn(h) {
			delete(s.swept, h) // to sweep it again hurts nothing
		}
	}
	s.ending.Add(len(gone))
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, u := range gone {
		wait.Go(func() {
			defer s.ending.Done()
			u.close()
		})
	}
	wait.Wait()
}

func (s *Source) livesIn(h house) bool {
	for k := range s.lives {
		if k.house() == h {
			return true
		}
	}
	return false
}

// sweep ends the programs in a machine that an earlier skete has left there, of whatever
// thread, before ours begins one.
func (s *Source) sweep(ctx context.Context, p tool.Place, pipes tool.Pipes) error {
	h := house{p.Tenant, p.Machine, p.Boot}
	s.mu.Lock()
	done, another := s.swept[h]
	if !another {
		done = make(chan struct{})
		s.swept[h] = done
	}
	s.mu.Unlock()
	if another {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(done)
	err := pipes.Sweep(ctx, pipePrefix)
	if err != nil {
		s.mu.Lock()
		delete(s.swept, h)
		s.mu.Unlock()
	}
	return err
}

// Release ends the servers of a thread.
func (s *Source) Release(tenant string, id thread.ID) {
	s.drop(func(k place, _ *used) bool { return k.tenant == tenant && k.thread == id })
}

// Close ends all servers.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop(func(place, *used) bool { return true })
	s.ending.Wait()
	return nil
}

var errTimeout = errors.New("no answer in time")

// Call implements tool.Source.
func (s *Source) Call(ctx context.Context, p tool.Place, e tool.External, req tool.Request) (tool.Result, error) {
	var d data
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return tool.Result{}, fmt.Errorf("call %s: %w", e.Spec.Name, err)
	}
	if d.Server == "" {
		return s.callCommon(ctx, p, e.Spec.Name, req)
	}
	conf, ok := s.c.Servers[d.Server]
	if !ok || !conf.mayUse(p.Tenant, p.Agent) || !oneOf(conf.Tools, d.Tool) {
		return tool.Fail(tool.CodeUnknownTool, fmt.Sprintf("Error: unknown_tool: the MCP server %s is not configured for this agent any more.", d.Server)), nil
	}
	return s.with(ctx, p, d.Server, d.Tool, func(ctx context.Context, l *live, ses *session) (tool.Result, error) {
		if r := changed(l.named(ses, d.Tool), d); r != nil {
			return *r, nil
		}
		params := &sdk.CallToolParams{Name: d.Tool, Arguments: req.Args}
		if req.Emit != nil {
			token, done := ses.watch(req.Emit)
			defer done()
			params.Meta = sdk.Meta{"progressToken": token}
		}
		defer ses.begins(ctx, req)()
		res, err := ses.cs.CallTool(ctx, params)
		if err != nil {
			return tool.Result{}, err
		}
		ses.works.Store(true)
		a := newAnswer(ses.mask())
		r := a.result(res)
		for _, q := range ses.questions() {
			a.say("the server wanted to ask a person: %s", q)
		}
		r.Blocks = a.blocks
		return r, nil
	})
}

// changed says that a tool is not the one that the run found.
func changed(t *sdk.Tool, d data) *tool.Result {
	if t == nil {
		r := tool.Fail(tool.CodeUnknownTool, fmt.Sprintf("Error: unknown_tool: the MCP server %s has no tool %s any more.", d.Server, clip.Line(d.Tool, toolNameMax)))
		return &r
	}
	if form, err := formOf(t); err == nil && form == d.Form {
		return nil
	}
	r := tool.Fail(tool.CodeConflict, fmt.Sprintf("Error: conflict: the MCP server %s has changed the tool %s since this run began. It was not called; the next run has the new one.", d.Server, clip.Line(d.Tool, toolNameMax)))
	return &r
}

// with calls f with a server that runs, within its time. What f fails with is for the model.
func (s *Source) with(ctx context.Context, p tool.Place, name, what string, f func(context.Context, *live, *session) (tool.Result, error)) (r tool.Result, err error) {
	if s.c.Called != nil && s.c.Servers[name].URL != "" {
		begun := time.Now()
		defer func() { s.c.Called(called(p, name, what, r, err, time.Since(begun))) }()
	}
	return s.try(ctx, p, name, f)
}

// called is what there is to tell of a call.
func called(p tool.Place, server, what string, r tool.Result, err error, took time.Duration) Called {
	c := Called{Tenant: p.Tenant, Server: server, Tool: clip.Line(what, toolNameMax), Run: p.Run, Result: "done", Took: took}
	switch {
	case err != nil:
		c.Result = tool.CodeInterrupted
	case r.Failed:
		c.Result = cmp.Or(r.Code, "failed")
	}
	for _, b := range r.Blocks {
		c.Bytes += len(b.Text)
		if b.Media != nil {
			c.Bytes += len(b.Media.Data)
		}
	}
	return c
}

func (s *Source) try(ctx context.Context, p tool.Place, name string, f func(context.Context, *live, *session) (tool.Result, error)) (tool.Result, error) {
	l, done, err := s.hold(p, name)
	if err != nil {
		return tool.Fail("", fmt.Sprintf("Error: the MCP server %s cannot be used: %s", name, errs.Public(err))), nil
	}
	defer done()
	timeout := l.conf.timeout()
	limited, cancel := tool.WithTimeLimit(ctx, timeout, errTimeout)
	defer cancel()
	for try := 0; ; try++ {
		ses, err := l.use(limited, p)
		if err != nil {
			if ctx.Err() != nil {
				return tool.Result{}, context.Cause(ctx)
			}
			return tool.Fail("", fmt.Sprintf("Error: the MCP server %s cannot be used: %s", name, errs.Public(err))), nil
		}
		r, err := f(limited, l, ses)
		switch {
		case err == nil:
			if r.Code == "" { // else it may not have been called
				l.worked(ses)
			}
			return r, nil
		case ctx.Err() != nil:
			return tool.Result{}, context.Cause(ctx)
		case limited.Err() != nil:
			err = errTimeout
		case errors.Is(err, sdk.ErrSessionMissing) && try == 0: // it was not called
			l.renew(ses)
			continue
		default:
			ses.ends(err)
			l.saw(ses, err)
		}
		return failure(name, timeout, ses.told(err)), nil
	}
}

// renew ends a session so that the next use begins another, at once.
func (l *live) renew(s *session) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.s == s {
		s.close()
		l.s = nil
	}
}
