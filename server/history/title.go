package history

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/workspace"
)

// titleOf says in a few words of what a revision is the result: of an agent's
// tool call the tool and what it was for, not its arguments as JSON.
func titleOf(r workspace.Revision) string {
	label := clip.Text(r.Label, labelMax)
	if name, rest, ok := strings.Cut(label, " {"); ok && toolName.MatchString(name) {
		if about, after := aboutOf("{" + rest); about != "" {
			return strings.Join(strings.Fields(name+" "+about), " ") + after
		} else if after != "" || rest == "}" {
			return name + after
		}
	}
	switch {
	case label != "":
		return label
	case r.Actor == workspace.Outside:
		return "changed outside"
	}
	return "changed"
}

var toolName = regexp.MustCompile(`^[\w.-]+$`)

// tellingArgs are the names of arguments that say what a call is for, the best
// first. Of one without any of them the first text does.
var tellingArgs = []string{"command", "cmd", "file_path", "path", "pattern"}

// pair is a text in an object at its beginning; the last one may be cut.
var pair = regexp.MustCompile(`"(\w+)"\s*:\s*"((?:[^"\\]|\\.)*)(?:"|\\?…?$)`)

// aboutOf returns what the arguments of a call are about, and what follows them.
// They may be cut anywhere.
func aboutOf(args string) (about, after string) {
	d := json.NewDecoder(strings.NewReader(args))
	var whole json.RawMessage
	if d.Decode(&whole) == nil {
		args, after = string(whole), args[d.InputOffset():]
	}
	best := len(tellingArgs) + 1
	for _, m := range pair.FindAllStringSubmatch(args, -1) {
		rank := slices.Index(tellingArgs, m[1])
		if rank < 0 {
			rank = len(tellingArgs)
		}
		if rank >= best || m[2] == "" {
			continue
		}
		best, about = rank, m[2]
		var plain string
		if json.Unmarshal([]byte(`"`+about+`"`), &plain) == nil {
			about = plain
		}
	}
	return about, after
}

// byUser begins the Actor of a person's change; its id follows, and behind a space its name.
const byUser = "user:"

// whoOf says who made a revision, for people.
func whoOf(r workspace.Revision) string {
	key, byAPI := strings.CutPrefix(r.Actor, "api:")
	switch {
	case byAPI:
		return "API (" + clip.Text(key, labelMax) + ")"
	case r.Actor == "agent":
		return "the agent"
	case r.Actor == "user" || strings.HasPrefix(r.Actor, byUser):
		id, name, _ := strings.Cut(strings.TrimPrefix(r.Actor, byUser), " ")
		if name != "" && (strings.HasPrefix(id, "key_") || strings.HasPrefix(id, "usr_")) {
			return clip.Text(name, labelMax)
		}
		return "by hand"
	case r.Run != "" && r.Call == "" && r.Undoes == 0:
		return "your message"
	case r.Actor == "" || r.Actor == workspace.Outside:
		return "unknown"
	}
	return clip.Text(r.Actor, labelMax)
}
