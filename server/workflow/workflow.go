// Package workflow serves workflows: their definitions, and their runs.
//
//	workflow.Register(table, workflow.Config{Workflows: runner})
//
// Everything happens within the caller's tenant: what is another's looks like what does not
// exist. Without Workflows the routes are there and answer Unsupported. All handlers are safe
// for concurrent use.
package workflow

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/thread"
)

// Workflows is what is needed of *runner.Runner.
type Workflows interface {
	Put(ctx context.Context, tenant, file string, text []byte, by string) (runner.Definition, error)
	Definitions(ctx context.Context, tenant string) ([]runner.Definition, error)
	Text(ctx context.Context, tenant, name, version string) (file string, text []byte, err error)
	Remove(ctx context.Context, tenant, name string) error
	Plan(ctx context.Context, tenant string, s runner.Start) (cowork.Workflow, []runner.Planned, error)
	Start(ctx context.Context, tenant string, s runner.Start) (runner.Run, error)
	Get(ctx context.Context, tenant string, id runner.ID) (runner.Run, error)
	List(ctx context.Context, tenant, after string, most int) (list []runner.Run, more bool, err error)
	State(ctx context.Context, tenant string, id runner.ID) (runner.Run, *cowork.State, error)
	// Wait returns when the log has an event behind seq, or ctx ends.
	Wait(ctx context.Context, tenant string, id runner.ID, seq uint64) error
	NodeRun(ctx context.Context, tenant string, id runner.ID, a thread.Attempt) (runner.Working, bool)
	Cancel(ctx context.Context, tenant string, id runner.ID, by, reason string) (runner.Run, error)
	Answer(ctx context.Context, tenant string, id runner.ID, node, choice, text, by string) (runner.Run, error)
}

// Config of the routes.
type Config struct {
	Workflows Workflows // nil = this server runs none
}

type service struct{ w Workflows }

const (
	bodyMax  = 4 << 20          // a definition and an input, as JSON
	startMax = bodyMax + 12<<20 // and files, as base64
	pageSize = 50
	waitMax  = 30 * time.Second
)

// Register adds the routes to the table.
func Register(t *route.Table, c Config) {
	s := &service{c.Workflows}
	const tag, base, one, run = "workflows", "/v1/workflows", "/v1/workflows/{name}", "/v1/workflow-runs"
	op := func(method, path string, scope key.Scope, id, summary string) route.Operation {
		return route.Operation{Method: method, Path: path, Scope: scope, ID: id, Tag: tag, Summary: summary}
	}
	large := func(o route.Operation, bytesMax int64, status int) route.Operation {
		o.BodyBytesMax, o.Status = bytesMax, status
		return o
	}
	route.JSON(t, large(op(http.MethodPost, base, key.RunsWrite, "put-workflow", "Keep a workflow, or a new version of it"), bodyMax, 0), s.put)
	route.JSON(t, op(http.MethodGet, base, key.RunsRead, "list-workflows", "List the workflows that can be run by name"), s.definitions)
	route.JSON(t, op(http.MethodGet, one, key.RunsRead, "get-workflow", "Get a workflow with its text"), s.definition)
	route.JSON(t, op(http.MethodDelete, one, key.RunsWrite, "remove-workflow", "Forget a workflow; its runs keep what they began with"), s.remove)
	route.JSON(t, large(op(http.MethodPost, "/v1/workflow-plans", key.RunsRead, "plan-workflow", "Say what a run of a workflow would start, and start nothing"), startMax, 0), s.plan)
	route.JSON(t, large(op(http.MethodPost, run, key.RunsWrite, "start-workflow", "Start a run of a workflow"), startMax, http.StatusCreated), s.start)
	route.JSON(t, op(http.MethodGet, run, key.RunsRead, "list-workflow-runs", "List runs of workflows, newest first"), s.list)
	route.JSON(t, op(http.MethodGet, run+"/{id}", key.RunsRead, "get-workflow-run", "Get a run of a workflow with what its nodes did"), s.get)
	route.JSON(t, op(http.MethodPost, run+"/{id}/cancel", key.RunsWrite, "cancel-workflow", "End a run of a workflow, and what is under way in it"), s.cancel)
	route.JSON(t, op(http.MethodPost, run+"/{id}/answer", key.RunsWrite, "answer-workflow", "Choose, where a node asks a person"), s.answer)
}

func (s *service) workflows(ctx context.Context) (Workflows, string, error) {
	if s.w == nil {
		return nil, "", errs.New(errs.Unsupported, "this server runs no workflows")
	}
	return s.w, auth.From(ctx).Tenant, nil
}

// NamePath names a workflow. It is exported because the JSON layer looks only into exported
// embedded fields.
type NamePath struct {
	Name string `path:"name" maxLength:"64" doc:"of the workflow"`
}

// RunPath names a run of a workflow.
type RunPath struct {
	ID string `path:"id" maxLength:"64" doc:"of the run, wfr_…"`
}

type (
	putIn        struct{ Body api.PutWorkflow }
	workflowOut  struct{ Body api.Workflow }
	workflowsOut struct{ Body api.WorkflowList }
	runOut       struct{ Body api.WorkflowRun }
	runsOut      struct{ Body api.WorkflowRunPage }
	planIn       struct{ Body api.StartWorkflow }
	planOut      struct{ Body api.WorkflowPlan }
	definitionIn struct {
		NamePath
		Version string `query:"version" maxLength:"64" doc:"hash of a version, or the beginning of it; default the newest"`
	}
	startIn struct {
		IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same run; 1 to 128 printable ASCII characters"`
		Body           api.StartWorkflow
	}
	listIn struct {
		PageSize  int    `query:"page_size" minimum:"0" maximum:"1000" doc:"default 50"`
		PageToken string `query:"page_token" maxLength:"512"`
	}
	getIn struct {
		RunPath
		After  uint64 `query:"after" doc:"answer when there is an event behind the one of this number, or wait_ms are over"`
		WaitMS int    `query:"wait_ms" minimum:"0" maximum:"30000" doc:"with after; default 0"`
	}
	cancelIn struct {
		RunPath
		Body *api.CancelRun
	}
	answerIn struct {
		RunPath
		Body api.AnswerWorkflow
	}
)

func (s *service) put(ctx context.Context, in *putIn) (*workflowOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	file := cmp.Or(in.Body.File, "workflow.yaml")
	d, err := w.Put(ctx, tenant, file, []byte(in.Body.Text), auth.From(ctx).Owner)
	if err != nil {
		return nil, explained(err, file, in.Body.Text)
	}
	return &workflowOut{definitionView(d)}, nil
}

// problemTextMax bounds what is said of one mistake: it may repeat what is written there.
const problemTextMax = 500

// explained says of each mistake in a text where it is, so that an editor can show it there.
func explained(err error, file, text string) error {
	if text == "" || !errs.Is(err, errs.Invalid) {
		return err
	}
	_, list := cowork.Check(file, []byte(text))
	if len(list) == 0 {
		return err
	}
	p := *problem.Of(err)
	p.Errors = mistakes(list)
	return &p
}

func mistakes(list []cowork.Problem) []api.FieldError {
	var out []api.FieldError
	for _, x := range list {
		where := strings.TrimSpace(fmt.Sprintf("%d:%d %s", x.Line, x.Column, x.Field))
		out = append(out, api.FieldError{Location: clip.Line(where, problemTextMax), Message: clip.Line(x.Text, problemTextMax)})
	}
	return out
}

// describe says what stands in the text of a definition. One of the server's folder can have
// mistakes; it is shown with them, so that they can be mended.
func describe(v *api.Workflow, file string, text []byte) error {
	w, list := cowork.Check(file, text)
	if v.Errors = mistakes(list); v.Errors != nil {
		return nil
	}
	v.Description, v.Topology = w.Description, w.Topology
	graph := graphView(w)
	v.Graph = &graph
	if w.Input == nil {
		return nil
	}
	var err error
	v.Input, err = json.Marshal(w.Input)
	return err
}

func definitionView(d runner.Definition) api.Workflow {
	v := api.Workflow{Name: d.Name, Folder: d.Folder, Versions: []api.WorkflowVersion{}}
	for _, x := range d.Versions {
		one := api.WorkflowVersion{Hash: x.Hash, Version: x.Version, File: x.File, By: x.By}
		if !x.At.IsZero() {
			one.At = &x.At
		}
		v.Versions = append(v.Versions, one)
	}
	return v
}

func (s *service) definitions(ctx context.Context, _ *struct{}) (*workflowsOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	list, err := w.Definitions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := &workflowsOut{api.WorkflowList{Items: []api.Workflow{}}}
	for _, d := range list {
		out.Body.Items = append(out.Body.Items, definitionView(d))
	}
	return out, nil
}

func (s *service) definition(ctx context.Context, in *definitionIn) (*workflowOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	file, text, err := w.Text(ctx, tenant, in.Name, in.Version)
	if err != nil {
		return nil, err
	}
	out := &workflowOut{api.Workflow{Name: in.Name, Versions: []api.WorkflowVersion{{File: file, Hash: runner.HashOf(text)}}}}
	list, err := w.Definitions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if d.Name == in.Name {
			out.Body = definitionView(d)
		}
	}
	out.Body.Text = string(text)
	return out, describe(&out.Body, file, text)
}

func (s *service) remove(ctx context.Context, in *NamePath) (*struct{}, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	return nil, w.Remove(ctx, tenant, in.Name)
}

func startOf(ctx context.Context, b api.StartWorkflow) (runner.Start, error) {
	if (b.Workflow == "") == (b.Text == "") {
		return runner.Start{}, errs.New(errs.Invalid, "one of workflow and text says what is to be run")
	}
	who := auth.From(ctx)
	start := runner.Start{
		Name: b.Workflow, Version: b.Version, File: b.File, Text: []byte(b.Text), Input: b.Input, By: who.Owner,
		Operator: who.Local || who.Scopes.Allow(key.Admin),
	}
	for _, f := range b.Files {
		start.Files = append(start.Files, runner.File{Path: f.Path, Content: f.Content})
	}
	return start, nil
}

func (s *service) plan(ctx context.Context, in *planIn) (*planOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	start, err := startOf(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	d, nodes, err := w.Plan(ctx, tenant, start)
	if err != nil {
		return nil, explained(err, cmp.Or(in.Body.File, "workflow.yaml"), in.Body.Text)
	}
	out := &planOut{api.WorkflowPlan{Workflow: d.Name, Version: d.Version, Topology: d.Topology, Starts: d.Graph.Starts, OK: true, Nodes: []api.WorkflowPart{}, Graph: graphView(d)}}
	for _, n := range nodes {
		out.Body.OK = out.Body.OK && n.Problem == ""
		out.Body.Nodes = append(out.Body.Nodes, api.WorkflowPart{Node: n.Node, Agent: n.Agent, Human: n.Human, Model: n.Model, Sandbox: n.Sandbox, Tools: n.Tools, Problem: n.Problem})
	}
	return out, nil
}

func (s *service) start(ctx context.Context, in *startIn) (*runOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	start, err := startOf(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	start.Key = in.IdempotencyKey
	return shown(w.Start(ctx, tenant, start))
}

func shown(run runner.Run, err error) (*runOut, error) {
	if err != nil {
		return nil, err
	}
	return &runOut{runView(run)}, nil
}

// checkKey refuses what is no idempotency key.
func checkKey(k string) error {
	for _, c := range []byte(k) {
		if len(k) > 128 || c <= ' ' || c > '~' {
			return errs.New(errs.Invalid, "Idempotency-Key: 1 to 128 printable ASCII characters without spaces")
		}
	}
	return nil
}

func (s *service) list(ctx context.Context, in *listIn) (*runsOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.PageToken)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the page token is none of ours")
	}
	list, more, err := w.List(ctx, tenant, string(after), cmp.Or(in.PageSize, pageSize))
	if err != nil {
		return nil, err
	}
	out := &runsOut{api.WorkflowRunPage{Items: []api.WorkflowRun{}}}
	for _, run := range list {
		out.Body.Items = append(out.Body.Items, runView(run))
	}
	if more {
		out.Body.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(list[len(list)-1].ID))
	}
	return out, nil
}

func (s *service) get(ctx context.Context, in *getIn) (*runOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	id, err := runner.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if in.WaitMS > 0 {
		if err := waited(ctx, w, tenant, id, in.After, time.Duration(in.WaitMS)*time.Millisecond); err != nil {
			return nil, err
		}
	}
	run, st, err := w.State(ctx, tenant, id)
	if errs.Is(err, errs.NotFound) && run.ID != "" { // it did not come to its first event
		return &runOut{runView(run)}, nil
	}
	if err != nil {
		return nil, err
	}
	running := func(a *cowork.Attempt) runner.Working {
		now, _ := w.NodeRun(ctx, tenant, run.ID, a.Attempt)
		return now
	}
	return &runOut{wholeView(run, st, running)}, nil
}

func waited(ctx context.Context, w Workflows, tenant string, id runner.ID, after uint64, most time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, min(most, waitMax))
	defer cancel()
	if err := w.Wait(bounded, tenant, id, after); err != nil && bounded.Err() == nil {
		return err
	}
	return ctx.Err()
}

func (s *service) cancel(ctx context.Context, in *cancelIn) (*runOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	return shown(w.Cancel(ctx, tenant, runner.ID(in.ID), auth.From(ctx).Owner, reason))
}

func (s *service) answer(ctx context.Context, in *answerIn) (*runOut, error) {
	w, tenant, err := s.workflows(ctx)
	if err != nil {
		return nil, err
	}
	b := in.Body
	return shown(w.Answer(ctx, tenant, runner.ID(in.ID), b.Node, b.Choice, b.Text, auth.From(ctx).Owner))
}

func runView(r runner.Run) api.WorkflowRun {
	v := api.WorkflowRun{
		ID: string(r.ID), Workflow: r.Workflow, Version: r.Version, Hash: r.Hash, By: r.By, State: string(r.State), Reason: r.Reason, Text: r.Text, CreatedAt: r.Created,
	}
	if !r.Ended.IsZero() {
		v.EndedAt = &r.Ended
	}
	return v
}

func wholeView(r runner.Run, s *cowork.State, running func(*cowork.Attempt) runner.Working) api.WorkflowRun {
	v := runView(r)
	v.Seq, v.Sandbox = s.Seq, s.Machine
	v.Steps, v.Tokens, v.CostUSD = s.Spent.Steps, s.Spent.Usage.Total(), s.Spent.CostUSD
	if e := s.Ended; e != nil {
		v.State, v.Reason, v.Text, v.Result, v.EndedAt = string(e.State), e.Reason, e.Text, json.RawMessage(e.Result), &s.EndedAt
	}
	for _, a := range s.Attempts {
		v.Nodes = append(v.Nodes, nodeView(s, a, running))
	}
	for _, n := range s.View().Nodes {
		if n.Status == "" && v.EndedAt == nil {
			v.Open = append(v.Open, n.Name)
		}
		if n.Status == cowork.Skipped {
			v.Skipped = append(v.Skipped, n.Name)
		}
	}
	graph := graphView(s.Workflow)
	v.Graph = &graph
	return v
}

// graphView shows what a definition was compiled to.
func graphView(w cowork.Workflow) api.WorkflowGraph {
	out := api.WorkflowGraph{Vertices: []api.WorkflowVertex{}, Edges: []api.WorkflowEdge{}}
	files := map[[2]string]int{}
	for _, x := range w.Graph.Vertices {
		v := api.WorkflowVertex{Node: x.Name, Description: x.Description, Human: x.Human != nil, Meeting: x.Meeting, Each: x.Each != nil}
		if !v.Human && !v.Meeting {
			v.Agent, v.Sandbox = cmp.Or(x.Agent, inline), cmp.Or(x.Sandbox, cowork.SandboxShared)
		}
		for _, r := range x.Input {
			if r.Artifact != "" {
				files[[2]string{r.Node, x.Name}]++
			}
		}
		out.Vertices = append(out.Vertices, v)
	}
	for _, e := range w.Graph.Edges {
		out.Edges = append(out.Edges, api.WorkflowEdge{From: e.From, To: e.To, When: e.When.String(), Artifacts: files[[2]string{e.From, e.To}]})
	}
	for _, l := range w.Graph.Loops {
		out.Edges = append(out.Edges, api.WorkflowEdge{From: l.From, To: l.To, When: l.When.String(), Loop: true, Max: l.Max})
	}
	return out
}

// inline is what an agent is called that is of a workflow alone.
const inline = "inline"

func nodeView(s *cowork.State, a *cowork.Attempt, running func(*cowork.Attempt) runner.Working) api.WorkflowNode {
	v := api.WorkflowNode{
		Node: a.Node, Label: cowork.Label(a.Attempt), Iteration: a.Iteration, Item: a.Item, Attempt: a.Number, State: string(thread.RunRunning), StartedAt: a.At,
		Thread: string(a.Thread),
	}
	of := s.Vertex(a.Attempt)
	if h := of.Human; h != nil {
		v.State, v.Ask, v.Choices = "waiting", h.Ask, h.All()
	} else {
		v.Agent = cmp.Or(of.Agent, inline)
	}
	e := a.Ended
	if e == nil {
		if of.Human == nil {
			now := running(a)
			v.Run, v.Model, v.Sandbox = string(now.Run), now.Model, now.Sandbox
		}
		return v
	}
	v.Model, v.Sandbox = e.Model, e.Machine
	if of.Sandbox != cowork.SandboxOwn && v.Sandbox == "" && e.Run != "" && s.Workflow.Machine["none"] != true {
		v.Sandbox = s.Machine
	}
	v.State, v.Reason, v.Text, v.Run, v.EndedAt = string(e.State), e.Reason, e.Text, string(e.Run), &a.EndedAt
	v.Thread = cmp.Or(string(e.Thread), v.Thread)
	v.Steps, v.Tokens, v.CostUSD = e.Spent.Steps, e.Spent.Usage.Total(), e.Spent.CostUSD
	if a.Answered != nil {
		v.Choice, v.Text, v.By = a.Answered.Choice, a.Answered.Text, a.Answered.By
	}
	for _, f := range e.Artifacts {
		v.Artifacts = append(v.Artifacts, f.Path)
	}
	for _, c := range e.Conflicts {
		v.Conflicts = append(v.Conflicts, c.Path+": also by "+cowork.Label(c.With))
	}
	return v
}
