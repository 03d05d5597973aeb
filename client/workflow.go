package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// PutWorkflow keeps a workflow, or a new version of it.
func (c *Client) PutWorkflow(ctx context.Context, w api.PutWorkflow) (api.Workflow, error) {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/workflows", Repeatable: true}
	return transport.Fetch[api.Workflow](ctx, c.t, k.WithJSON(w))
}

// Workflows are those that can be run by name.
func (c *Client) Workflows(ctx context.Context) ([]api.Workflow, error) {
	l, err := transport.Fetch[api.WorkflowList](ctx, c.t, transport.Get("/v1/workflows", nil))
	return l.Items, err
}

// Workflow is one of them with its text; version "" = the newest.
func (c *Client) Workflow(ctx context.Context, name, version string) (api.Workflow, error) {
	q := url.Values{}
	if version != "" {
		q.Set("version", version)
	}
	return transport.Fetch[api.Workflow](ctx, c.t, transport.Get("/v1/workflows/"+url.PathEscape(name), q))
}

// RemoveWorkflow forgets a workflow; its runs keep what they began with.
func (c *Client) RemoveWorkflow(ctx context.Context, name string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/workflows/" + url.PathEscape(name)})
}

// PlanWorkflow says what a start would do, and starts nothing.
func (c *Client) PlanWorkflow(ctx context.Context, s api.StartWorkflow) (api.WorkflowPlan, error) {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/workflow-plans", Repeatable: true}
	return transport.Fetch[api.WorkflowPlan](ctx, c.t, k.WithJSON(s))
}

// StartWorkflow starts a run and returns at once. A repeated attempt after a broken connection
// never starts a second one.
func (c *Client) StartWorkflow(ctx context.Context, s api.StartWorkflow) (api.WorkflowRun, error) {
	return transport.Fetch[api.WorkflowRun](ctx, c.t, keyed("/v1/workflow-runs").WithJSON(s))
}

// WorkflowRuns goes through all runs of workflows, the newest first. It ends after the first
// error.
func (c *Client) WorkflowRuns(ctx context.Context) iter.Seq2[api.WorkflowRun, error] {
	return pages(ctx, url.Values{"page_size": {strconv.Itoa(100)}}, func(q url.Values) ([]api.WorkflowRun, string, error) {
		p, err := transport.Fetch[api.WorkflowRunPage](ctx, c.t, transport.Get("/v1/workflow-runs", q))
		return p.Items, p.NextPageToken, err
	})
}

// WorkflowRun is a run with what its nodes did. after and waitMS let it wait for news: for an
// event behind the one of that number, 0 = it answers at once.
func (c *Client) WorkflowRun(ctx context.Context, id string, after uint64, waitMS int) (api.WorkflowRun, error) {
	q := url.Values{}
	if waitMS > 0 {
		q.Set("after", strconv.FormatUint(after, 10))
		q.Set("wait_ms", strconv.Itoa(waitMS))
	}
	return transport.Fetch[api.WorkflowRun](ctx, c.t, transport.Get("/v1/workflow-runs/"+url.PathEscape(id), q))
}

// CancelWorkflow ends a run, and what is under way in it.
func (c *Client) CancelWorkflow(ctx context.Context, id, reason string) (api.WorkflowRun, error) {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/workflow-runs/" + url.PathEscape(id) + "/cancel", Repeatable: true}
	return transport.Fetch[api.WorkflowRun](ctx, c.t, k.WithJSON(api.CancelRun{Reason: reason}))
}

// AnswerWorkflow chooses, where a node asks a person.
func (c *Client) AnswerWorkflow(ctx context.Context, id string, a api.AnswerWorkflow) (api.WorkflowRun, error) {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/workflow-runs/" + url.PathEscape(id) + "/answer"}
	return transport.Fetch[api.WorkflowRun](ctx, c.t, k.WithJSON(a))
}
