package runs

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/picture"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/thread"
)

// Bounds of what a caller may write into a run's record.
const (
	labelsMax         = 32
	labelBytesMax     = 256
	idempotencyLenMax = 128
	wallMSMax         = int64(365 * 24 * time.Hour / time.Millisecond)
	schemaBytesMax    = 64 << 10
	imagesMax         = 8
	imagesBytesMax    = 20 << 20                   // of all together
	imagesBodyMax     = imagesBytesMax*4/3 + 2<<20 // as base64, with the rest of the body
)

type runOut struct{ Body api.Run }

func shown(run runs.Run, err error) (*runOut, error) {
	if err != nil {
		return nil, err
	}
	return &runOut{View(run)}, nil
}

type startRunIn struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same run; 1 to 128 printable ASCII characters"`
	Body           api.StartRun
}

func (s *service) startRun(ctx context.Context, in *startRunIn) (*runOut, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	start, err := startOf(in.Body)
	if err != nil {
		return nil, err
	}
	if start.Sandbox, err = s.sandbox(ctx, start.Sandbox); err != nil {
		return nil, err
	}
	start.Key, start.By, start.Operator = in.IdempotencyKey, by(ctx), operator(ctx)
	return shown(k.Start(ctx, tenant, start))
}

// sandbox is the id of a sandbox that a run is to work in; "" = one of its own.
func (s *service) sandbox(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	id, err := s.sandboxOf(ctx, name)
	if err == nil {
		_, err = sandbox.ParseID(id)
	}
	return id, err
}

func checkKey(k string) error {
	if len(k) > idempotencyLenMax || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errs.New(errs.Invalid, "an idempotency key has 1 to %d printable ASCII characters", idempotencyLenMax)
	}
	return nil
}

// startOf checks what the JSON layer does not know; the supervisor knows the rest.
func startOf(b api.StartRun) (runs.Start, error) {
	s := runs.Start{
		Agent: b.Agent, Input: []llm.Block{llm.Text(b.Task)}, Title: b.Title, Labels: b.Labels, Model: b.Model,
		Schema: b.Schema, Sandbox: b.Sandbox, Spec: b.Spec, Keep: b.Keep, Planning: b.Plan, InSandbox: b.InSandbox,
	}
	if b.Check != nil {
		s.EndCheck = &thread.RunCheck{Command: b.Check.Command, Rubric: b.Check.Rubric}
	}
	images, err := imagesOf(b.Images)
	if err != nil {
		return s, err
	}
	s.Input = append(s.Input, images...)
	if s.Budget, err = budgetOf(b.Budget); err != nil {
		return s, err
	}
	if err := checkStart(b); err != nil {
		return s, err
	}
	if b.Thread != "" {
		if s.Thread, err = thread.ParseID(b.Thread); err != nil {
			return s, err
		}
	}
	if len(b.Definition) > 0 {
		s.Inline, err = inline(b.Definition)
	}
	return s, err
}

// imagesOf makes blocks of images that a caller sent.
func imagesOf(images []api.Image) ([]llm.Block, error) {
	if len(images) > imagesMax {
		return nil, errs.New(errs.Invalid, "images: at most %d", imagesMax)
	}
	total := 0
	var blocks []llm.Block
	for i, image := range images {
		mime, err := picture.Check(image.Data)
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "images[%d]: %s", i, errs.Public(err)).WithHint("%s", errs.Hint(err))
		}
		total += len(image.Data)
		blocks = append(blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: mime, Data: image.Data}})
	}
	if total > imagesBytesMax {
		return nil, errs.New(errs.Invalid, "images: together they have %d bytes, at most %d are possible", total, imagesBytesMax)
	}
	return blocks, nil
}

func checkStart(b api.StartRun) error {
	if strings.TrimSpace(b.Task) == "" {
		return errs.New(errs.Invalid, "task: there is nothing to do")
	}
	if b.Thread != "" && (b.Agent != "" || len(b.Definition) > 0) {
		return errs.New(errs.Invalid, "a thread goes on with the agent that it began with: leave agent and definition out")
	}
	if b.Thread != "" && b.InSandbox {
		return errs.New(errs.Invalid, "in_sandbox: a thread goes on where it began")
	}
	if len(b.Definition) > 0 && b.Agent != "" {
		return errs.New(errs.Invalid, "one of agent and definition, not both")
	}
	if b.Sandbox != "" && len(b.Spec) > 0 {
		return errs.New(errs.Invalid, "an existing sandbox takes no spec")
	}
	if b.Sandbox != "" && b.Keep {
		return errs.New(errs.Invalid, "keep is about the run's own sandbox: nothing is done to an existing one")
	}
	if len(b.Schema) > schemaBytesMax {
		return errs.New(errs.Invalid, "schema: at most %d bytes", schemaBytesMax)
	}
	return checkLabels(b.Labels)
}

func checkLabels(labels map[string]string) error {
	if len(labels) > labelsMax {
		return errs.New(errs.Invalid, "labels: at most %d", labelsMax)
	}
	for k, v := range labels {
		if k == "" || len(k) > labelBytesMax || len(v) > labelBytesMax || strings.ContainsAny(k+v, "\x00\n") {
			return errs.New(errs.Invalid, "labels: a name has 1 to %d bytes, a value at most as many, neither a line break; %.40q does not fit", labelBytesMax, k)
		}
	}
	return nil
}

// inline reads a definition that a caller sent. What runs on the host may not
// come from a caller.
func inline(data json.RawMessage) (*definition.Definition, error) {
	d, err := definition.Parse("definition.yaml", data, nil) // JSON is YAML
	if err != nil {
		return nil, err
	}
	for _, h := range d.Hooks {
		if h.Where == "host" {
			return nil, errs.New(errs.Denied, "hooks of a definition that is sent along run in the sandbox, not on the host").
				WithHint("put the definition into the server's own folder of agents")
		}
	}
	return &d, nil
}

func budgetOf(b api.Budget) (thread.Budget, error) {
	if b.Steps < 0 || b.Tokens < 0 || b.CostUSD < 0 || math.IsInf(b.CostUSD, 0) || b.WallMS < 0 || b.WallMS > wallMSMax {
		return thread.Budget{}, errs.New(errs.Invalid, "budget: values are not negative, wall_ms is at most %d", wallMSMax)
	}
	return thread.Budget{Steps: b.Steps, Tokens: b.Tokens, CostUSD: b.CostUSD, Wall: time.Duration(b.WallMS) * time.Millisecond}, nil
}

type listRunsIn struct {
	State     string   `query:"state" doc:"one or more states, separated by commas; default all"`
	Thread    string   `query:"thread" doc:"of this thread alone"`
	Agent     string   `query:"agent" maxLength:"64"`
	Label     []string `query:"label,explode" doc:"k=v, may be repeated: all must hold"`
	Subagents bool     `query:"subagents" doc:"those of sub-agents too"`
	PageSize  int      `query:"page_size" minimum:"0" maximum:"1000" doc:"default 50"`
	PageToken string   `query:"page_token" maxLength:"512"`
}

type listRunsOut struct{ Body api.RunPage }

func (s *service) listRuns(ctx context.Context, in *listRunsIn) (*listRunsOut, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	f := runs.Filter{Agent: in.Agent, Subagents: in.Subagents, PageSize: in.PageSize, PageToken: in.PageToken}
	if f.States, err = statesOf(in.State); err != nil {
		return nil, err
	}
	if in.Thread != "" {
		if f.Thread, err = thread.ParseID(in.Thread); err != nil {
			return nil, err
		}
		f.Subagents = f.Subagents || f.Thread.Depth() > 0
	}
	if f.Labels, err = labelsOf(in.Label); err != nil {
		return nil, err
	}
	page, err := k.List(ctx, tenant, f)
	if err != nil {
		return nil, err
	}
	out := api.RunPage{Items: make([]api.Run, len(page.Runs)), NextPageToken: page.Next}
	for i, run := range page.Runs {
		out.Items[i] = View(run)
	}
	return &listRunsOut{out}, nil
}

func labelsOf(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	labels := map[string]string{}
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" || len(pairs) > labelsMax {
			return nil, errs.New(errs.Invalid, "label %.40q is not of the form name=value", pair)
		}
		labels[k] = v
	}
	return labels, nil
}

var states = []thread.RunState{
	thread.RunPending, thread.RunRunning, thread.RunInterrupted, thread.RunSucceeded, thread.RunFailed, thread.RunCancelled, thread.RunTimedOut,
}

func statesOf(text string) ([]thread.RunState, error) {
	if text == "" {
		return nil, nil
	}
	var list []thread.RunState
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(states, thread.RunState(name)) || len(list) == len(states) {
			return nil, errs.New(errs.Invalid, "%.40q is not a state", name).
				WithHint("pending, running, interrupted, succeeded, failed, cancelled, timed_out")
		}
		list = append(list, thread.RunState(name))
	}
	return list, nil
}

func (s *service) getRun(ctx context.Context, in *RunPath) (*runOut, error) {
	f, err := s.find(ctx, in.ID)
	return shown(f.run, err)
}

type sendRunIn struct {
	RunPath
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key is the same message; 1 to 128 printable ASCII characters"`
	Body           api.SendInput
}

type sentOut struct{ Body api.Sent }

// sendRun queues a message. A run that ends in the same moment may refuse it;
// then it begins the next run.
func (s *service) sendRun(ctx context.Context, in *sendRunIn) (*sentOut, error) {
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Body.Text) == "" {
		return nil, errs.New(errs.Invalid, "text: the message is empty")
	}
	images, err := imagesOf(in.Body.Images)
	if err != nil {
		return nil, err
	}
	blocks := append([]llm.Block{llm.Text(in.Body.Text)}, images...)
	if !f.run.State.Final() {
		seq, err := f.Send(ctx, f.tenant, f.run.ID, thread.Input{ID: in.IdempotencyKey, From: "user", Name: auth.From(ctx).Who(), By: by(ctx), Blocks: blocks})
		if err == nil {
			return &sentOut{api.Sent{Run: string(f.run.ID), Seq: seq}}, nil
		}
		if !errs.Is(err, errs.Conflict) {
			return nil, err
		}
		now, gerr := f.Get(ctx, f.tenant, f.run.ID)
		if gerr != nil || !now.State.Final() {
			return nil, err
		}
	}
	run, err := f.Start(ctx, f.tenant, runs.Start{Thread: f.run.Thread, Input: blocks, Key: in.IdempotencyKey, By: by(ctx)})
	if err != nil {
		return nil, err
	}
	return &sentOut{api.Sent{Run: string(run.ID), New: true}}, nil
}

type cancelRunIn struct {
	RunPath
	Body *api.CancelRun
}

func (s *service) cancelRun(ctx context.Context, in *cancelRunIn) (*runOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	return shown(f.Cancel(ctx, f.tenant, f.run.ID, by(ctx), reason))
}

type compactRunIn struct {
	RunPath
	Body *api.CompactRun
}

func (s *service) compactRun(ctx context.Context, in *compactRunIn) (*runOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	focus := ""
	if in.Body != nil {
		focus = in.Body.Focus
	}
	return shown(f.Compact(ctx, f.tenant, f.run.ID, focus, by(ctx)))
}

type resumeRunIn struct {
	RunPath
	Body *api.ResumeRun
}

func (s *service) resumeRun(ctx context.Context, in *resumeRunIn) (*runOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	budget := f.run.Budget
	if in.Body != nil {
		if budget, err = extended(f.run, *in.Body); err != nil {
			return nil, err
		}
	}
	return shown(f.Resume(ctx, f.tenant, f.run.ID, budget, by(ctx)))
}

// extended is the budget with which a run goes on. What is added counts from
// what was allowed or was used, whichever is more: so it really is room.
func extended(run runs.Run, r api.ResumeRun) (thread.Budget, error) {
	set, err := budgetOf(r.Budget)
	if err != nil {
		return set, err
	}
	add, err := budgetOf(r.Add)
	if err != nil {
		return add, err
	}
	b := run.Budget
	b.Steps = extend(b.Steps, set.Steps, run.Steps, add.Steps)
	b.Tokens = extend(b.Tokens, set.Tokens, run.Usage.Total(), add.Tokens)
	b.CostUSD = extend(b.CostUSD, set.CostUSD, run.CostUSD, add.CostUSD)
	used := time.Duration(0)
	if !run.Ended.IsZero() {
		used = run.Ended.Sub(run.Created)
	}
	b.Wall = extend(b.Wall, set.Wall, used, add.Wall)
	return b, nil
}

func extend[T int | float64 | time.Duration](was, set, used, add T) T {
	if set > 0 {
		was = set
	}
	if add > 0 {
		return max(was, used) + add
	}
	return was
}

type forkRunIn struct {
	RunPath
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same run; 1 to 128 printable ASCII characters"`
	Body           api.ForkRun
}

func (s *service) forkRun(ctx context.Context, in *forkRunIn) (*runOut, error) {
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	start := runs.Start{Title: in.Body.Title, Model: in.Body.Model, Key: in.IdempotencyKey, By: by(ctx), Operator: operator(ctx), Keep: in.Body.Keep}
	if start.Budget, err = budgetOf(in.Body.Budget); err != nil {
		return nil, err
	}
	if in.Body.Task != "" {
		start.Input = []llm.Block{llm.Text(in.Body.Task)}
	}
	return shown(f.Fork(ctx, f.tenant, f.run.ID, in.Body.At, start))
}

type rewindRunIn struct {
	RunPath
	Body api.RewindRun
}

type rewindRunOut struct{ Body api.Rewound }

func (s *service) rewindRun(ctx context.Context, in *rewindRunIn) (*rewindRunOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	changed, err := f.Rewind(ctx, f.tenant, f.run.ID, in.Body.To, in.Body.Files, by(ctx))
	if err != nil {
		return nil, err
	}
	run, err := shown(f.Get(ctx, f.tenant, f.run.ID))
	if err != nil {
		return nil, err
	}
	out := &rewindRunOut{api.Rewound{Run: run.Body}}
	for _, c := range changed {
		v := api.PathChange{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Action: c.Action}
		if v.Path != c.Path {
			v.PathBytes = []byte(c.Path)
		}
		out.Body.Files = append(out.Body.Files, v)
	}
	return out, nil
}

type replayRunIn struct {
	RunPath
	Body *api.ReplayRun
}

func (s *service) replayRun(ctx context.Context, in *replayRunIn) (*runOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return shown(f.Replay(ctx, f.tenant, f.run.ID, in.Body != nil && in.Body.Keep, by(ctx)))
}

type compareRunsIn struct {
	RunPath
	With string `query:"with" required:"true" maxLength:"64" doc:"the other run"`
}

type comparisonOut struct{ Body api.Comparison }

func (s *service) compareRuns(ctx context.Context, in *compareRunsIn) (*comparisonOut, error) {
	f, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	with, err := thread.ParseRunID(in.With)
	if err != nil {
		return nil, err
	}
	report, err := f.Compare(ctx, f.tenant, f.run.ID, with)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(report)
	return &comparisonOut{api.Comparison{Report: data}}, err
}

type deleteThreadIn struct {
	ID string `path:"id" maxLength:"512" doc:"of the thread, thr_…"`
}

func (s *service) deleteThread(ctx context.Context, in *deleteThreadIn) (*struct{}, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	id, err := thread.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if id.Depth() > 0 {
		return nil, errs.New(errs.Invalid, "a sub-agent's thread goes with its root's").WithHint("delete %s", id.Root())
	}
	return nil, k.Delete(ctx, tenant, id)
}
