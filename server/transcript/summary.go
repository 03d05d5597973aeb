package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skete-dev/skete/internal/clip"
)

// Summary says in one line what a call does: a command, a path, else the
// arguments as JSON. It holds no control characters.
func Summary(tool string, args json.RawMessage) string {
	var m map[string]any
	if len(args) > argsParseMax || json.Unmarshal(args, &m) != nil {
		return clip.Line(string(args), argsBytesMax)
	}
	if s := known(m); s != "" {
		return clip.Line(s, argsBytesMax)
	}
	if todos, ok := m["todos"].([]any); ok {
		return fmt.Sprintf("%d todos", len(todos))
	}
	if len(m) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Compact(&b, args) != nil {
		return clip.Line(string(args), argsBytesMax)
	}
	return clip.Line(b.String(), argsBytesMax)
}

// argsParseMax: arguments that are larger are not looked into.
const argsParseMax = 1 << 20

// known summarises arguments by the names that tools commonly use.
func known(m map[string]any) string {
	text := func(names ...string) string {
		for _, n := range names {
			if s, ok := m[n].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	if s := text("command", "cmd"); s != "" {
		return s
	}
	if s := text("question", "plan"); s != "" {
		return s
	}
	file := text("file_path", "path")
	switch {
	case text("pattern") != "" && file != "":
		return text("pattern") + " in " + file
	case text("pattern") != "":
		return text("pattern")
	case file != "" && m["content"] != nil:
		return fmt.Sprintf("%s (%d bytes)", file, len(text("content")))
	case file != "":
		return file
	case text("description") != "" && text("subagent_type") != "":
		return text("subagent_type") + ": " + text("description")
	}
	return ""
}
