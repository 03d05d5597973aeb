package definition

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// FileBytesMax bounds a file.
const FileBytesMax = yamlfile.BytesMax

// Parse reads a definition. file is its path: what is read depends on the
// ending (.yaml, .yml, or .md for Markdown with front matter, whose body is the
// instructions), the name of the agent is the file's unless stated, and every
// mistake is reported with file:line:column. JSON with the same keys is YAML.
// The error is Invalid and lists all mistakes, one a line. tools are the names of
// those that there are; nil = they are not looked at.
func Parse(file string, data []byte, tools []string) (Definition, error) {
	return Checker{Tools: tools}.Parse(file, data)
}

// Checker reads and validates definitions where there are tools beside the built-in
// ones.
type Checker struct {
	Tools []string // names; nil = they are not looked at
	// Covers reports whether a name, or a glob, can stand for another tool; nil = there
	// are no others.
	Covers func(name string) bool
}

// Parse is the function Parse with these tools.
func (c Checker) Parse(file string, data []byte) (Definition, error) {
	var d Definition
	front, body, markdown := data, []byte(nil), strings.EqualFold(path.Ext(file), ".md")
	problems := yamlfile.NewProblems(file)
	if len(data) > FileBytesMax {
		problems.Add(yamlfile.Pos{}, "larger than %d KiB", FileBytesMax>>10)
		return Definition{}, problems.Err()
	}
	if markdown {
		var found bool
		if front, body, found = yamlfile.Split(data); !found {
			problems.Add(yamlfile.Pos{Line: 1, Column: 1}, "the file should begin with --- and keys, and --- again before the instructions")
			return Definition{}, problems.Err()
		}
	}
	at, err := yamlfile.Decode(file, front, &d)
	if err != nil {
		return Definition{}, err
	}
	if text := strings.TrimSpace(string(body)); text != "" {
		if d.Instructions != "" {
			problems.Add(at.Of("instructions"), "the instructions are there twice: as a key, and below the second ---")
		}
		d.Instructions = text
	}
	d.Instructions = strings.TrimSpace(d.Instructions)
	if d.Name == "" {
		d.Name = strings.TrimSuffix(path.Base(file), path.Ext(file))
	}
	if d.Tools != nil && len(d.Tools) == 0 {
		d.Tools = []string{noTools}
	}
	for _, p := range c.Validate(d) {
		if !p.Warning {
			problems.Add(at.Of(p.Path), "%s", p.Text)
		}
	}
	if err := problems.Err(); err != nil {
		return Definition{}, err
	}
	return d, nil
}

// noTools is what an empty list of tools means; as a list without elements it would
// be lost on the way, and mean all.
const noTools = "!*"

// JSON returns a definition with the same keys as JSON, for those who send it
// along: Parse of both is the same. The name is in it, and in Markdown the
// instructions. Errors are those of Parse.
func JSON(file string, data []byte) (json.RawMessage, error) {
	d, err := Parse(file, data, nil)
	if err != nil {
		return nil, err
	}
	front := data
	if strings.EqualFold(path.Ext(file), ".md") {
		front, _, _ = yamlfile.Split(data)
	}
	keys := map[string]any{}
	if err := yaml.Unmarshal(front, &keys); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%s: it cannot be written as JSON", file)
	}
	keys["name"] = d.Name
	if d.Instructions != "" {
		keys["instructions"] = d.Instructions
	}
	sent, err := json.Marshal(keys)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%s: it cannot be written as JSON", file)
	}
	return sent, nil
}
