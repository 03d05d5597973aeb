// Package declared has the tools that the operator declares: a manifest each, with what the
// tool is for, the schema of its arguments, and a command that does it in a sandbox, or a
// request of HTTP.
//
//	folder := declared.NewFolder("/etc/skete/tools")  // NAME.yaml, or NAME/tool.yaml with files beside it
//	source := declared.New(declared.Config{Folder: folder, Sandboxes: …})
//	supervisor.Config{Sources: []tool.Source{source}}
//
// What a manifest says cannot be changed by a call: the arguments are handed to the command
// as JSON, on its standard input and in the file $SKETE_TOOL_INPUT, and are never a part of
// what a shell reads. A command never runs on the host: without a sandbox that isolates, a
// call fails.
//
// The command runs in the run's sandbox, or in one of its own that its scope names. There,
// calls whose scope is the same text share a sandbox. It is found again by its key, and so is
// the process of a call: a server that was killed attaches to what it started.
//
// A tool may have a request of HTTP in place of a command. The host makes it, to the host that
// the manifest names; an argument fills a segment of the path, a parameter or a part of the
// body, and can change nothing else of it.
//
// A run keeps the manifest and the files beside it with which it began.
//
// Everything is safe for concurrent use.
package declared

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/tool"
)

// Sandboxes makes the sandboxes of tools.
type Sandboxes interface {
	// Make makes one, or finds the one that was made with the key.
	// Limit: the tenant's quota. Unsupported: there can be none here.
	Make(ctx context.Context, tenant string, w Wanted) (id string, err error)
	// Open makes one usable; release gives it back.
	Open(ctx context.Context, tenant, id string) (m Machine, release func(), err error)
	// Remove ends one. It may be repeated.
	Remove(ctx context.Context, tenant, id string) error
}

// Wanted is a sandbox of tools.
type Wanted struct {
	Key string
	// Run is the run with which it is removed, "" = it is removed when it was not used for
	// Keep. Until then it is stopped when it was not used for a while.
	Run  string
	Keep time.Duration
	// Tool and Scope are what people are told of it.
	Tool, Scope string
	Spec        map[string]any // with the keys of a request for one
}

// Machine is where a command runs.
type Machine struct {
	Files    tool.Files
	Commands tool.Commands
	Boot     string
	Dir      string
	// Mount is as in tool.Place.
	Mount func(ctx context.Context, dir string, tar []byte) error
}

// Config is what a Source needs.
type Config struct {
	Folder    *Folder
	Sandboxes Sandboxes // nil = tools have none of their own
	// Rates keeps what was called, below RatesPrefix; nil = no rate is held.
	Rates kv.Store
	// Outbound is how requests of tools leave the host.
	Outbound outbound.Config
	// Sent is told of each request that was made; nil = nothing is. It does not block.
	Sent func(Sent)
	Now  func() time.Time
}

// Source is a tool.Source.
type Source struct {
	c     Config
	rates rates
	put   keylock.Locks[string] // by machine and directory

	mu    sync.Mutex
	calls map[string]string // sandboxes of single calls, by their keys
}

// Name is that of the source.
const Name = "declared"

// New returns the tools of a folder.
func New(c Config) *Source {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Source{c: c, rates: rates{kv: c.Rates}, calls: map[string]string{}}
}

// Name implements tool.Source.
func (*Source) Name() string { return Name }

// Covers implements tool.Source.
func (s *Source) Covers(_, name string) bool {
	for _, e := range s.c.Folder.List() {
		if ok, err := path.Match(name, e.Name); ok && err == nil {
			return true
		}
	}
	return false
}

// Find implements tool.Source.
func (s *Source) Find(_ context.Context, p tool.Place) (found []tool.External, notes []string, err error) {
	for _, e := range s.c.Folder.List() {
		if e.Err != nil {
			notes = append(notes, errs.Public(e.Err))
			continue
		}
		if !e.Manifest.mayHave(p.Agent) {
			continue
		}
		data, err := json.Marshal(pinned{e.Manifest, e.Files})
		if err != nil {
			return nil, nil, err
		}
		found = append(found, tool.External{Source: Name, Spec: e.Manifest.spec(), Class: e.Manifest.class(), Asks: e.Manifest.Approval == "ask", Data: data})
	}
	return found, notes, nil
}

// Call implements tool.Source.
func (s *Source) Call(ctx context.Context, p tool.Place, e tool.External, req tool.Request) (tool.Result, error) {
	what, err := unpin(e.Data)
	if err != nil {
		return tool.Result{}, fmt.Errorf("read the tool %s: %w", e.Spec.Name, err)
	}
	if late, err := s.late(ctx, p.Tenant, what.Manifest, req); late != nil || err != nil {
		return result(late, err)
	}
	if what.Manifest.HTTP != nil {
		return s.ask(ctx, p, req, what)
	}
	c := &call{s: s, p: p, req: req, what: what}
	m, release, bad, err := s.machine(ctx, c)
	if bad != nil || err != nil {
		return result(bad, err)
	}
	defer release()
	c.m = m
	return c.run(ctx)
}

// late counts a call, or says that it is one too many.
func (s *Source) late(ctx context.Context, tenant string, m Manifest, req tool.Request) (*tool.Result, error) {
	wait, err := s.rates.take(ctx, tenant, m.Name, m.Rate, req, s.c.Now())
	if err != nil {
		return nil, fmt.Errorf("count a call of %s: %w", m.Name, err)
	}
	if wait > 0 {
		return failed(tool.CodeLimit, "%s may be called %d times in %v. Try again in %v.", m.Name, m.Rate.Calls, m.Rate.Per, wait.Round(time.Second)), nil
	}
	return nil, nil
}

func result(r *tool.Result, err error) (tool.Result, error) {
	if r == nil {
		return tool.Result{}, err
	}
	return *r, err
}

func failed(code, format string, args ...any) *tool.Result {
	r := tool.Fail(code, "Error: "+fmt.Sprintf(format, args...))
	return &r
}

// machine is where a call runs.
func (s *Source) machine(ctx context.Context, c *call) (m Machine, release func(), bad *tool.Result, err error) {
	scope := c.what.Manifest.Sandbox.Scope
	if scope == "" {
		m = Machine{Files: c.p.Files, Commands: c.p.Commands, Boot: c.p.Boot, Dir: c.p.Dir, Mount: c.p.Mount}
		return m, func() {}, unfit(m), nil
	}
	if s.c.Sandboxes == nil {
		return m, nil, unfit(m), nil
	}
	id, err := s.c.Sandboxes.Make(ctx, c.p.Tenant, c.wanted())
	if err == nil {
		if strings.Contains(scope, "{call}") || c.alone() {
			s.remember(c.p.Tenant+"/"+c.req.Key, id)
		}
		m, release, err = s.c.Sandboxes.Open(ctx, c.p.Tenant, id)
	}
	switch errs.Of(err) {
	case errs.Limit:
		return m, nil, failed(tool.CodeLimit, "no sandbox can be made for this tool: %s", errs.Public(err)), nil
	case errs.Invalid, errs.Unsupported, errs.NotFound, errs.Conflict, errs.Denied:
		return m, nil, failed(tool.CodeDenied, "no sandbox can be made for this tool: %s", errs.Public(err)), nil
	}
	if err != nil {
		return m, nil, nil, err
	}
	if bad := unfit(m); bad != nil {
		release()
		return m, nil, bad, nil
	}
	return m, release, nil, nil
}

// unfit refuses a machine in which no command of a tool may run.
func unfit(m Machine) *tool.Result {
	switch {
	case m.Commands == nil || m.Files == nil:
		return failed(tool.CodeDenied, "this tool runs in a sandbox alone, and there is none")
	case m.Mount == nil:
		return failed(tool.CodeDenied, "this tool runs in a sandbox alone, and the one that there is does not isolate")
	}
	return nil
}

// Finish implements tool.Finisher: the sandbox of a single call is removed.
func (s *Source) Finish(ctx context.Context, p tool.Place, _ tool.External, key string) {
	s.mu.Lock()
	id, ok := s.calls[p.Tenant+"/"+key]
	delete(s.calls, p.Tenant+"/"+key)
	s.mu.Unlock()
	if ok {
		_ = s.c.Sandboxes.Remove(ctx, p.Tenant, id) // else it goes with the run
	}
}

func (s *Source) remember(key, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[key] = id
}

// short is a hash for names.
func short(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

var _ tool.Finisher = (*Source)(nil)
