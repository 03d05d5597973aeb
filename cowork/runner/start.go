package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// inputBytesMax bounds what a run is started with.
const inputBytesMax = 1 << 20

// Of the files that a run is started with.
const (
	filesMax      = 100
	pathMax       = 255
	filesBytesMax = 8 << 20
)

// Start asks for a run of a workflow: by the name of a definition that the server has, or by
// the text of one.
type Start struct {
	Name     string
	Version  string // of a stored one: its hash; "" = the newest
	File     string // what Text is called
	Text     []byte
	Input    json.RawMessage // an object
	Files    []File          // that nodes find in their workspace
	Key      string          // the same key is the same run
	By       string
	Operator bool
}

// File is one that a run is started with.
type File struct {
	Path    string // beneath the workspace
	Content []byte
}

// Planned is what would be started for a node.
type Planned struct {
	Node, Agent, Model, Sandbox string
	Human                       bool
	Tools                       []string
	Problem                     string // why it could not be started
}

// prepared is a start that was found to be good.
type prepared struct {
	w     cowork.Workflow
	file  string
	text  []byte
	input json.RawMessage
	files []File
}

// prepare finds the definition, and checks the input.
func (r *Runner) prepare(ctx context.Context, tenant string, s Start) (p prepared, err error) {
	p.file, p.text = cmp.Or(s.File, "workflow.yaml"), s.Text
	if len(s.Text) == 0 {
		if p.file, p.text, err = r.text(ctx, tenant, s.Name, s.Version); err != nil {
			return p, err
		}
	}
	if p.w, err = cowork.Parse(p.file, p.text); err != nil {
		return p, err
	}
	if p.input, err = checkInput(p.w, s.Input); err != nil {
		return p, err
	}
	p.files = s.Files
	return p, checkFiles(p.w, s.Files)
}

// checkFiles refuses files that no machine can have.
func checkFiles(w cowork.Workflow, files []File) error {
	if len(files) > 0 && w.Machine["none"] == true {
		return errs.New(errs.Invalid, "the workflow %s is started with files, and has no machine", w.Name)
	}
	sum, seen := 0, map[string]bool{}
	for _, f := range files {
		if !fs.ValidPath(f.Path) || f.Path == "." || len(f.Path) > pathMax || seen[f.Path] {
			return errs.New(errs.Invalid, "%.80q is no path beneath the workspace, or is there twice", f.Path)
		}
		seen[f.Path] = true
		sum += len(f.Content)
	}
	if len(files) > filesMax || sum > filesBytesMax {
		return errs.New(errs.Limit, "%d files with %d bytes, at most %d with %d", len(files), sum, filesMax, filesBytesMax)
	}
	return nil
}

// asked names all that a start asks for, but its key.
func (p prepared) asked() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%s", p.text, p.input)
	for _, f := range p.files {
		fmt.Fprintf(&b, "\x00%s\x00%s", f.Path, runs.HashName(string(f.Content)))
	}
	return runs.HashName(b.String())
}

// checkInput holds what a run is started with against the definition.
func checkInput(w cowork.Workflow, input json.RawMessage) (json.RawMessage, error) {
	if len(input) > inputBytesMax {
		return nil, errs.New(errs.Limit, "the input has %d bytes, at most %d", len(input), inputBytesMax)
	}
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage(`{}`)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(input, &object); err != nil || object == nil {
		return nil, errs.New(errs.Invalid, "the input is a JSON object")
	}
	if w.Definition.Input == nil {
		if len(object) > 0 {
			return nil, errs.New(errs.Invalid, "the workflow %s is started with nothing: it has no `input`", w.Name)
		}
		return input, nil
	}
	raw, err := json.Marshal(w.Definition.Input)
	if err != nil {
		return nil, err
	}
	schema, err := definition.CompileResult(raw)
	if err != nil {
		return nil, err
	}
	if wrong := schema.Check(input); len(wrong) > 0 {
		return nil, errs.New(errs.Invalid, "the input does not fit: %s", wrong[0])
	}
	var short bytes.Buffer
	if err := json.Compact(&short, input); err != nil {
		return nil, err
	}
	return short.Bytes(), nil
}

// Plan says what a start would do, and starts nothing.
func (r *Runner) Plan(ctx context.Context, tenant string, s Start) (cowork.Workflow, []Planned, error) {
	p, err := r.prepare(ctx, tenant, s)
	if err != nil {
		return p.w, nil, err
	}
	return p.w, r.planned(ctx, tenant, p.w, s), nil
}

func (r *Runner) planned(ctx context.Context, tenant string, w cowork.Workflow, s Start) []Planned {
	var list []Planned
	for i := range w.Graph.Vertices {
		v := &w.Graph.Vertices[i]
		if v.Meeting {
			continue
		}
		p := Planned{Node: v.Name, Human: v.Human != nil}
		if v.Human == nil {
			p.Agent, p.Sandbox = cmp.Or(v.Agent, "inline"), cmp.Or(v.Sandbox, cowork.SandboxShared)
			if err := r.mayStart(ctx, tenant, w, v, s, &p); err != nil {
				p.Problem = runs.Explain(err)
			}
		}
		list = append(list, p)
	}
	return list
}

// mayStart finds out what keeps a node from being started.
func (r *Runner) mayStart(ctx context.Context, tenant string, w cowork.Workflow, v *cowork.Vertex, s Start, p *Planned) error {
	start := nodeStart(v, w.Machine)
	p.Tools = []string{}
	if start.Inline != nil {
		p.Model, p.Tools = start.Inline.Model, append(p.Tools, start.Inline.Tools...)
	} else {
		d, err := r.c.Runs.Agent(ctx, v.Agent)
		if err != nil {
			return err
		}
		p.Model, p.Tools = d.Model, append(p.Tools, d.Tools...)
	}
	if start.Spec["none"] == true {
		p.Sandbox = "none"
		if len(v.Artifacts) > 0 {
			return errs.New(errs.Invalid, "it is to leave files, and has no machine")
		}
	} else if r.c.Machines != nil {
		if err := r.c.Machines.Check(start.Spec); err != nil {
			return err
		}
	}
	start.Input, start.Operator = []llm.Block{llm.Text("-")}, s.Operator
	return r.c.Runs.MayStart(ctx, tenant, start)
}

// Start begins a run. Invalid: the definition, or what it names, is not good. Conflict: the
// key was used for something else. NotFound: there is no such definition.
func (r *Runner) Start(ctx context.Context, tenant string, s Start) (Run, error) {
	p, err := r.prepare(ctx, tenant, s)
	if err != nil {
		return Run{}, err
	}
	run := Run{
		ID: newID(tenant, s.Key), Tenant: tenant, Node: r.c.Node, Workflow: p.w.Name, Version: p.w.Version, Hash: runs.HashName(string(p.text)),
		Asked: p.asked(), By: s.By, State: thread.RunRunning, Created: r.c.Now().UTC().Truncate(time.Microsecond),
	}
	if s.Key != "" {
		if known, err := r.ours(ctx, tenant, run.ID); err == nil && r.begun(ctx, known) {
			return again(known, run)
		}
	}
	for _, x := range r.planned(ctx, tenant, p.w, s) {
		if x.Problem != "" {
			return Run{}, errs.New(errs.Invalid, "%s cannot be started: %s", x.Node, x.Problem)
		}
	}
	return r.enter(ctx, run, p, s)
}

func again(known, asked Run) (Run, error) {
	if known.Asked != asked.Asked {
		return Run{}, errs.New(errs.Conflict, "this key was used for another run")
	}
	return known, nil
}

// begun reports whether a run's first events are there.
func (r *Runner) begun(ctx context.Context, run Run) bool {
	log, err := r.c.Threads.Log(ctx, run.Tenant)
	if err != nil {
		return false
	}
	head, err := log.Head(ctx, run.ID.Thread())
	return err == nil && head > 0
}

// enter writes the record, then the events: a start that was cut short in between is made
// whole by the same start, or ends when the server is started again.
func (r *Runner) enter(ctx context.Context, run Run, p prepared, s Start) (Run, error) {
	blobs, err := r.c.Threads.Blobs(ctx, run.Tenant)
	if err != nil {
		return Run{}, err
	}
	started := thread.WorkflowStarted{Name: run.Workflow, Version: run.Version, File: p.file, Input: p.input, By: s.By, Operator: s.Operator}
	if started.Definition, err = blobs.Put(ctx, p.text); err != nil {
		return Run{}, err
	}
	if len(p.input) > inlineMax {
		if started.InputBlob, err = blobs.Put(ctx, p.input); err != nil {
			return Run{}, err
		}
		started.Input = nil
	}
	for _, f := range p.files {
		hash, err := blobs.Put(ctx, f.Content)
		if err != nil {
			return Run{}, err
		}
		started.Files = append(started.Files, thread.Artifact{Path: f.Path, Blob: hash, Bytes: len(f.Content)})
	}
	value, err := json.Marshal(run)
	if err != nil {
		return Run{}, err
	}
	_, err = r.c.Records.Create(ctx, recordKey(run.Tenant, run.ID), value)
	if errs.Is(err, errs.Exists) {
		var known Run
		if known, err = r.ours(ctx, run.Tenant, run.ID); err == nil {
			run, err = again(known, run)
		}
	}
	if err != nil {
		return Run{}, err
	}
	log, err := r.c.Threads.Log(ctx, run.Tenant)
	if err != nil {
		return Run{}, err
	}
	agent, _ := json.Marshal(definition.Definition{Name: run.Workflow})
	opened := thread.Opened{Agent: agent, Name: run.Workflow, Title: "workflow " + run.Workflow, Labels: map[string]string{LabelRun: string(run.ID)}}
	err = appendSurely(context.WithoutCancel(ctx), log, run.ID.Thread(), 0, []thread.Event{thread.New("", opened), thread.New("", started)})
	if err != nil && !errs.Is(err, errs.Conflict) { // Conflict: a faster start of the same
		return Run{}, err
	}
	r.wake(run)
	return run, nil
}
