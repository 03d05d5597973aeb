// Package history has the tools by which an agent looks at what the files were
// and asks to go back: list_revisions, diff_revisions, read_revision and
// undo_changes.
//
//	history.Add(registry)          // they need Env.Past
//	env.Past = history.Of(h)       // from a workspace.History
//
// undo_changes touches the whole workspace, so every rule about a path in it,
// and every rule about the tool, decides whether a person is asked. What it
// would do is planned before it begins and stands in the thread's log; a call
// that is run again after a crash does not undo twice.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

const (
	aboutList = `Lists the recorded states (revisions) of the files in the workspace, newest first, with who made each. With a path only those that changed it. Example: {"path":"src/a.go"}`
	aboutDiff = `Shows what changed between two revisions of the workspace as a unified diff. Without revisions it is what the newest one changed. Example: {"from":12,"path":"src"}`
	aboutRead = `Reads a file as it was in a revision. Example: {"revision":12,"path":"src/a.go"}`
	aboutUndo = `Takes changes of the workspace's files back, whatever made them: the last change, or all since before a tool call or a run, or to the state of a revision. ` +
		`Everything that changed since is taken back too, other people's changes as well. It can be undone itself. A person may have to approve it. Example: {"call":"call_9_1"}`

	path = `"path":{"type":"string","maxLength":4096,"description":"Relative to the workspace; a file or a directory"}`

	schemaList = `{"type":"object","additionalProperties":false,"required":[],"properties":{` + path + `,"limit":{"type":"integer","minimum":1,"maximum":200,"default":30}}}`
	schemaDiff = `{"type":"object","additionalProperties":false,"required":[],"properties":{` + path +
		`,"from":{"type":"integer","minimum":1,"description":"A revision; default the one before the other"},"to":{"type":"integer","minimum":1,"description":"A revision; default the newest"}}}`
	schemaRead = `{"type":"object","additionalProperties":false,"required":["revision","path"],"properties":{` + path + `,"revision":{"type":"integer","minimum":1}}}`
	schemaUndo = `{"type":"object","additionalProperties":false,"required":[],"properties":{` +
		`"call":{"type":"string","maxLength":256,"description":"All since before this tool call"},` +
		`"run":{"type":"string","maxLength":256,"description":"All since before this run"},` +
		`"revision":{"type":"integer","minimum":1,"description":"To the state of this revision"},` + path + `}}`

	resultBytesDefault = 80_000
	shownMax           = 60 // paths of an undo
)

// Add adds the tools.
func Add(r *tool.Registry) {
	add := func(name, about, schema string, run func(context.Context, tool.Env, args) (tool.Result, error)) {
		r.Add(name, func(env tool.Env) (tool.Tool, error) {
			if env.Past == nil {
				return nil, errs.New(errs.Unsupported, "%s needs a history of the files, and none is kept here", name)
			}
			return look{env, llm.ToolSpec{Name: name, Description: about, Schema: json.RawMessage(schema)}, run}, nil
		})
	}
	add("list_revisions", aboutList, schemaList, list)
	add("diff_revisions", aboutDiff, schemaDiff, diff)
	add("read_revision", aboutRead, schemaRead, read)
	r.Add("undo_changes", func(env tool.Env) (tool.Tool, error) {
		if env.Past == nil {
			return nil, errs.New(errs.Unsupported, "undo_changes needs a history of the files, and none is kept here")
		}
		return undo{env}, nil
	})
}

type args struct {
	Path     string `json:"path"`
	Limit    int    `json:"limit"`
	From     uint64 `json:"from"`
	To       uint64 `json:"to"`
	Revision uint64 `json:"revision"`
	Call     string `json:"call"`
	Run      string `json:"run"`
}

func parse(raw json.RawMessage) (args, *tool.Result) {
	var a args
	if err := json.Unmarshal(raw, &a); err != nil {
		r := tool.Fail(tool.CodeArgs, "the arguments cannot be read")
		return a, &r
	}
	return a, nil
}

// look is a tool that only reads.
type look struct {
	env  tool.Env
	spec llm.ToolSpec
	run  func(context.Context, tool.Env, args) (tool.Result, error)
}

// Spec implements tool.Tool.
func (t look) Spec() llm.ToolSpec { return t.spec }

// Effect implements tool.Tool. What a revision holds was in the workspace, so
// rules about reading paths in it count here too.
func (t look) Effect(raw json.RawMessage) tool.Effect {
	a, _ := parse(raw)
	return tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: beneath(t.env.Dir, a.Path)}}}
}

// Run implements tool.Tool.
func (t look) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := parse(req.Args)
	if bad != nil {
		return *bad, nil
	}
	r, err := t.run(ctx, t.env, a)
	if err != nil {
		return refused(err)
	}
	return r, nil
}

// beneath is a path of the workspace in the agent's view. What leads out of it
// is the workspace as a whole: nothing else can be meant, and it is refused later.
func beneath(dir, path string) string {
	if rest, ok := strings.CutPrefix(path, dir); ok && dir != "" {
		path = rest
	}
	path = strings.Trim(path, "/")
	if path == "" || strings.Contains("/"+path+"/", "/../") {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}

// within is the same path as the history names it.
func within(dir, path string) string {
	if rest, ok := strings.CutPrefix(path, dir+"/"); ok && dir != "" {
		return rest
	}
	if path == dir {
		return ""
	}
	return strings.TrimPrefix(path, "./")
}

// refused turns what the caller can do something about into a result.
func refused(err error) (tool.Result, error) {
	code := ""
	switch errs.Of(err) {
	case errs.NotFound:
		code = tool.CodeNotFound
	case errs.Invalid, errs.Exists:
		code = tool.CodeArgs
	case errs.Conflict:
		code = tool.CodeConflict
	case errs.Limit:
		code = tool.CodeTooLarge
	case errs.Denied, errs.Unsupported:
		code = tool.CodeDenied
	default:
		return tool.Result{}, err
	}
	return tool.Fail(code, "Error: "+errs.Public(err)), nil
}

func list(ctx context.Context, env tool.Env, a args) (tool.Result, error) {
	if a.Limit == 0 {
		a.Limit = 30
	}
	revs, more, err := env.Past.Revisions(ctx, within(env.Dir, a.Path), a.Limit)
	if err != nil {
		return tool.Result{}, err
	}
	if len(revs) == 0 {
		return tool.Text("There are no revisions of it."), nil
	}
	var b strings.Builder
	for _, r := range revs {
		fmt.Fprintf(&b, "%d  %s  %s", r.N, r.Time.UTC().Format("2006-01-02 15:04:05Z"), orElse(r.Actor, "unknown"))
		if r.Run != "" {
			fmt.Fprintf(&b, "  %s step %d call %s", r.Run, r.Step, orElse(r.Call, "-"))
		}
		if r.Label != "" {
			fmt.Fprintf(&b, "  %s", strings.Join(strings.Fields(r.Label), " "))
		}
		b.WriteByte('\n')
	}
	if more {
		b.WriteString("(there are older ones)\n")
	}
	return tool.Text(b.String()), nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func bytesMax(env tool.Env) int {
	if env.ResultBytesMax > 0 {
		return env.ResultBytesMax
	}
	return resultBytesDefault
}

func diff(ctx context.Context, env tool.Env, a args) (tool.Result, error) {
	text, err := env.Past.Diff(ctx, a.From, a.To, within(env.Dir, a.Path), bytesMax(env))
	if err != nil {
		return tool.Result{}, err
	}
	if text == "" {
		text = "Nothing differs."
	}
	return tool.Text(text), nil
}

func read(ctx context.Context, env tool.Env, a args) (tool.Result, error) {
	data, err := env.Past.Content(ctx, a.Revision, within(env.Dir, a.Path), int64(bytesMax(env)))
	if err != nil {
		return tool.Result{}, err
	}
	switch {
	case !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		return tool.Fail("", fmt.Sprintf("Error: it is no text; it has %d bytes", len(data))), nil
	case len(data) == 0:
		return tool.Text("(the file was empty)"), nil
	}
	return tool.Text(string(data)), nil
}

// undo is undo_changes.
type undo struct{ env tool.Env }

// Spec implements tool.Tool.
func (undo) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "undo_changes", Description: aboutUndo, Schema: json.RawMessage(schemaUndo)}
}

// Effect implements tool.Tool. Only a revision's path says where it acts.
func (t undo) Effect(raw json.RawMessage) tool.Effect {
	a, bad := parse(raw)
	at := t.env.Dir
	if bad == nil && a.Revision > 0 && a.Run == "" && a.Call == "" {
		at = beneath(t.env.Dir, a.Path)
	}
	return tool.Effect{Class: tool.Keyed, Touches: []tool.Touch{{Path: orElse(at, "/"), Write: true}}}
}

// planned stands in the log before anything is done.
type planned struct {
	ID    string   `json:"id"`
	N     uint64   `json:"n"`
	Paths []string `json:"paths"`
	Total int      `json:"total"`
	Left  []string `json:"left,omitempty"`
}

// Plan implements tool.Planner.
func (t undo) Plan(ctx context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	a, bad := parse(req.Args)
	if bad != nil {
		return nil, bad, nil
	}
	named := 0
	for _, is := range []bool{a.Call != "", a.Run != "", a.Revision > 0} {
		if is {
			named++
		}
	}
	if named > 1 || a.Path != "" && a.Revision == 0 {
		r := tool.Fail(tool.CodeArgs, "call, run and revision exclude each other, and path goes with revision")
		return nil, &r, nil
	}
	p, err := t.env.Past.PlanUndo(ctx, tool.PastUndo{Call: a.Call, Run: a.Run, N: a.Revision, Path: within(t.env.Dir, a.Path)})
	if err != nil {
		r, err := refused(err)
		if err != nil {
			return nil, nil, err
		}
		return nil, &r, nil
	}
	if p.Total == 0 {
		r := tool.Text("Nothing would change: the files are like that already.\n" + stays(shown(p.Left)))
		return nil, &r, nil
	}
	plan := planned{ID: p.ID, N: p.N, Total: p.Total, Paths: shown(p.Paths), Left: shown(p.Left)}
	data, err := json.Marshal(plan)
	return data, nil, err
}

// shown are the first of some lines, as text.
func shown(lines []string) []string {
	out := slices.Clone(lines[:min(len(lines), shownMax)])
	for i := range out {
		out[i] = strings.ToValidUTF8(out[i], "\uFFFD")
	}
	return out
}

// stays says what an undo does not touch though it differs.
func stays(left []string) string {
	var b strings.Builder
	for _, l := range left {
		b.WriteString("left as it is: " + l + "\n")
	}
	return b.String()
}

// Run implements tool.Tool.
func (t undo) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	var p planned
	if err := json.Unmarshal(req.Plan, &p); err != nil {
		return tool.Result{}, errs.Wrap(errs.Internal, err, "an undo without its plan")
	}
	n, kept, err := t.env.Past.Undo(ctx, p.ID, tool.PastRevision{
		Thread: string(req.Thread), Run: string(req.Run), Call: req.Call, Actor: "agent", Label: fmt.Sprintf("undo to %d", p.N),
	})
	if errs.Is(err, errs.Conflict) {
		return tool.Fail(tool.CodeConflict, "Error: the files changed since it was planned, so nothing was undone. Look again and ask again."), nil
	}
	if err != nil {
		return refused(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Undone: the files are as in revision %d. That is revision %d now; %d paths changed:\n", p.N, n, p.Total)
	for _, path := range p.Paths {
		b.WriteString(path + "\n")
	}
	if more := p.Total - len(p.Paths); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	b.WriteString(stays(p.Left))
	for _, path := range kept {
		fmt.Fprintf(&b, "kept, because it holds what the history does not have: %s\n", path)
	}
	return tool.Text(b.String()), nil
}
