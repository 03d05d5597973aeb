package serve

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/thread"
)

// oneLog has one log of threads.
type oneLog struct{ log thread.Log }

func (o oneLog) Log(context.Context, string) (thread.Log, error) { return o.log, nil }

func (oneLog) Blobs(context.Context, string) (thread.Blobs, error) { return nil, nil }

func openAudit(t *testing.T) *audit.Log {
	t.Helper()
	l, err := audit.Open(t.Context(), audit.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// listed is what the audit log has, the oldest first, without what each record has.
func listed(t *testing.T, l *audit.Log) []audit.Record {
	t.Helper()
	list, err := l.List(t.Context(), audit.Query{})
	must(t, err)
	var out []audit.Record
	for i := range list {
		r := list[len(list)-1-i]
		out = append(out, audit.Record{Tenant: r.Tenant, Who: r.Who, What: r.What, On: r.On, Result: r.Result, Detail: r.Detail})
	}
	return out
}

// What an agent does, and what is decided about it, is kept; what its log refused is not.
func TestAudit_agents(t *testing.T) {
	l := openAudit(t)
	log, err := auditedThreads{oneLog{thread.NewMemory()}, l}.Log(t.Context(), "default")
	must(t, err)
	id, run := thread.NewID(), thread.NewRunID()
	events := []thread.Event{
		thread.New(run, thread.Opened{Name: "a", Agent: json.RawMessage("{}")}), thread.New(run, thread.RunStarted{By: "ci"}),
		thread.New(run, thread.ModelCompleted{Model: "fast", Stop: llm.StopTools, Message: llm.Message{Role: llm.RoleAssistant, Blocks: []llm.Block{{Kind: llm.KindCall, Call: &llm.Call{ID: "c1", Name: "execute", Args: json.RawMessage(`{"command":"rm a"}`)}}}}}),
		thread.New(run, thread.ApprovalAsked{Call: "c1", Tool: "execute", Reason: "it deletes"}),
		thread.New(run, thread.ApprovalDecided{Call: "c1", Decision: thread.Approve, By: "anna"}),
		thread.New(run, thread.ToolStarted{Call: "c1", Tool: "execute", Key: "k", Machine: "sbx_a"}),
		thread.New(run, thread.ToolCompleted{Call: "c1", Tool: "execute", Failed: true, Code: "exit"}),
		thread.New(run, thread.RunEnded{State: thread.RunSucceeded, Reason: "done"}),
	}
	seq, err := log.Append(t.Context(), id, 0, events...)
	must(t, err)
	if _, err := log.Append(t.Context(), id, seq-1, thread.New(run, thread.CancelAsked{By: "eve"})); !errs.Is(err, errs.Conflict) {
		t.Fatal(err)
	}
	who, on := "run "+string(run), string(id)
	with := func(detail map[string]string) map[string]string {
		detail["run"] = string(run)
		return detail
	}
	want := []audit.Record{
		{Tenant: "default", Who: "ci", What: "run.started", On: on, Detail: with(map[string]string{})},
		{Tenant: "default", Who: who, What: "model.completed", On: on, Result: string(llm.StopTools), Detail: with(map[string]string{"model": "fast", "calls": `execute c1 {"command":"rm a"}`})},
		{Tenant: "default", Who: who, What: "approval.asked", On: on, Detail: with(map[string]string{"tool": "execute", "call": "c1", "reason": "it deletes"})},
		{Tenant: "default", Who: "anna", What: "approval.decided", On: on, Result: "approve", Detail: with(map[string]string{"call": "c1"})},
		{Tenant: "default", Who: who, What: "tool.started", On: on, Detail: with(map[string]string{"tool": "execute", "call": "c1", "sandbox": "sbx_a"})},
		{Tenant: "default", Who: who, What: "tool.completed", On: on, Result: "failed", Detail: with(map[string]string{"tool": "execute", "call": "c1", "code": "exit"})},
		{Tenant: "default", Who: who, What: "run.ended", On: on, Result: "succeeded", Detail: with(map[string]string{"reason": "done"})},
	}
	if d := cmp.Diff(want, listed(t, l)); d != "" {
		t.Error(d)
	}
}

// All that is an event is kept, with what it is about.
func TestAudit_events(t *testing.T) {
	l := openAudit(t)
	log := auditedEvents{eventtest.NewMemory(), l}
	log.Append(event.Event{Tenant: "t", Kind: event.Network, ID: "sbx_a", State: "allowed", Revision: 1, Data: json.RawMessage(`{}`)}) // is told by the network itself
	auditedDecisions{l}.tell(network.Owner{Tenant: "t", ID: "sbx_a"}, network.Decision{Decision: proxy.Decision{Host: "api.example.com", Port: 443, Method: "GET", Path: "/a", Allowed: true, Rule: "api.example.com", Secrets: "forge"}})
	log.Append(event.Event{Tenant: "t", Kind: event.Sandbox, ID: "sbx_a", State: "running", Revision: 2, Data: json.RawMessage(`{"spec":{"name":"web"},"provider":"gvisor"}`)})
	log.Append(event.Event{Tenant: "t", Kind: event.Workspace, ID: "sbx_a", State: "changed", Revision: 3, Data: json.RawMessage(`{"n":3,"actor":"user:anna","label":"rm a"}`)})
	want := []audit.Record{
		{Tenant: "t", Who: "skete", What: "network.allowed", On: "sbx_a", Detail: map[string]string{"to": "GET api.example.com:443/a", "rule": "api.example.com", "secrets": "forge"}},
		{Tenant: "t", Who: "skete", What: "sandbox.running", On: "sbx_a", Detail: map[string]string{"name": "web", "provider": "gvisor"}},
		{Tenant: "t", Who: "user:anna", What: "workspace.changed", On: "sbx_a", Detail: map[string]string{"revision": "3", "cause": "rm a"}},
	}
	patience.Until(t, 10*time.Second, "the records", func() bool { return len(listed(t, l)) == len(want) })
	if d := cmp.Diff(want, listed(t, l)); d != "" {
		t.Error(d)
	}
	if next, err := log.Next(t.Context()); err != nil || next != 4 {
		t.Errorf("%d events were told, %v", next-1, err)
	}
}

// A sandbox that is refused as often as it likes takes a bounded part of the log, where its
// refusals are counted; that a secret was sent meanwhile is told, and other tenants need not
// wait.
func TestAudit_floodOfDecisions(t *testing.T) {
	l := openAudit(t)
	tell := auditedDecisions{l}.tell
	noisy, quiet := network.Owner{Tenant: "noisy", ID: "sbx_a"}, network.Owner{Tenant: "quiet", ID: "sbx_b"}
	const refusals = 10_000
	for i := range refusals {
		tell(noisy, network.Decision{Decision: proxy.Decision{Host: "h" + strconv.Itoa(i) + ".example", Port: 443, Why: "no rule"}})
		if i == refusals/2 {
			tell(noisy, network.Decision{Decision: proxy.Decision{Host: "api.example.com", Port: 443, Allowed: true, Secrets: "forge"}})
			tell(quiet, network.Decision{Decision: proxy.Decision{Host: "a.example", Port: 443, Why: "no rule"}})
		}
	}
	patience.Until(t, 10*time.Second, "the other tenant's record", func() bool {
		return slices.ContainsFunc(listed(t, l), func(r audit.Record) bool { return r.Tenant == "quiet" })
	})
	must(t, l.Close())
	times, sent := 0, 0
	all := listed(t, l)
	for _, r := range all {
		n := 1
		if text := r.Detail["times"]; text != "" {
			var err error
			n, err = strconv.Atoi(text)
			must(t, err)
		}
		switch {
		case r.Tenant == "noisy" && r.What == "network.refused":
			times += n
		case r.Detail["secrets"] == "forge" && r.Detail["to"] == "api.example.com:443":
			sent += n
		}
	}
	if times != refusals || sent != 1 || len(all) > 60 {
		t.Errorf("%d refusals and %d uses of the secret in %d records", times, sent, len(all))
	}
}
