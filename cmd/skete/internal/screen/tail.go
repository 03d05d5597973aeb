package screen

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/thread"
)

// Bounds of what changes on the screen.
const (
	outputLinesMax = 3 // of a running call
	runningMax     = 8
	todosShown     = 6
)

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (v View) spin() string {
	return string(spinner[int(v.Now.UnixMilli()/100)%len(spinner)])
}

// Tail is what is happening now: it is drawn again whenever it changes. help
// is shown at the foot. It has at most Height-1 lines; when that is too few,
// the beginning gives way.
func (s *Story) Tail(v View, dialog []Block, help string) []string {
	if s.ended != nil || s.began.IsZero() {
		return nil
	}
	var top []Block
	own := s.branch("")
	if text := strings.TrimSpace(Clean(own.text)); text != "" {
		top = append(top, Block{Text: text, Gap: true})
	}
	top = append(top, s.work(v, own)...)
	top = append(top, s.inBackground(own)...)
	var foot []Block
	foot = append(foot, dialog...)
	if len(s.todos) > 0 && len(dialog) == 0 {
		foot = append(foot, todoBlocks(window(s.todos), 0)...)
	}
	foot = append(foot, Block{Text: join(" · ", s.numbers(v.Now), filled(own.window.Total, own.window.Window), s.place), Tone: Dim, Note: help, Weak: true, One: true})
	head, end := v.Render(top), v.Render(foot)
	most := max(v.Height-1, 1)
	if len(end) > most {
		end = end[len(end)-most:]
	}
	if len(head) > most-len(end) {
		head = head[len(head)-(most-len(end)):]
	}
	return append(head, end...)
}

// work is what the run and its sub-agents do.
func (s *Story) work(v View, own *branch) []Block {
	var blocks []Block
	for _, c := range own.writing {
		title := join("  ", c.tool, strings.TrimSpace(Clean(c.written)))
		blocks = append(blocks, Block{Mark: v.spin(), Style: Cyan, Text: title, Tone: Dim, One: true, Indent: 2})
	}
	for _, c := range own.running[:min(len(own.running), runningMax)] {
		if s.waits("", c.id) {
			continue
		}
		blocks = append(blocks, Block{Mark: v.spin(), Style: Cyan, Text: c.title(), Note: span(v.Now.Sub(c.started)), One: true, Indent: 2})
		blocks = append(blocks, s.beneath(v, c)...)
	}
	if len(blocks) == 0 && own.text == "" && len(s.asks) == 0 {
		what := "waiting for the model"
		if own.thinking != "" {
			what = "thinking"
		}
		blocks = append(blocks, Block{Mark: v.spin(), Style: Cyan, Text: what, Tone: Dim, Note: since(v.Now, own.since), One: true, Indent: 2})
		for _, line := range lastLines(Clean(own.thinking), 1) {
			blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: line, Tone: Dim, One: true, Indent: 4})
		}
	}
	return blocks
}

func since(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return span(now.Sub(then))
}

func (s *Story) waits(id, call string) bool {
	return slices.ContainsFunc(s.asks, func(a Ask) bool { return a.Thread == id && a.Call == call })
}

// beneath is what a running call shows: the end of its output, or its sub-agents.
func (s *Story) beneath(v View, c *call) []Block {
	var blocks []Block
	for _, line := range lastLines(Clean(c.output), outputLinesMax) {
		blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: line, Tone: Dim, One: true, Indent: 4})
	}
	return append(blocks, s.agents(func(id string) bool { return strings.Contains(id+"/", "/"+c.id+"/") })...)
}

// agents are the sub-agents of some threads that are at work.
func (s *Story) agents(of func(id string) bool) []Block {
	var blocks []Block
	for _, id := range slices.Sorted(maps.Keys(s.branches)) {
		br := s.branches[id]
		if id == "" || br.ended || br.counted || !of(id) {
			continue
		}
		blocks = append(blocks, Block{Mark: "↳", Style: Dim, Text: join(": ", br.agent, br.now()), Note: count(br.steps, "step"), Tone: Dim, One: true, Indent: 2 + 2*strings.Count(id, "/")})
	}
	return blocks
}

// inBackground are sub-agents whose call has ended already.
func (s *Story) inBackground(own *branch) []Block {
	return s.agents(func(id string) bool {
		return !slices.ContainsFunc(own.running, func(c *call) bool { return strings.Contains(id+"/", "/"+c.id+"/") })
	})
}

// now says in a few words what a sub-agent does.
func (br *branch) now() string {
	switch {
	case len(br.running) > 0:
		return br.running[len(br.running)-1].title()
	case br.failure != "":
		return br.failure
	}
	for _, line := range lastLines(Clean(br.text), 1) {
		return line
	}
	return "waiting for the model"
}

// window chooses the todos around what is being done.
func window(todos []thread.Todo) []thread.Todo {
	at := slices.IndexFunc(todos, func(t thread.Todo) bool { return t.Status != "completed" })
	if at < 0 {
		at = len(todos)
	}
	begin := max(0, min(at-1, len(todos)-todosShown))
	return todos[begin:min(len(todos), begin+todosShown)]
}
