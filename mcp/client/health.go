package client

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// State is how a server was found, when it was last used.
type State string

// The states of a server.
const (
	Unused  State = "unused" // not since this source was made
	Working State = "working"
	Broken  State = "broken"  // it does not start, has ended, or does not answer as it should
	Refused State = "refused" // it does not let us in
)

// Status is how a server is for a tenant.
type Status struct {
	Server    string
	Tenant    string   // "" = it was used for none
	Transport string   // stdio, http or sse
	Agents    []string // that may use it: names or globs; none = all
	State     State
	Tools     int // that it had when it last worked
	Sessions  int // open now: one for each thread
	Failures  int // since it last worked
	// Error is why it is broken or refused, for people. No secret is in it.
	Error string
	Since time.Time // of the state
}

// healthsMax bounds what is remembered: servers times tenants.
const healthsMax = 10_000

// customer is a tenant for whom a server was used.
type customer struct{ server, tenant string }

// health is what is remembered of a server for a tenant, of all its threads together: what
// was found last counts.
type health struct {
	mu       sync.Mutex
	state    State
	tools    int
	failures int
	problem  string
	since    time.Time
	open     map[*session]bool
}

// healthOf returns that of a server for a tenant. The caller holds s.mu.
func (s *Source) healthOf(server, tenant string) *health {
	c := customer{server, tenant}
	h := s.healths[c]
	if h == nil {
		if len(s.healths) >= healthsMax {
			s.forget()
		}
		h = &health{state: Unused, open: map[*session]bool{}}
		s.healths[c] = h
	}
	return h
}

// forget makes room: what has not changed for the longest time, and has no session, goes. The
// caller holds s.mu.
func (s *Source) forget() {
	var oldest customer
	var since time.Time
	for c, h := range s.healths {
		st := h.status()
		if st.Sessions == 0 && (oldest.server == "" || st.Since.Before(since)) {
			oldest, since = c, st.Since
		}
	}
	delete(s.healths, oldest)
}

// become is a change of the state. The caller holds h.mu.
func (h *health) become(state State) {
	if h.state != state {
		h.state, h.since = state, time.Now()
	}
}

// works notes that a server has answered.
func (h *health) works() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.become(Working)
	h.failures, h.problem = 0, ""
}

// lists notes that a server of a session has told its tools.
func (h *health) lists(ses *session) {
	h.works()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools, h.open[ses] = len(ses.order), true
}

// fails notes why a server cannot be used.
func (h *health) fails(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := Broken
	if errs.Is(err, errs.Denied) {
		state = Refused
	}
	h.become(state)
	h.failures++
	h.problem = errs.Public(err)
}

// leaves notes that a session is closed.
func (h *health) leaves(ses *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, ses)
}

// status is all that can be told without the server's name.
func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Status{State: h.state, Tools: h.tools, Failures: h.failures, Error: h.problem, Since: h.since}
	for ses := range h.open {
		if !ses.over() {
			st.Sessions++
		}
	}
	return st
}

// Servers tells how the servers are that a tenant may use; "" = all of them, for each tenant
// for whom they were used. It asks no server, and returns at once.
func (s *Source) Servers(tenant string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[string]bool{}
	var list []Status
	for c, h := range s.healths {
		if tenant == "" || tenant == c.tenant {
			list = append(list, s.told(c, h.status()))
			used[c.server] = true
		}
	}
	for _, name := range s.names {
		if !used[name] && s.c.Servers[name].mayUse(tenant, "") {
			list = append(list, s.told(customer{name, ""}, Status{State: Unused}))
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tenant, b.Tenant))
	})
	return list
}

// told adds to a status what the operator has said of the server.
func (s *Source) told(c customer, st Status) Status {
	conf := s.c.Servers[c.server]
	st.Server, st.Tenant, st.Transport, st.Agents = c.server, c.tenant, conf.transport(), slices.Clone(conf.Agents)
	return st
}
