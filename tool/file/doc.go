// Package file has the tools that act on files: ls, read_file, write_file,
// edit_file, delete, glob and grep, with the arguments, windows and codes of
// deepagents 0.7, and list_files for models that only write strict JSON.
//
//	file.Add(registry)
//
// Where the files are is tool.Env's Files. A call locks what it touches, and
// writes only what it planned on: write_file and edit_file note the hash of
// the file before and after (tool.Planner), so that a call which is run again
// after a crash sees whether it had been done, and two agents that edit
// different parts of one file both succeed.
//
// Results are bounded by Env.ResultBytesMax and say how to see the rest; they
// are Whole. Tools are safe for concurrent use.
package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

const resultBytesDefault = 80_000

// Add adds the file tools.
func Add(r *tool.Registry) {
	for _, d := range definitions {
		add := r.Add
		if d.hidden {
			add = r.AddHidden
		}
		add(d.name, func(env tool.Env) (tool.Tool, error) {
			if env.Files == nil {
				return nil, errs.New(errs.Unsupported, "%s needs files, and this agent has none", d.name)
			}
			if env.ResultBytesMax <= 0 {
				env.ResultBytesMax = resultBytesDefault
			}
			return d.make(base{env: env, spec: d.spec(env)}), nil
		})
	}
}

// definition is what a tool of this package is made of.
type definition struct {
	name, about string
	shows       bool // files that are no text too, as far as the model sees them
	schema      string
	hidden      bool
	make        func(base) tool.Tool
}

func (d definition) spec(env tool.Env) llm.ToolSpec {
	schema := strings.ReplaceAll(strings.NewReplacer("\n", "", "\t", "").Replace(d.schema), "the working directory", jsonText(searchDir(env)))
	about := d.about
	if d.shows {
		about += shown(env)
	}
	return llm.ToolSpec{Name: d.name, Description: about, Schema: json.RawMessage(schema)}
}

// shown says what is shown of files that are no text.
func shown(env tool.Env) string {
	switch {
	case env.Documents:
		return " Images and PDFs are shown to you."
	case env.Media && env.Commands != nil:
		return " Images are shown to you, and the text of PDFs."
	case env.Media:
		return " Images are shown to you."
	case env.Commands != nil:
		return " Of PDFs you get the text."
	}
	return ""
}

// jsonText is s as it stands inside of a JSON string.
func jsonText(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b[1 : len(b)-1])
}

func searchDir(env tool.Env) string {
	if env.Dir == "" {
		return "/"
	}
	return env.Dir
}

// base is what all tools share.
type base struct {
	env  tool.Env
	spec llm.ToolSpec
}

// Spec implements tool.Tool.
func (b base) Spec() llm.ToolSpec { return b.spec }

// reads is the effect of a tool that looks at a path; of arguments that have
// none, of one that looks at everything.
func reads(p string) tool.Effect {
	return tool.Effect{Class: tool.Read, Touches: []tool.Touch{{Path: orAll(p)}}}
}

// writes is the effect of a tool that changes what is at a path.
func writes(p string) tool.Effect {
	return tool.Effect{Class: tool.Keyed, Touches: []tool.Touch{{Path: orAll(p), Write: true}}}
}

func orAll(p string) string {
	if clean, err := tool.CleanPath(p); err == nil {
		return clean
	}
	return "/"
}

// decode reads arguments that were checked against the schema already.
func decode[T any](args json.RawMessage) (T, *tool.Result) {
	var v T
	if err := json.Unmarshal(args, &v); err != nil {
		r := tool.Fail(tool.CodeArgs, "the arguments cannot be read")
		return v, &r
	}
	return v, nil
}

// clean checks the path of a call. A relative one is answered with what it
// may have meant.
func (b base) clean(p string) (string, *tool.Result) {
	clean, err := tool.CleanPath(p)
	if err == nil {
		return clean, nil
	}
	r, _ := failed(err)
	if meant, err := tool.CleanPath(searchDir(b.env) + "/" + strings.TrimPrefix(p, "~/")); err == nil && p != "" {
		r.Blocks[0].Text += "; did you mean " + show(meant) + "?"
	}
	return "", &r
}

var phrases = map[string]string{
	tool.CodeNotFound:    "there is no such file or directory",
	tool.CodeDenied:      "permission denied",
	tool.CodeIsDirectory: "it is a directory, not a file",
	tool.CodeInvalidPath: "the path cannot be used",
	tool.CodeConflict:    "the file has changed",
	tool.CodeTooLarge:    "it is too large",
	tool.CodeArgs:        "the arguments cannot be used",
}

// failed turns a backend's error into a result, or into the platform's error.
func failed(err error) (tool.Result, error) {
	fe, ok := errors.AsType[*tool.FileError](err)
	switch {
	case ok:
		text := "Error: " + fe.Code + ": " + show(fe.Path) + ": " + phrases[fe.Code]
		if fe.Hint != "" {
			text += " (" + fe.Hint + ")"
		}
		return whole(tool.Fail(fe.Code, text)), nil
	case errors.Is(err, context.DeadlineExceeded):
		return whole(tool.Fail(tool.CodeTimeout, "Error: timeout: this took too long; search a smaller part")), nil
	}
	return tool.Result{}, err
}

func whole(r tool.Result) tool.Result {
	r.Whole = true
	return r
}

// show writes a path so that it stays on its line.
func show(p string) string {
	if strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(p)
	}
	return p
}

// page joins lines as long as they fit. left is how many did not.
func page(lines []string, bytesMax int) (text string, left int) {
	var b strings.Builder
	for i, l := range lines {
		if b.Len()+len(l)+1 > bytesMax && i > 0 {
			return b.String(), len(lines) - i
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(l)
	}
	return b.String(), 0
}

// results shows lines, and says what was left out.
func (b base) results(lines []string, truncated bool, narrow string) tool.Result {
	text, left := page(lines, b.env.ResultBytesMax)
	switch {
	case left > 0:
		text += fmt.Sprintf("\n\n[results truncated: %d more lines are not shown; %s]", left, narrow)
	case truncated:
		text += fmt.Sprintf("\n\n[results truncated: there are more; %s]", narrow)
	}
	return whole(tool.Text(text))
}
