// Package network carries the connections of sandboxes, each by its own policy.
//
//	s, err := network.New(ctx, network.Config{Seed: seed, Find: manager.OfHost, Events: log})
//	defer s.Close()
//	gvisor.Config{Serve: s.Serve}            // streams of machines arrive
//	manager.Config{Networks: s}              // asks for what machines are given
//	s.Changed(host)                          // a policy was edited
//	s.Detach(host)                           // the machine is gone
//	s.SetRegistries(set, network.Asked)      // what the profile default allows
//
// A machine has one proxy (egress/proxy) as long as it lives, made when its first
// connection comes. All methods are safe for concurrent use.
//
// A server finds out where packages are in its first seconds. With Config.Await new
// machines wait until the host's package managers were asked, and what the profile
// default would refuse waits until their registries were; neither for long.
package network

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/secret"
)

// DecisionsMax is how many decisions of a sandbox are kept.
const DecisionsMax = 1000

// States of an event.
const (
	allowed = "allowed"
	refused = "refused"
)

// Owner is the sandbox of a machine.
type Owner struct {
	Tenant string
	ID     sandbox.ID
	Name   string // for messages: its name, else its ID
	Policy egress.Policy
}

// Config of a Service. What is left out of the second half is this host's own.
type Config struct {
	Seed []byte // the secret that the authority's key derives from; at least 32 bytes
	// Find returns the sandbox that a machine is of; false: of none.
	Find   func(host sandbox.ID) (Owner, bool)
	Events event.Log // decisions are told to; nil = none
	// Decided is told of each decision, also of those that are alike and those that are too
	// many to be events; nil = nothing is. A request waits for it.
	Decided func(Owner, Decision)
	// Secrets returns what is added to an allowed request of a sandbox; nil = nothing is.
	Secrets func(Owner, egress.Request) []secret.Held
	// Tokens returns those that a sandbox got by secrets of token endpoints; nil = none are
	// kept.
	Tokens func(Owner) *secret.SandboxTokens
	// Local serves requests of a sandbox to hosts that are in this server; nil, or a nil
	// handler = none is.
	Local func(of Owner, host string) http.Handler
	// Env returns variables of a new machine beside those of mirrors, in a map of the
	// caller's own; nil = there are none.
	Env func(sandbox.Info) map[string]string
	// Await says that SetRegistries is called soon, with each Stage, also if nothing could
	// be found out. What depends on it waits, but not for long.
	Await bool
	Node  string
	Log   *slog.Logger

	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Roots  *x509.CertPool
	Now    func() time.Time
}

// Service has the networks of all sandboxes of a server.
type Service struct {
	c         Config
	authority *proxy.Authority

	registries      atomic.Pointer[registry.Set]
	asked, followed gate // are opened by SetRegistries

	mu     sync.Mutex
	closed bool
	of     map[sandbox.ID]*machine
	logs   map[sandbox.ID]*decisions // by sandbox
}

// machine is the network of one machine.
type machine struct {
	owner Owner
	rules atomic.Pointer[egress.Rules]
	proxy *proxy.Proxy
}

// New returns a service. Numbers of decisions go on from the newest that was told.
func New(ctx context.Context, c Config) (*Service, error) {
	if c.Events == nil {
		c.Events = event.Discard{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	authority, err := proxy.NewAuthority(c.Seed, "sandboxes", c.Now)
	if err != nil {
		return nil, err
	}
	s := &Service{
		c: c, authority: authority, of: map[sandbox.ID]*machine{}, logs: map[sandbox.ID]*decisions{},
		asked: newGate(askedMax), followed: newGate(followedMax),
	}
	if !c.Await {
		s.known(Followed)
	}
	return s, c.Events.Newest(ctx, event.Network, func(e event.Event) error {
		s.logs[sandbox.ID(e.ID)] = &decisions{last: e.Revision}
		return nil
	})
}

// Machine is what a machine is given if it has a network. In a server's first seconds it
// may wait for that; when ctx ends it returns what is known.
func (s *Service) Machine(ctx context.Context, of sandbox.Info) *sandbox.Network {
	s.awaitMirrors(ctx, of.Spec.Network)
	set := s.Registries()
	env := set.Env
	if s.c.Env != nil {
		env = s.c.Env(of)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, set.Env)
	}
	return &sandbox.Network{Authority: string(s.authority.PEM()), Env: env, Files: set.Files}
}

// Registries is what SetRegistries was told last. It is not to be changed.
func (s *Service) Registries() registry.Set {
	if set := s.registries.Load(); set != nil {
		return *set
	}
	return registry.Set{}
}

// SetRegistries says what the profile default allows, from now on and to all machines,
// and what machines that begin after now are told. What waits for the stage goes on.
func (s *Service) SetRegistries(set registry.Set, stage Stage) {
	defer s.known(stage)
	s.registries.Store(&set)
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.of))
	s.mu.Unlock()
	for _, host := range hosts {
		if err := s.Changed(host); err != nil { // a policy that was good before
			s.c.Log.Warn("a sandbox keeps the registries that it had", "host", host, "error", err)
		}
	}
}

func (s *Service) compile(p egress.Policy) (*egress.Rules, error) {
	return egress.Compile(p, s.Registries().Rules()...)
}

// Serve implements sandbox.ServeGuest.
func (s *Service) Serve(host sandbox.ID, conn net.Conn, port uint32) {
	n, err := s.network(host)
	if port != wire.NetworkPort {
		err = errs.New(errs.Unavailable, "the host serves nothing at port %d", port)
	}
	if err != nil {
		_ = wire.Refuse(conn, err)
		conn.Close()
		return
	}
	if wire.Grant(conn, port) != nil {
		conn.Close()
		return
	}
	n.proxy.Stream(context.Background(), conn) // ends when the proxy is closed
}

// network returns the one of a machine, and makes it if it is the first time.
func (s *Service) network(host sandbox.ID) (*machine, error) {
	s.mu.Lock()
	n, closed := s.of[host], s.closed
	s.mu.Unlock()
	if n != nil || closed {
		if closed {
			return nil, errs.New(errs.Unavailable, "the server stops")
		}
		return n, nil
	}
	owner, ok := s.c.Find(host)
	if !ok {
		return nil, errs.New(errs.Unavailable, "the machine is of no sandbox")
	}
	n, err := s.make(host, owner)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	other, closed := s.of[host], s.closed
	if other == nil && !closed {
		s.of[host] = n
	}
	s.mu.Unlock()
	switch {
	case closed:
		err = errs.New(errs.Unavailable, "the server stops")
	case other == nil:
		return n, s.Changed(host) // what has changed while it was made did not find it
	}
	go n.proxy.Close()
	return other, err
}

func (s *Service) make(host sandbox.ID, owner Owner) (*machine, error) {
	n := &machine{owner: owner}
	rules, err := s.compile(owner.Policy)
	if err != nil {
		return nil, err
	}
	n.rules.Store(rules)
	var secrets func(egress.Request) []secret.Held
	if s.c.Secrets != nil {
		secrets = func(q egress.Request) []secret.Held { return s.c.Secrets(owner, q) }
	}
	var tokens func() *secret.SandboxTokens
	if s.c.Tokens != nil {
		kept := s.c.Tokens(owner)
		tokens = func() *secret.SandboxTokens { return kept }
	}
	var local func(string) http.Handler
	if s.c.Local != nil {
		local = func(name string) http.Handler { return s.c.Local(owner, name) }
	}
	n.proxy = proxy.New(proxy.Config{
		Secrets: secrets, Tokens: tokens, Local: local, Awaits: func() <-chan struct{} { return s.awaitsRules(host) },
		Sandbox: owner.Name, Rules: n.rules.Load, CA: s.authority, Decided: func(d proxy.Decision) { s.decided(owner, d) },
		Lookup: s.c.Lookup, Dial: s.c.Dial, Roots: s.c.Roots, Now: s.c.Now,
	})
	return n, nil
}

// Changed takes over the policy that the sandbox of a machine has now.
func (s *Service) Changed(host sandbox.ID) error {
	s.mu.Lock()
	n := s.of[host]
	s.mu.Unlock()
	if n == nil {
		return nil // its first connection reads it
	}
	owner, ok := s.c.Find(host)
	if !ok {
		return nil
	}
	rules, err := s.compile(owner.Policy)
	if err != nil {
		return err
	}
	n.rules.Store(rules)
	return nil
}

// Detach ends the network of a machine that is gone.
func (s *Service) Detach(host sandbox.ID) {
	s.mu.Lock()
	n := s.of[host]
	delete(s.of, host)
	s.mu.Unlock()
	if n != nil {
		n.proxy.Close()
	}
}

// Forget forgets what was decided for a sandbox that is gone. What was told stays, as
// all events do.
func (s *Service) Forget(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logs, id)
}

// Close ends all networks, and all that waits.
func (s *Service) Close() error {
	s.known(Followed)
	s.mu.Lock()
	s.closed = true
	all := s.of
	s.of = map[sandbox.ID]*machine{}
	s.mu.Unlock()
	for _, n := range all {
		n.proxy.Close()
	}
	return nil
}

// Decision is one, with its number in the sandbox's log, from 1.
type Decision struct {
	proxy.Decision
	N     uint64
	Times int // it was made so often in a row
}

// decisions are the last ones of a sandbox. Those alike in a row are one.
type decisions struct {
	last uint64
	list []Decision
	// Those with secrets are told by a pace of their own: many that are refused must not hide
	// that one was sent.
	pace, sending event.Pace
}

func (s *Service) decided(of Owner, d proxy.Decision) {
	if s.c.Decided != nil {
		s.c.Decided(of, Decision{Decision: d, Times: 1})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[of.ID]
	if l == nil {
		l = &decisions{}
		s.logs[of.ID] = l
	}
	if n := len(l.list); n > 0 && alike(l.list[n-1].Decision, d) {
		l.list[n-1].Times++
		l.list[n-1].At = d.At
		return
	}
	l.last++
	if len(l.list) >= DecisionsMax {
		l.list = append(l.list[:0], l.list[len(l.list)/4:]...)
	}
	l.list = append(l.list, Decision{d, l.last, 1})
	s.tell(of, l)
}

// tell tells of the newest decision of a sandbox, unless there were too many lately.
// Precondition: s.mu is held.
func (s *Service) tell(of Owner, l *decisions) {
	d := l.list[len(l.list)-1]
	pace := &l.pace
	if d.Secrets != "" {
		pace = &l.sending
	}
	if !pace.Allow(s.c.Now()) {
		return
	}
	state := refused
	if d.Allowed {
		state = allowed
	}
	data, _ := json.Marshal(d) // plain data
	s.c.Events.Append(event.Event{
		Time: d.At.UTC(), Tenant: of.Tenant, Node: s.c.Node, Kind: event.Network, ID: string(of.ID), State: state, Revision: d.N, Data: data,
	})
}

func alike(a, b proxy.Decision) bool {
	a.At, b.At = time.Time{}, time.Time{}
	return a == b
}

// Decisions returns those that are kept of a sandbox, from the N on, the oldest first.
func (s *Service) Decisions(id sandbox.ID, from uint64) []Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[id]
	if l == nil {
		return nil
	}
	var list []Decision
	for _, d := range l.list {
		if d.N >= from {
			list = append(list, d)
		}
	}
	return list
}
