package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/workspace"
)

// This file is what the audit log is told: calls of the API by the server's table of routes,
// all that is an event, what networks decide, and what agents do by the logs of their threads.

// openAudit opens the audit log.
func (r *running) openAudit(ctx context.Context) error {
	heads, err := r.store.KV(ctx, "audit")
	if err != nil {
		return err
	}
	if r.audit, err = audit.Open(ctx, audit.Config{Dir: r.in("audit"), Node: r.node.ID, KV: heads, Log: r.c.Log}); err != nil {
		return err
	}
	r.onClose(r.audit.Close)
	r.events = auditedEvents{r.store.Events(), r.audit}
	return nil
}

// auditedEvents tells the audit log of all events but decisions of networks, of which only
// some are events.
type auditedEvents struct {
	event.Log
	to *audit.Log
}

// Append implements event.Log.
func (a auditedEvents) Append(e event.Event) {
	a.Log.Append(e)
	if e.Kind != event.Network {
		a.to.Later(recordOf(e)) // callers hold locks
	}
}

// recordOf is what the audit log keeps of an event.
func recordOf(e event.Event) audit.Record {
	r := audit.Record{Tenant: e.Tenant, Who: "skete", What: e.Type(), On: e.ID, Detail: map[string]string{}}
	switch e.Kind {
	case event.Sandbox:
		var i sandbox.Info
		_ = json.Unmarshal(e.Data, &i)
		r.Detail["name"], r.Detail["provider"], r.Detail["reason"], r.Detail["run"] = i.Spec.Name, i.Provider, i.Reason, i.ForRun.Run
	case event.Run:
		var x runs.Run
		_ = json.Unmarshal(e.Data, &x)
		r.Detail["agent"] = x.Agent
	case event.Workspace:
		var w workspace.Stored
		_ = json.Unmarshal(e.Data, &w)
		id, _, _ := strings.Cut(w.Actor, " ") // without the name
		r.Who, r.Detail["run"] = cmp.Or(id, r.Who), w.Run
		r.Detail["revision"], r.Detail["cause"] = strconv.FormatUint(w.N, 10), w.Label
	case event.Models:
		var u gateway.Use
		_ = json.Unmarshal(e.Data, &u)
		r.Detail["model"], r.Detail["tokens"], r.Result = u.Model, strconv.Itoa(u.Usage.Total()), strconv.Itoa(u.Status)
	}
	return r
}

// auditedDecisions tells the audit log what networks decide.
type auditedDecisions struct{ to *audit.Log }

func (a auditedDecisions) tell(of network.Owner, d network.Decision) {
	r := audit.Record{Time: d.At, Tenant: of.Tenant, Who: "skete", What: event.Network + ".refused", On: string(of.ID), Detail: map[string]string{
		"to": strings.TrimSpace(d.Method + " " + d.Host + ":" + strconv.Itoa(d.Port) + d.Path), "rule": d.Rule, "why": d.Why, "secrets": d.Secrets,
	}}
	if d.Allowed {
		r.What = event.Network + ".allowed"
	}
	if !a.to.Fold(r.On+" "+d.Secrets, r) { // what is refused must not hide that a secret was sent
		a.to.Later(r) // a request waits
	}
}

// auditedThreads tells the audit log what agents do.
type auditedThreads struct {
	supervisor.Threads
	to *audit.Log
}

// Log implements supervisor.Threads.
func (a auditedThreads) Log(ctx context.Context, tenant string) (thread.Log, error) {
	l, err := a.Threads.Log(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return auditedThread{l, tenant, a.to}, nil
}

type auditedThread struct {
	thread.Log
	tenant string
	to     *audit.Log
}

// Append implements thread.Log.
func (a auditedThread) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	seq, err := a.Log.Append(ctx, id, after, events...)
	if err != nil {
		return seq, err
	}
	for _, e := range events {
		if r, ok := recordOfStep(id, e); ok {
			r.Tenant, r.Time = a.tenant, e.At
			_ = a.to.Append(r)
		}
	}
	return seq, nil
}

// argsBytes is how much of a call's arguments is kept; the thread has all of it.
const argsBytes = 400

// recordOfStep is what the audit log keeps of a thread's event; false: nothing.
func recordOfStep(id thread.ID, e thread.Event) (audit.Record, bool) {
	r := audit.Record{Who: "run " + string(e.Run), What: string(e.Body.Kind()), On: string(id), Detail: map[string]string{"run": string(e.Run)}}
	switch b := e.Body.(type) {
	case thread.RunStarted:
		r.Who = b.By
	case thread.RunEnded:
		r.Result, r.Detail["reason"] = string(b.State), b.Reason
	case thread.ModelCompleted:
		var calls []string
		for _, c := range b.Message.Calls() {
			calls = append(calls, c.Name+" "+c.ID+" "+string(c.Args[:min(len(c.Args), argsBytes)]))
		}
		r.Result, r.Detail["model"], r.Detail["calls"] = string(b.Stop), b.Model, strings.Join(calls, "\n")
	case thread.ToolStarted:
		r.Detail["tool"], r.Detail["call"], r.Detail["sandbox"] = b.Tool, b.Call, b.Machine
		r.Detail["args"] = string(b.Args[:min(len(b.Args), argsBytes)])
	case thread.ToolCompleted:
		r.Result, r.Detail["tool"], r.Detail["call"], r.Detail["revision"] = "done", b.Tool, b.Call, b.Revision
		if b.Failed {
			r.Result = "failed"
		}
		r.Detail["code"] = b.Code
	case thread.ApprovalAsked:
		r.Detail["tool"], r.Detail["call"], r.Detail["reason"] = b.Tool, b.Call, b.Reason
	case thread.ApprovalDecided:
		r.Who, r.Result, r.Detail["call"] = b.By, string(b.Decision), b.Call
	case thread.CheckStarted:
		r.Detail["sandbox"] = b.Machine
	case thread.CheckEnded:
		r.Result = map[bool]string{true: "passed", false: "failed"}[b.Passed]
	case thread.Rewound:
		r.Who, r.Detail["to"] = b.By, strconv.FormatUint(b.To, 10)
	case thread.CancelAsked:
		r.Who, r.Detail["reason"] = b.By, b.Reason
	case thread.BudgetChanged:
		r.Who = b.By
	case thread.PolicyChanged:
		r.Who, r.Detail["rules"] = b.By, string(b.Rules)
	case thread.Bound:
		r.Detail["sandbox"], r.Detail["why"] = b.Machine, b.Why
	default:
		return r, false
	}
	if r.Who == "" {
		r.Who = "skete"
	}
	return r, true
}
