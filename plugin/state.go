package plugin

import (
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// State is how a process is.
type State string

// States, the worst first.
const (
	Broken   State = "broken" // it failed, and no call was answered since
	Starting State = "starting"
	Running  State = "running"
	Idle     State = "idle" // there is none; the next call starts one
)

// worst are the states in their order.
var worst = []State{Broken, Starting, Running, Idle}

// Worst is the state of a plug-in with processes in these.
func Worst(list []ProcessState) State {
	at := len(worst) - 1
	for _, p := range list {
		at = min(at, slices.Index(worst, p.State))
	}
	return worst[at]
}

// ProcessState is how the process of a plug-in for a tenant is.
type ProcessState struct {
	Tenant   string
	State    State
	Calls    int // under way
	Starts   int
	Failures int    // since a call was answered
	Error    string // of the last one, for people
	Started  time.Time
	Used     time.Time
	RetryAt  time.Time // before which it is not started again
}

// Processes tells of the processes of a plug-in, by tenant. It returns at once.
func (h *Host) Processes(name string) []ProcessState {
	var list []ProcessState
	for _, r := range h.runners() {
		if r.p.Name == name {
			list = append(list, r.state(time.Now()))
		}
	}
	slices.SortFunc(list, func(a, b ProcessState) int { return strings.Compare(a.Tenant, b.Tenant) })
	return list
}

func (r *runner) state(now time.Time) ProcessState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ProcessState{Tenant: r.tenant, State: Idle, Calls: r.uses, Starts: r.starts, Failures: r.failed, Started: r.started, Used: r.used}
	why := r.why
	switch {
	case r.conn != nil && r.conn.over() == nil:
		s.State = Running
	case r.conn != nil: // it ended, and no call has seen it yet
		s.State, s.Failures, why = Broken, s.Failures+1, r.conn.over()
	case r.begins:
		s.State = Starting
	case r.failed > 0:
		s.State = Broken
	}
	if why != nil {
		s.Error = errs.Public(why)
	}
	if r.notUntil.After(now) {
		s.RetryAt = r.notUntil
	}
	return s
}
