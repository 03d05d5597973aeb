package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/api"
)

// Action is what a key asks the caller to do; the zero Action is nothing.
type Action struct {
	Detach bool // leave; the run goes on
	Cancel bool // end the run
	// Decide answers Ask.
	Decide *api.Decide
	// Edit lets the person change the arguments of Ask in an editor.
	Edit *Ask
	// Send is a message to the run.
	Send string
}

// Dialog turns keys into actions.
type Dialog struct {
	mode mode
	ask  Ask // that the mode is about
	line line
	note string // the answer to the last key
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
)

// Help is the foot of the screen.
func (d *Dialog) Help() string { return helpWatching }

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
		d.mode, d.line = messaging, line{}
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
	decision := map[Key]string{
		'a': api.DecisionApprove, 'A': api.DecisionApprove, 'e': api.DecisionEdit, 'r': api.DecisionReject, 't': api.DecisionRespond,
	}[k]
	switch {
	case decision == "":
		return Action{}
	case !a.Allows(decision):
		d.note = decision + " is not allowed for this call"
		return Action{}
	case decision == api.DecisionApprove:
		return Action{Decide: &api.Decide{Call: a.Call, Thread: a.Thread, Decision: decision, Always: k == 'A'}}
	case decision == api.DecisionEdit:
		return Action{Edit: &a}
	}
	d.mode, d.ask, d.line = rejecting, a, line{}
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
	if was == messaging {
		return Action{Send: text}
	}
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
		add("m", Cyan, "message: "+string(d.line.text)+"▏")
	case d.mode == rejecting:
		add("r", Yellow, "reject "+d.ask.Tool+", because (Enter; Esc goes back): "+string(d.line.text)+"▏")
	case d.mode == responding:
		add("t", Yellow, "in place of "+d.ask.Tool+"'s result (Enter; Esc goes back): "+string(d.line.text)+"▏")
	case len(asks) > 0:
		blocks = askBlocks(asks[0], len(asks))
	}
	if d.note != "" {
		add("!", Yellow, d.note)
	}
	return blocks
}

func askBlocks(a Ask, n int) []Block {
	title := a.Tool + " waits for you"
	if n > 1 {
		title += fmt.Sprintf(" (1 of %d)", n)
	}
	if a.Thread != "" {
		title = join(": ", a.Agent, title)
	}
	blocks := []Block{{Mark: "?", Style: Yellow, Text: join(": ", title, a.Reason), Tone: Bold, Gap: true}}
	for _, line := range argLines(a.Args) {
		blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: line, One: true, Indent: 2})
	}
	var keys []string
	for _, k := range []struct{ decision, text string }{
		{api.DecisionApprove, "a approve"},
		{api.DecisionApprove, "A always"},
		{api.DecisionEdit, "e edit"},
		{api.DecisionReject, "r reject"},
		{api.DecisionRespond, "t respond"},
	} {
		if a.Allows(k.decision) {
			keys = append(keys, k.text)
		}
	}
	return append(blocks, Block{Text: strings.Join(keys, " · "), Tone: Cyan, Indent: 2})
}

// argLines are the first of allArgLines.
func argLines(args json.RawMessage) []string { return cutLines(allArgLines(args)) }

// allArgLines shows arguments for people: one line a key, long values on lines
// of their own.
func allArgLines(args json.RawMessage) []string {
	var lines []string
	d := json.NewDecoder(bytes.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return strings.Split(Clean(string(args)), "\n")
	}
	for d.More() {
		name, err := d.Token()
		var raw json.RawMessage
		if err != nil || d.Decode(&raw) != nil {
			break
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		text = strings.TrimRight(Clean(text), "\n")
		if strings.Contains(text, "\n") {
			text = "\n" + text
		}
		lines = append(lines, strings.Split(fmt.Sprintf("%s: %s", Clean(fmt.Sprint(name)), text), "\n")...)
	}
	return lines
}

func cutLines(lines []string) []string {
	if len(lines) <= argsLinesMax {
		return lines
	}
	return append(lines[:argsLinesMax:argsLinesMax], fmt.Sprintf("… %d more lines (e shows all)", len(lines)-argsLinesMax))
}
