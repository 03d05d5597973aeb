package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/jsontext"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/llm"
)

// reminder ends each problem.
const reminder = ` Nothing was done. Reply with exactly one JSON object: {"action": "NAME", "args": {…}} or {"done": true, "result": …}.`

func problem(format string, args ...any) Problem {
	return Problem(fmt.Sprintf(format, args...) + reminder)
}

// Parse reads a reply. specs are the tools that there are.
func Parse(text string, specs []llm.ToolSpec) (Action, Problem) {
	if len(text) > replyBytesMax {
		return Action{}, problem("Your reply is larger than %d KiB.", replyBytesMax>>10)
	}
	object, p := find(text)
	if p != "" {
		return Action{}, p
	}
	fields, p := split(object)
	if p != "" {
		return Action{}, p
	}
	a, p := read(fields, specs)
	if p != "" {
		return Action{}, p
	}
	a.Raw = text
	return a, ""
}

// find cuts the one object out of a reply.
func find(text string) (string, Problem) {
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return "", problem("Your reply is empty.")
	}
	var found []string
	end, broken := 0, ""
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '{')
		if i < 0 {
			break
		}
		at += i
		n, depth := jsontext.Extent(text[at:])
		if depth > depthMax {
			return "", problem("Your JSON is nested deeper than %d.", depthMax)
		}
		if n == 0 {
			if speaks(text[at:]) {
				return "", problem("The JSON object in your reply is cut off: it is never closed. Write less at once, for example a file in several parts.")
			}
			at++
			continue
		}
		part := repair(text[at : at+n])
		switch valid := json.Valid([]byte(part)); {
		case valid && isAction(part):
			found = append(found, part)
			end = at + n
		case speaks(part) && broken == "":
			broken = part
		}
		at += n
	}
	switch {
	case len(found) > 1:
		return "", problem("There are %d JSON objects in your reply; one action at a time.", len(found))
	case broken != "":
		return "", problem("The JSON in your reply is wrong: %s.", why(broken))
	case len(found) == 0:
		return "", problem("There is no JSON object with \"action\" or \"done\" in your reply.")
	}
	rest := text[end:]
	if strings.ContainsAny(rest, "{}") {
		return "", problem("There is something behind the JSON object: %q.", clip.Text(strings.TrimSpace(rest), quoteMax))
	}
	return found[0], ""
}

// repair writes line breaks and tabs inside of texts as JSON wants them.
func repair(s string) string {
	if json.Valid([]byte(s)) {
		return s
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quoted && c == '\\' && i+1 < len(s):
			b.WriteByte(c)
			i++
			b.WriteByte(s[i])
			continue
		case c == '"':
			quoted = !quoted
		case quoted && c == '\n':
			b.WriteString(`\n`)
			continue
		case quoted && c == '\r':
			b.WriteString(`\r`)
			continue
		case quoted && c == '\t':
			b.WriteString(`\t`)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// speaks reports whether a text looks like an action, good or not.
func speaks(s string) bool {
	head := s[:min(len(s), 400)]
	return strings.Contains(head, `"action"`) || strings.Contains(head, `"done"`) ||
		strings.Contains(head, `'action'`) || strings.Contains(head, `'done'`)
}

func isAction(s string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &o) != nil {
		return false
	}
	return o["action"] != nil || o["done"] != nil
}

// why says what is wrong with JSON, and where.
func why(s string) string {
	err := json.Unmarshal([]byte(s), new(any))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at := int(min(max(syntax.Offset, 1), int64(len(s))))
		return fmt.Sprintf("%s, near %q", syntax.Error(), clip.Text(s[max(0, at-20):min(len(s), at+20)], quoteMax))
	}
	return "it cannot be read"
}

// split reads the keys of an object; each may be there once.
func split(object string) (map[string]json.RawMessage, Problem) {
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, problem("The JSON in your reply is wrong: %s.", why(object))
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, problem("The JSON in your reply is wrong: %s.", why(object))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, problem("The JSON in your reply is wrong: %s.", why(object))
		}
		if _, twice := fields[key]; twice {
			return nil, problem("The key %q is there twice.", clip.Text(key, quoteMax))
		}
		fields[key] = value
	}
	return fields, ""
}

var keys = []string{"action", "args", "done", "result", "thought"}

// read makes sense of the keys.
func read(fields map[string]json.RawMessage, specs []llm.ToolSpec) (Action, Problem) {
	var done bool
	if raw, has := fields["done"]; has && json.Unmarshal(raw, &done) != nil {
		return Action{}, problem("\"done\" should be true or false.")
	}
	_, acts := fields["action"]
	switch {
	case done && acts:
		return Action{}, problem("There is both an action and \"done\"; finish the actions first.")
	case done:
		return Action{Done: true, Result: fields["result"]}, unknown(fields)
	case !acts:
		return Action{}, problem("There is neither an action nor \"done\": true.")
	}
	var name string
	if json.Unmarshal(fields["action"], &name) != nil {
		return Action{}, problem("\"action\" should be the name of a tool, as a text.")
	}
	at := slices.IndexFunc(specs, func(s llm.ToolSpec) bool { return s.Name == name })
	if at < 0 {
		return Action{}, problem("There is no tool %q%s The tools are: %s.", clip.Text(name, quoteMax), meant(name, specs), strings.Join(names(specs), ", "))
	}
	if p := unknown(fields); p != "" {
		return Action{}, p
	}
	args, p := argsOf(fields["args"], specs[at])
	return Action{Name: name, Args: args}, p
}

func meant(name string, specs []llm.ToolSpec) string {
	if s := yamlfile.Suggest(name, names(specs)); s != "" {
		return s
	}
	return "."
}

func names(specs []llm.ToolSpec) []string {
	list := make([]string, len(specs))
	for i, s := range specs {
		list[i] = s.Name
	}
	return list
}

// unknown complains about keys that mean nothing: they are usually arguments
// in the wrong place, and to drop one would be to act on half of what was said.
func unknown(fields map[string]json.RawMessage) Problem {
	var extra []string
	for key := range fields {
		if !slices.Contains(keys, key) {
			extra = append(extra, fmt.Sprintf("%q", clip.Text(key, quoteMax)))
		}
	}
	if len(extra) == 0 {
		return ""
	}
	slices.Sort(extra)
	return problem("The keys %s do not belong beside \"action\"; arguments stand inside of \"args\".", strings.Join(extra[:min(len(extra), 5)], ", "))
}

// argsOf checks that arguments are an object with what the tool needs.
func argsOf(raw json.RawMessage, spec llm.ToolSpec) (json.RawMessage, Problem) {
	if raw == nil || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		raw = json.RawMessage(quoted) // JSON in a text
	}
	if _, depth := jsontext.Extent(string(raw)); depth > depthMax {
		return nil, problem("Your JSON is nested deeper than %d.", depthMax)
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil || given == nil {
		return nil, problem("\"args\" of %s should be a JSON object.", spec.Name)
	}
	var schema struct {
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(spec.Schema, &schema) // a tool's own schema; without one nothing is required
	var missing []string
	for _, name := range schema.Required {
		if _, has := given[name]; !has {
			missing = append(missing, fmt.Sprintf("%q", name))
		}
	}
	if len(missing) > 0 {
		return nil, problem("The args of %s lack %s.", spec.Name, strings.Join(missing, " and "))
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil, problem("\"args\" of %s should be a JSON object.", spec.Name)
	}
	return b.Bytes(), ""
}
