package runs

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/thread"
)

func (s *service) registerDecisions(t *route.Table) {
	const tag = "approvals"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/runs/{id}/approvals", Scope: key.RunsRead, ID: "list-run-approvals", Tag: tag,
		Summary: "List what waits for a person in a run and its sub-agents",
	}, s.runApprovals)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/approvals", Scope: key.RunsRead, ID: "list-approvals", Tag: tag,
		Summary: "List all that waits for a person",
	}, s.allApprovals)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/runs/{id}/decisions", Scope: key.RunsWrite, ID: "decide", Tag: tag,
		Summary: "Answer approvals; each is answered for itself",
	}, s.decide)
}

type approvalsOut struct{ Body api.ApprovalList }

func approvals(list []runs.Approval, err error) (*approvalsOut, error) {
	if err != nil {
		return nil, err
	}
	out := api.ApprovalList{Items: make([]api.Approval, len(list))}
	for i, a := range list {
		out.Items[i] = approvalView(a)
	}
	return &approvalsOut{out}, nil
}

func (s *service) runApprovals(ctx context.Context, in *RunPath) (*approvalsOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return approvals(f.Approvals(ctx, f.tenant, f.run.ID))
}

func (s *service) allApprovals(ctx context.Context, _ *struct{}) (*approvalsOut, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	return approvals(k.Approvals(ctx, tenant, ""))
}

type decideIn struct {
	RunPath
	Body api.DecideList
}

type decidedOut struct{ Body api.DecidedList }

// decide answers each decision for itself: that another client decided one call
// meanwhile does not hold up the others.
func (s *service) decide(ctx context.Context, in *decideIn) (*decidedOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &decidedOut{api.DecidedList{Items: make([]api.Decided, len(in.Body.Decisions))}}
	for i, d := range in.Body.Decisions {
		done := api.Decided{Call: d.Call, Thread: d.Thread}
		one, err := decisionOf(d, f.run.Thread)
		if err == nil {
			one.By = by(ctx)
			err = f.Decide(ctx, f.tenant, f.run.ID, []runs.Decide{one})
		}
		if done.OK = err == nil; !done.OK {
			done.Problem = &problem.Of(err).Problem
		}
		out.Body.Items[i] = done
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// decisionOf checks the form of a decision: what belongs to another kind is a
// mistake that must not be guessed about.
func decisionOf(d api.Decide, run thread.ID) (runs.Decide, error) {
	one := runs.Decide{Call: d.Call, Decision: thread.Decision(d.Decision), Args: d.Args, Text: d.Text, Always: d.Always, Shown: d.ArgsHash}
	if !thread.IsCallID(d.Call) {
		return one, errs.New(errs.Invalid, "%.80q is not the id of a call", d.Call)
	}
	if d.Thread != "" {
		id, err := thread.ParseID(d.Thread)
		if err != nil {
			return one, err
		}
		if id.Root() != run.Root() {
			return one, errs.New(errs.NotFound, "the thread %s is none of this run", id)
		}
		one.Thread = id
	}
	edit := one.Decision == thread.Edit
	var object map[string]json.RawMessage
	if edit && (json.Unmarshal(d.Args, &object) != nil || object == nil) {
		return one, errs.New(errs.Invalid, "an edit needs args: a JSON object")
	}
	if !edit && len(d.Args) > 0 {
		return one, errs.New(errs.Invalid, "only an edit takes args")
	}
	if d.Text != "" && one.Decision != thread.Reject && one.Decision != thread.Respond {
		return one, errs.New(errs.Invalid, "only reject and respond take a text")
	}
	if one.Decision == thread.Respond && d.Text == "" {
		return one, errs.New(errs.Invalid, "a response needs its text: it becomes the result of the call")
	}
	if d.Always && one.Decision != thread.Approve {
		return one, errs.New(errs.Invalid, "only an approval can hold for always")
	}
	return one, nil
}
