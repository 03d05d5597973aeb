package supervisor

import (
	"maps"
	"net"
	"strconv"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// This file tells the logs of runs what the networks of their machines did not let out. A
// guest can try as often as it likes, so all of it is bounded: what waits here, how often a
// log is read for it, and by agent/runs what a log has. What is left out the machine's own
// log of decisions has.
const (
	refusedWaitMax = 64  // that wait to be told
	refusedPathMax = 512 // bytes; a longer path is left out: a rule needs all of it
	refusedTextMax = 256
)

// refusal is what a machine of a tenant could not send.
type refusal struct {
	tenant string
	body   thread.NetworkRefused
}

// Refused is told what a machine's network did not let out. It does not block.
func (k *Supervisor) Refused(tenant string, b thread.NetworkRefused) {
	if len(b.Path) > refusedPathMax {
		b.Path = ""
	}
	b.Host, b.Method, b.Why = clip.Text(b.Host, refusedTextMax), clip.Text(b.Method, refusedTextMax), clip.Text(b.Why, refusedTextMax)
	select {
	case k.refusals <- refusal{tenant, b}:
	default:
	}
}

// tellRefusals appends them until the Supervisor is closed.
func (k *Supervisor) tellRefusals() {
	var paces event.Paces
	for {
		select {
		case r := <-k.refusals:
			if paces.Allow(r.body.Machine, net.JoinHostPort(r.body.Host, strconv.Itoa(r.body.Port)), k.c.Now()) {
				k.tellRefusal(r)
			}
		case <-k.ctx.Done():
			return
		}
	}
}

func (k *Supervisor) tellRefusal(r refusal) {
	for _, t := range k.worksIn(r.tenant, r.body.Machine) {
		_, err := k.external(k.ctx, t, func(s *runs.State) ([]thread.Body, error) {
			if s.Run == nil || s.Run.Ended != nil {
				return nil, nil
			}
			b := r.body
			tell, last := s.Run.Refused.MayTell(b)
			if !tell {
				return nil, nil
			}
			b.Last = last
			return []thread.Body{b}, nil
		})
		if err != nil && k.ctx.Err() == nil && !errs.Is(err, errs.NotFound) {
			k.c.Log.Warn("the log of a run was not told what its machine could not send", "thread", t.id, "err", err)
		}
	}
}

// worksIn lists the threads whose runs are under way in a machine. A sub-agent in the machine
// of a thread above it is not among them: which of the two sent something is not known.
func (k *Supervisor) worksIn(tenant, machine string) []threadKey {
	k.mu.Lock()
	entries := map[thread.ID]*entry{}
	for t, e := range k.byID {
		if t.tenant == tenant {
			entries[t.id] = e
		}
	}
	k.mu.Unlock()
	maps.DeleteFunc(entries, func(_ thread.ID, e *entry) bool {
		run := e.snapshot()
		return run.Sandbox != machine || run.State.Final()
	})
	var list []threadKey
	for id := range entries {
		above, _ := id.Parent()
		for above != "" && entries[above] == nil {
			above, _ = above.Parent()
		}
		if above == "" {
			list = append(list, threadKey{tenant, id})
		}
	}
	return list
}
