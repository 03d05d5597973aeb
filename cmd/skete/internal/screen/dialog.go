package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// Action is what a key asks the caller to do; the zero Action is nothing.
type Action struct {
	Detach bool // leave; the run goes on
	Cancel bool // end the run
	// Decide answers Ask.
	Decide *api.Decide
	// Edit lets the person change the arguments of Ask in an editor.
	Edit *Ask
	// View prints all of Ask's arguments, which do not fit beneath the transcript;
	// Dialog.Viewed follows.
	View *Ask
	// Send is a message to the run.
	Send string
}

// Dialog turns keys into actions.
type Dialog struct {
	mode mode
	ask  Ask    // that the mode is about
	line line   // that is being typed
	said line   // a message; what was said before comes back by KeyUp
	note string // the answer to the last key
	// Complete returns the paths that begin with one, for @ in a message; nil = none.
	Complete func(prefix string) []string
	// viewed are the arguments that were printed, by thread and call.
	viewed map[string]json.RawMessage
}

type mode int

const (
	watching  mode = iota
	leaving        // Ctrl-C was pressed once
	rejecting      // the reason is being typed
	responding
	messaging
)

const (
	helpWatching = "m message · Ctrl-C leave"
	argsLinesMax = 12
	argsBytesMax = 2000 // of these lines
)

// Help is the foot of the screen.
func (d *Dialog) Help() string { return helpWatching }

// Viewed says that all arguments of a call were printed. It is these that the person
// decides about.
func (d *Dialog) Viewed(a Ask, args json.RawMessage) {
	if d.viewed == nil {
		d.viewed = map[string]json.RawMessage{}
	}
	d.viewed[a.Thread+" "+a.Call] = args
}

// seen returns the arguments as the person has seen them; false: not all of them.
func (d *Dialog) seen(a Ask) (json.RawMessage, bool) {
	if args, ok := d.viewed[a.Thread+" "+a.Call]; ok {
		return args, true
	}
	_, left := firstLines(a.lines(a.Args))
	return a.Args, a.Args != nil && left == 0
}

// Say shows a note until the next key.
func (d *Dialog) Say(text string) { d.note = Clean(text) }

// Press takes a key.
func (d *Dialog) Press(k Key, asks []Ask) Action {
	d.note = ""
	switch d.mode {
	case leaving:
		return d.leave(k)
	case rejecting, responding, messaging:
		return d.typed(k, asks)
	}
	switch {
	case k == KeyInterrupt:
		d.mode = leaving
		return Action{}
	case k == 'm':
		d.mode = messaging
		return Action{}
	case len(asks) > 0:
		return d.decide(k, asks[0])
	}
	return Action{}
}

func (d *Dialog) leave(k Key) Action {
	d.mode = watching
	switch k {
	case KeyInterrupt:
		return Action{Cancel: true}
	case 'd', KeyEnter, KeyEnd:
		return Action{Detach: true}
	}
	return Action{}
}

// decide is a key while a call waits.
func (d *Dialog) decide(k Key, a Ask) Action {
	if k == 'v' {
		return Action{View: &a}
	}
	if options := QuestionOf(a.Args).Options; a.Kind == api.AskQuestion && k >= '1' && int(k-'0') <= len(options) {
		return Action{Decide: &api.Decide{Call: a.Call, Thread: a.Thread, Decision: api.DecisionRespond, Text: options[k-'1'], ArgsHash: thread.ArgsHash(a.Args)}}
	}
	decision := map[Key]string{
		'a': api.DecisionApprove, 'A': api.DecisionApprove, 'e': api.DecisionEdit, 'r': api.DecisionReject, 't': api.DecisionRespond, 'D': api.DecisionDismiss,
	}[k]
	switch {
	case decision == "" || decision == api.DecisionDismiss && a.Kind != api.AskForm:
		return Action{}
	case !a.Allows(decision):
		d.note = decision + " is not allowed for this call"
		return Action{}
	case decision == api.DecisionApprove:
		args, all := d.seen(a)
		if !all {
			d.note = "not all of it was shown: press v first"
			return Action{}
		}
		return Action{Decide: &api.Decide{Call: a.Call, Thread: a.Thread, Decision: decision, Always: k == 'A' && a.Kind == "", ArgsHash: thread.ArgsHash(args)}}
	case decision == api.DecisionDismiss:
		return Action{Decide: &api.Decide{Call: a.Call, Thread: a.Thread, Decision: decision, ArgsHash: thread.ArgsHash(a.Args)}}
	case decision == api.DecisionEdit:
		return Action{Edit: &a}
	}
	d.mode, d.ask = rejecting, a
	d.line.clear()
	if decision == api.DecisionRespond {
		d.mode = responding
	}
	return Action{}
}

// typed is a key while a line is being typed.
func (d *Dialog) typed(k Key, asks []Ask) Action {
	if k == KeyInterrupt {
		d.mode = leaving
		return Action{}
	}
	if d.mode == messaging {
		return d.message(k)
	}
	done, gone := d.line.press(k)
	if gone {
		d.mode = watching
	}
	if !done {
		return Action{}
	}
	text, was := d.line.String(), d.mode
	if text == "" && was != rejecting {
		d.note = "it is empty; Esc goes back"
		return Action{}
	}
	d.mode = watching
	decision := api.DecisionReject
	if was == responding {
		decision = api.DecisionRespond
	}
	for _, a := range asks {
		if a.Call == d.ask.Call && a.Thread == d.ask.Thread {
			return Action{Decide: &api.Decide{Call: a.Call, Thread: a.Thread, Decision: decision, Text: text}}
		}
	}
	d.note = "it was decided elsewhere meanwhile"
	return Action{}
}

// message is a key while a message is being typed.
func (d *Dialog) message(k Key) Action {
	if k == KeyTab {
		d.complete()
		return Action{}
	}
	done, gone := d.said.press(k)
	if gone {
		d.mode = watching
	}
	if !done {
		return Action{}
	}
	text := d.said.String()
	if text == "" {
		d.note = "it is empty; Esc goes back"
		return Action{}
	}
	d.mode = watching
	d.said.keep()
	return Action{Send: text}
}

// complete goes on with a path behind @, as far as it is clear.
func (d *Dialog) complete() {
	prefix, is := strings.CutPrefix(d.said.word(), "@")
	if !is || d.Complete == nil {
		return
	}
	found := d.Complete(prefix)
	if len(found) == 0 {
		d.note = "no file begins so"
		return
	}
	common := found[0]
	for _, f := range found[1:] {
		for !strings.HasPrefix(f, common) {
			common = common[:len(common)-1]
		}
	}
	if more, ok := strings.CutPrefix(strings.ToValidUTF8(common, ""), prefix); ok && more != "" {
		d.said.insert([]rune(Clean(more))...)
	} else if len(found) > 1 {
		d.note = Cut(strings.Join(found, "  "), 200)
	}
}

// Blocks are the questions on the screen.
func (d *Dialog) Blocks(asks []Ask) []Block {
	var blocks []Block
	add := func(mark string, style Style, text string) {
		blocks = append(blocks, Block{Mark: mark, Style: style, Text: text})
	}
	switch {
	case d.mode == leaving:
		add("?", Yellow, "Leave? d: leave, the run goes on · Ctrl-C: cancel the run · any other key: stay")
	case d.mode == messaging:
		add("m", Cyan, "message (Enter sends, Alt-Enter: a new line, @FILE shows an image, Esc goes back): "+d.said.drawn())
	case d.mode == rejecting:
		add("r", Yellow, d.ask.words().reject+" (Enter; Esc goes back): "+d.line.drawn())
	case d.mode == responding:
		add("t", Yellow, d.ask.words().respond+" (Enter; Esc goes back): "+d.line.drawn())
	case len(asks) > 0:
		blocks = askBlocks(asks[0], len(asks))
	}
	if d.note != "" {
		add("!", Yellow, d.note)
	}
	return blocks
}

// words are what is said about a kind of question.
type words struct{ title, reject, respond string }

func (a Ask) words() words {
	switch a.Kind {
	case api.AskQuestion:
		return words{"the agent asks", "no answer, because", "answer"}
	case api.AskForm:
		return words{"a program asks, which is none of skete", "refused, because", "the answer, JSON or the value of the only field"}
	case api.AskPlan:
		return words{"the agent wants to go to work by this plan", "what to change about the plan", ""}
	}
	return words{a.Tool + " waits for you", "reject " + a.Tool + ", because", "in place of " + a.Tool + "'s result"}
}

// keys says what can be pressed.
func (a Ask) keys() string {
	switch a.Kind {
	case api.AskQuestion:
		list := []string{"t type an answer", "r give none"}
		if n := len(QuestionOf(a.Args).Options); n > 0 {
			list = append([]string{fmt.Sprintf("1 to %d choose", n)}, list...)
		}
		return strings.Join(list, " · ")
	case api.AskForm:
		return "t type an answer · v view · r refuse · D dismiss"
	case api.AskPlan:
		return "a accept · v view · e edit · r say what to change"
	}
	var keys []string
	for _, k := range []struct{ decision, text string }{
		{api.DecisionApprove, "a approve"},
		{api.DecisionApprove, "A always"},
		{api.DecisionApprove, "v view"},
		{api.DecisionEdit, "e edit"},
		{api.DecisionReject, "r reject"},
		{api.DecisionRespond, "t respond"},
	} {
		if a.Allows(k.decision) {
			keys = append(keys, k.text)
		}
	}
	return strings.Join(keys, " · ")
}

func askBlocks(a Ask, n int) []Block {
	title := a.words().title
	if n > 1 {
		title += fmt.Sprintf(" (1 of %d)", n)
	}
	if a.Thread != "" {
		title = join(": ", a.Agent, title)
	}
	blocks := []Block{{Mark: "?", Style: Yellow, Text: join(": ", title, a.Reason), Tone: Bold, Gap: true}}
	lines, left := firstLines(a.lines(a.Args))
	blocks = append(blocks, argBlocks(lines)...)
	switch {
	case a.Args == nil:
		blocks = append(blocks, Block{Mark: "│", Style: Yellow, Text: "the arguments are long: press v to see them", Indent: 2})
	case left > 0:
		blocks = append(blocks, Block{Mark: "│", Style: Yellow, Text: fmt.Sprintf("… %s: press v", count(left, "more line")), Indent: 2})
	}
	return append(blocks, Block{Text: a.keys(), Tone: Cyan, Indent: 2})
}

// Question is what an agent wants to know, or the plan that it hands in.
type Question struct {
	Text    string   `json:"question"`
	Options []string `json:"options"`
	Plan    string   `json:"plan"`
	Steps   []string `json:"steps"`
}

// QuestionOf reads the arguments of a call that asks; what cannot be read is empty.
func QuestionOf(args json.RawMessage) (q Question) {
	if json.Unmarshal(args, &q) != nil {
		return Question{}
	}
	return q
}

// lines show what the person is asked. A question and a plan are shown as such, and all
// else that a model may have written beside them as arguments are.
func (a Ask) lines(args json.RawMessage) []string {
	q := QuestionOf(args)
	var lines []string
	add := func(text string) { lines = append(lines, strings.Split(Exact(text), "\n")...) }
	switch {
	case a.Kind == api.AskQuestion && q.Text != "":
		add(q.Text)
		for i, o := range q.Options {
			add(fmt.Sprintf("%d  %s", i+1, o))
		}
	case a.Kind == api.AskForm:
		return formLines(args)
	case a.Kind == api.AskPlan && q.Plan != "":
		add(q.Plan)
		for i, step := range q.Steps {
			add(fmt.Sprintf("%d. %s", i+1, step))
		}
	default:
		return ArgLines(args)
	}
	return lines
}

// formLines show what a program asks. Its words are marked as such.
func formLines(args json.RawMessage) (lines []string) {
	var f api.Form
	if json.Unmarshal(args, &f) != nil {
		return ArgLines(args)
	}
	add := func(text string) { lines = append(lines, strings.Split(Exact(text), "\n")...) }
	add(f.From + " asks, in its own words:")
	for line := range strings.SplitSeq(Exact(f.Message), "\n") {
		lines = append(lines, "  > "+line)
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(f.Schema, &s) // of one that cannot be read no field is shown
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		needed := ""
		if slices.Contains(s.Required, name) {
			needed = ", needed"
		}
		add(fmt.Sprintf("  %s%s: %s", name, needed, s.Properties[name]))
	}
	if f.Warning != "" {
		add("! " + f.Warning)
	}
	return lines
}

// AskLines are the lines of what waits for a person.
func AskLines(kind string, args json.RawMessage) []string { return Ask{Kind: kind}.lines(args) }

// argBlocks are lines of arguments. Long ones are wrapped and not cut.
func argBlocks(lines []string) []Block {
	blocks := make([]Block, len(lines))
	for i, line := range lines {
		blocks[i] = Block{Mark: "│", Style: Dim, Text: line, Indent: 2}
	}
	return blocks
}

// Whole are blocks that show all of what a call would do.
func Whole(a Ask, args json.RawMessage) []Block {
	return append([]Block{{Mark: "?", Style: Yellow, Text: join(": ", a.Tool, a.Reason), Gap: true}}, argBlocks(a.lines(args))...)
}

// ArgLines shows arguments for a person who decides about them: one line a key, long
// values on lines of their own, and nothing hidden (Exact).
func ArgLines(args json.RawMessage) []string {
	var lines []string
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return strings.Split(Exact(string(args)), "\n")
	}
	for d.More() {
		name, err := d.Token()
		var raw json.RawMessage
		if err != nil || d.Decode(&raw) != nil {
			return strings.Split(Exact(string(args)), "\n")
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		text = Exact(text)
		if strings.Contains(text, "\n") {
			text = "\n" + text
		}
		lines = append(lines, strings.Split(fmt.Sprintf("%s: %s", Exact(fmt.Sprint(name)), text), "\n")...)
	}
	return lines
}

// firstLines are those that fit beneath a transcript; left is how many do not.
func firstLines(lines []string) (first []string, left int) {
	bytes := 0
	for i, line := range lines {
		if bytes += len(line); i == argsLinesMax || bytes > argsBytesMax {
			return lines[:i], len(lines) - i
		}
	}
	return lines, 0
}
