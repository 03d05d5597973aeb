package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/clip"
)

// view tells what happens in runs of a session as updates of the protocol.
type view struct {
	a      *Agent
	s      *session
	turn   *turn
	replay bool   // tell what people said too, and ask nothing
	next   uint64 // event of the thread

	text, thought stream
	shown         map[string]*call
	asked         map[string]context.CancelFunc
	asking        sync.WaitGroup
	waits         atomic.Bool        // the run waits for words of the person
	told          context.Context    // ends when enough was told
	enough        context.CancelFunc // ends it
	decided       sync.Mutex         // guards asked
}

func (a *Agent) view(s *session) *view {
	return &view{a: a, s: s, shown: map[string]*call{}, asked: map[string]context.CancelFunc{}}
}

// call is a tool call that was shown.
type call struct {
	tool    string
	args    arguments
	content []sdk.ToolCallContent
	output  string // the end of what it has written so far
	told    time.Time
}

// arguments are those of our tools that a view shows.
type arguments struct {
	FilePath string `json:"file_path"`
	Path     string `json:"path"`
	Pattern  string `json:"pattern"`
	Command  string `json:"command"`
	Content  string `json:"content"`
	Offset   int    `json:"offset"`
	Agent    string `json:"subagent_type"`
	replacement
	Edits []replacement `json:"edits"`
}

type replacement struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
}

// follow tells a run from an event on, until it is over or waits for words of the person.
func (v *view) follow(ctx context.Context, run string, from uint64) error {
	defer context.AfterFunc(ctx, v.enough)()
	defer v.asking.Wait()
	defer v.enough()
	for n, err := range v.s.c.Run(run).Tree(v.told, from) {
		switch {
		case v.waits.Load():
			return nil
		case err != nil:
			return err
		case n.Live != nil && n.Thread == "":
			v.live(n.Live)
		case n.Lost > 0:
			v.text.lost, v.thought.lost = true, true
		case n.Event != nil:
			v.event(v.told, n.Thread, *n.Event)
			if n.Thread == "" {
				v.next = n.Event.Seq + 1
			}
		case n.End != nil:
			return nil
		}
	}
	if v.waits.Load() {
		return nil
	}
	return v.told.Err()
}

// stream is a text that is told as it comes. What was told cannot be taken back.
type stream struct {
	sent, now string
	lost      bool // a part of it did not come: the rest is told when all of it is there
}

// take takes live news, and returns what is to be told.
func (s *stream) take(l *api.Live) string {
	if l.Again {
		s.now = ""
		// Of a long text only the end comes again.
		s.lost = s.lost || !strings.HasPrefix(s.sent, l.Text) && !strings.HasPrefix(l.Text, s.sent)
	}
	return s.add(l.Text)
}

// add takes a further part, and returns what is to be told.
func (s *stream) add(part string) string {
	s.now += part
	if s.lost {
		return ""
	}
	return s.fresh(s.now)
}

// reset: what comes now is another attempt.
func (s *stream) reset() { s.now, s.lost = "", false }

// whole takes the text as it is in the end.
func (s *stream) whole(text string) string {
	rest := s.fresh(text)
	*s = stream{}
	return rest
}

func (s *stream) fresh(now string) string {
	if strings.HasPrefix(s.sent, now) {
		return ""
	}
	rest, ok := strings.CutPrefix(now, s.sent)
	if !ok { // the model was asked again, and says something else
		rest = "\n\n" + now
	}
	s.sent = now
	return rest
}

// liveEvery is how often the output of a command that runs is told.
const liveEvery = 250 * time.Millisecond

func (v *view) live(l *api.Live) {
	switch l.Kind {
	case "text":
		v.tell(v.text.take(l), sdk.UpdateAgentMessageText)
	case "reasoning":
		v.tell(v.thought.take(l), sdk.UpdateAgentThoughtText)
	case "reset":
		v.text.reset()
		v.thought.reset()
	case "output":
		c := v.shown[l.Call]
		if c == nil {
			return
		}
		if l.Again {
			c.output = ""
		}
		c.output += l.Text
		c.output = strings.ToValidUTF8(c.output[max(0, len(c.output)-outputBytesMax):], "")
		if time.Since(c.told) < liveEvery {
			return // the next part or the end tells it
		}
		c.told = time.Now()
		v.update(sdk.UpdateToolCall(sdk.ToolCallId(l.Call), sdk.WithUpdateContent(fenced(c.output))))
	}
}

func (v *view) tell(text string, as func(string) sdk.SessionUpdate) {
	if text != "" {
		v.update(as(text))
	}
}

func (v *view) update(u sdk.SessionUpdate) { v.a.update(v.s.id, u) }

// block is a part of a message in the log.
type block struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	Call *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"call"`
}

// logged are the data of the events that a view shows; see package thread.
type logged struct {
	// of inputs and results
	From   string  `json:"from"`
	Blocks []block `json:"blocks"`
	// of model.completed
	Message struct {
		Blocks []block `json:"blocks"`
	} `json:"message"`
	Blob   string `json:"blob"`
	Ledger struct {
		Total  int `json:"total"`
		Window int `json:"window"`
	} `json:"ledger"`
	// of model.failed
	Text string `json:"text"`
	// of calls
	Call         string          `json:"call"`
	Tool         string          `json:"tool"`
	Args         json.RawMessage `json:"args"`
	Failed       bool            `json:"failed"`
	Exit         *int            `json:"exit"`
	Todos        []api.Todo      `json:"todos"`
	PlanAccepted bool            `json:"plan_accepted"`
}

// event shows one of the log. thread is the sub-agent's that it is of, "" = the run's own.
func (v *view) event(ctx context.Context, thread string, ev api.RunEvent) {
	var l logged
	if json.Unmarshal(ev.Data, &l) != nil {
		return // of a server that is newer
	}
	switch ev.Kind {
	case "input":
		if v.replay && thread == "" && l.From == "user" {
			v.tell(textOf(l.Blocks), sdk.UpdateUserMessageText)
		}
	case "thread.claimed": // another server goes on: the model is asked again
		if thread == "" {
			v.text.reset()
			v.thought.reset()
		}
	case "model.completed":
		v.completed(ctx, thread, &l)
	case "model.failed":
		if thread == "" && !v.replay {
			v.tell("The model did not answer: "+clip.Text(l.Text, 500)+"\n", sdk.UpdateAgentThoughtText)
		}
	case "tool.started":
		v.started(idOf(thread, l.Call), &l)
	case "tool.completed":
		v.result(thread, &l)
	case "approval.asked":
		if !v.replay && v.turn != nil && v.turn.prompted {
			v.findApproval(ctx, thread, l.Call)
		}
	case "approval.decided":
		v.forget(idOf(thread, l.Call))
	}
}

// idOf names a call within a session: ids are unique in a thread alone.
func idOf(thread, call string) string {
	if thread == "" {
		return call
	}
	return thread + "/" + call
}

func textOf(blocks []block) string {
	var b strings.Builder
	for _, one := range blocks {
		if one.Kind == "text" {
			b.WriteString(one.Text)
		}
	}
	return b.String()
}

// messageBytesMax bounds a message that is kept beside the log.
const messageBytesMax = 8 << 20

// completed shows an answer of the model: what was not told yet, and its calls.
func (v *view) completed(ctx context.Context, thread string, l *logged) {
	blocks := l.Message.Blocks
	if l.Blob != "" {
		if whole, err := v.message(ctx, l.Blob); err == nil {
			blocks = whole
		}
	}
	if thread == "" {
		var thought strings.Builder
		for _, b := range blocks {
			if b.Kind == "reasoning" {
				thought.WriteString(b.Text)
			}
		}
		v.tell(v.thought.whole(thought.String()), sdk.UpdateAgentThoughtText)
		v.tell(v.text.whole(textOf(blocks)), sdk.UpdateAgentMessageText)
		if l.Ledger.Window > 0 {
			v.update(sdk.SessionUpdate{UsageUpdate: &sdk.SessionUsageUpdate{Used: l.Ledger.Total, Size: l.Ledger.Window}})
		}
	}
	for _, b := range blocks {
		if b.Call != nil && b.Call.Name != todosTool {
			v.called(thread, b.Call.ID, b.Call.Name, b.Call.Args)
		}
	}
}

func (v *view) message(ctx context.Context, blob string) ([]block, error) {
	r, err := v.s.c.Blob(ctx, blob, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, messageBytesMax+1))
	if err != nil || len(data) > messageBytesMax {
		return nil, errors.Join(err, errors.New("it is too large"))
	}
	var m struct {
		Blocks []block `json:"blocks"`
	}
	err = json.Unmarshal(data, &m)
	return m.Blocks, err
}

// Tools that are shown in a way of their own.
const todosTool = "write_todos"

var kinds = map[string]sdk.ToolKind{
	"read_file": sdk.ToolKindRead, "ls": sdk.ToolKindSearch, "glob": sdk.ToolKindSearch, "grep": sdk.ToolKindSearch,
	"write_file": sdk.ToolKindEdit, "edit_file": sdk.ToolKindEdit, "apply_patch": sdk.ToolKindEdit, "undo_changes": sdk.ToolKindEdit,
	"delete": sdk.ToolKindDelete, "execute": sdk.ToolKindExecute, "process_output": sdk.ToolKindExecute, "process_kill": sdk.ToolKindExecute,
	"process_list": sdk.ToolKindExecute, "compact_conversation": sdk.ToolKindThink,
}

func kindOf(tool string) sdk.ToolKind {
	if k, ok := kinds[tool]; ok {
		return k
	}
	if strings.Contains(tool, "fetch") || strings.Contains(tool, "web") {
		return sdk.ToolKindFetch
	}
	return sdk.ToolKindOther
}

// Bounds of what is shown of a call.
const (
	titleMax       = 200
	outputBytesMax = 16 << 10
	diffBytesMax   = 256 << 10
)

// called shows a call that the model asked for.
func (v *view) called(thread, id, tool string, args json.RawMessage) {
	c := &call{tool: tool}
	_ = json.Unmarshal(args, &c.args) // what cannot be read is not shown
	c.content = v.diffs(c)
	name := idOf(thread, id)
	v.shown[name] = c
	title := titleOf(c)
	if thread != "" {
		title = "sub-agent: " + title
	}
	v.update(sdk.StartToolCall(sdk.ToolCallId(name), title, sdk.WithStartKind(kindOf(tool)), sdk.WithStartStatus(sdk.ToolCallStatusPending),
		sdk.WithStartContent(c.content), startLocations(v.locations(c)), sdk.WithStartRawInput(raw(args))))
}

// startLocations sets the locations alone.
func startLocations(l []sdk.ToolCallLocation) sdk.ToolCallStartOpt {
	return func(tc *sdk.SessionUpdateToolCall) { tc.Locations = l }
}

// raw are arguments as they are, unless there are too many of them.
func raw(args json.RawMessage) any {
	if len(args) == 0 || len(args) > diffBytesMax || !json.Valid(args) {
		return nil
	}
	return args
}

func titleOf(c *call) string {
	what := ""
	switch {
	case c.args.Command != "":
		return clip.Line(c.args.Command, titleMax)
	case c.args.FilePath != "":
		what = c.args.FilePath
	case c.args.Pattern != "":
		what = c.args.Pattern
	case c.args.Path != "":
		what = c.args.Path
	case c.args.Agent != "":
		what = c.args.Agent
	}
	return clip.Line(strings.TrimSpace(c.tool+" "+strings.TrimPrefix(what, workspace+"/")), titleMax)
}

// place is where the editor finds a path of the sandbox; a path elsewhere is what it is.
func (s *session) place(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(workspace, p)
	}
	p = path.Clean(p)
	rel, ok := strings.CutPrefix(p, workspace+"/")
	if s.files == nil || !ok || !filepath.IsLocal(filepath.FromSlash(rel)) {
		return p
	}
	return filepath.Join(s.cwd, filepath.FromSlash(rel))
}

func (v *view) locations(c *call) []sdk.ToolCallLocation {
	p := c.args.FilePath
	if p == "" && c.args.Pattern == "" {
		p = c.args.Path
	}
	if p == "" {
		return nil
	}
	l := sdk.ToolCallLocation{Path: v.s.place(p)}
	if c.args.Offset > 0 {
		l.Line = new(c.args.Offset + 1)
	}
	return []sdk.ToolCallLocation{l}
}

// diffs are what a call that edits would change.
func (v *view) diffs(c *call) []sdk.ToolCallContent {
	at := v.s.place(c.args.FilePath)
	if c.tool == "write_file" && len(c.args.Content) <= diffBytesMax {
		return []sdk.ToolCallContent{sdk.ToolDiffContent(at, c.args.Content)}
	}
	if c.tool != "edit_file" {
		return nil
	}
	var out []sdk.ToolCallContent
	for _, e := range append(c.args.Edits, c.args.replacement) {
		if e != (replacement{}) && len(e.Old)+len(e.New) <= diffBytesMax {
			out = append(out, sdk.ToolDiffContent(at, e.New, e.Old))
		}
	}
	return out
}

func (v *view) started(id string, l *logged) {
	c := v.shown[id]
	if c == nil {
		return
	}
	opts := []sdk.ToolCallUpdateOpt{sdk.WithUpdateStatus(sdk.ToolCallStatusInProgress)}
	if len(l.Args) > 0 { // a person or a hook changed them
		changed := &call{tool: c.tool}
		_ = json.Unmarshal(l.Args, &changed.args)
		changed.content = v.diffs(changed)
		v.shown[id] = changed
		opts = append(opts, sdk.WithUpdateTitle(titleOf(changed)), sdk.WithUpdateContent(changed.content), sdk.WithUpdateLocations(v.locations(changed)), sdk.WithUpdateRawInput(raw(l.Args)))
	}
	v.update(sdk.UpdateToolCall(sdk.ToolCallId(id), opts...))
}

// result shows what a call came to.
func (v *view) result(thread string, l *logged) {
	if len(l.Todos) > 0 && thread == "" {
		v.plan(l.Todos)
	}
	if l.PlanAccepted && thread == "" {
		v.accepted()
	}
	id := idOf(thread, l.Call)
	v.forget(id)
	c := v.shown[id]
	if c == nil {
		return
	}
	delete(v.shown, id)
	status, text := sdk.ToolCallStatusCompleted, clip.Text(textOf(l.Blocks), outputBytesMax)
	if l.Failed {
		status = sdk.ToolCallStatusFailed
	}
	content := c.content
	switch {
	case kindOf(c.tool) == sdk.ToolKindExecute:
		content = fenced(text)
	case text != "" && (len(content) == 0 || l.Failed):
		content = append(content, sdk.ToolContent(sdk.TextBlock(text)))
	}
	opts := []sdk.ToolCallUpdateOpt{sdk.WithUpdateStatus(status), sdk.WithUpdateContent(content)}
	if l.Exit != nil {
		opts = append(opts, sdk.WithUpdateRawOutput(map[string]any{"exit_code": *l.Exit}))
	}
	v.update(sdk.UpdateToolCall(sdk.ToolCallId(id), opts...))
}

func (v *view) plan(todos []api.Todo) {
	entries := []sdk.PlanEntry{}
	for _, t := range todos {
		entries = append(entries, sdk.PlanEntry{Content: t.Content, Status: sdk.PlanEntryStatus(t.Status), Priority: sdk.PlanEntryPriorityMedium})
	}
	v.update(sdk.UpdatePlan(entries...))
}

// accepted: the person has accepted the plan, and the agent goes to work.
func (v *view) accepted() {
	v.s.mu.Lock()
	planning := v.s.mode == modePlan
	if planning {
		v.s.mode = modeAsk
	}
	v.s.mu.Unlock()
	if planning {
		v.update(sdk.SessionUpdate{CurrentModeUpdate: &sdk.SessionCurrentModeUpdate{CurrentModeId: modeAsk}})
	}
}

// fenced is the output of a command as a block of code.
func fenced(text string) []sdk.ToolCallContent {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return []sdk.ToolCallContent{sdk.ToolContent(sdk.TextBlock(fmt.Sprintf("%s\n%s\n%s", fence, strings.TrimSuffix(text, "\n"), fence)))}
}
