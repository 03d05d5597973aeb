// Package yamlfile reads small YAML files that people write, strictly: what is
// not known, written twice or of the wrong kind is refused with its place in
// the file and, where something similar exists, the word that was probably
// meant. All mistakes of a file are reported together.
//
//	var d Definition
//	at, err := yamlfile.Decode("agents/a.yaml", data, &d)
//	// agents/a.yaml:3:1: "modell" is not a key here; did you mean "model"?
//
// Fields are named by their yaml tag; "-" is skipped, ",inline" lifts the keys
// of an embedded struct. Durations are texts ("10m"). Values of type any and
// map[string]any come out as encoding/json would have made them, so that they
// survive a round trip through JSON. References (&x, *x, <<), tags and a second
// document are not taken: with them a small file can unfold to a huge one.
//
// Everything here is pure and safe for concurrent use.
package yamlfile

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/skete-dev/skete/errs"
)

// Bounds of a file.
const (
	BytesMax    = 64 << 10 // of a file
	depthMax    = 24       // of lists and maps in each other
	rowMax      = 2000     // lines of a large file that begin beneath each other
	problemsMax = 20       // that are reported
	quoteMax    = 60       // bytes that a problem repeats
)

// Pos is a place in a file, counted from 1; zero = not known.
type Pos struct{ Line, Column int }

// Positions maps the path of a value ("approvals[0].action") to its place.
type Positions map[string]Pos

// Of returns the place of a path, or of the nearest thing around it.
func (p Positions) Of(path string) Pos {
	for {
		if at, ok := p[path]; ok || path == "" {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// Problem is one mistake in a file.
type Problem struct {
	At   Pos
	Path string // of the value, where it is known: "approvals[0].action"
	Text string
}

// Problems are the mistakes of a file in the order in which they were found.
type Problems struct {
	name string
	path string // of the value that is being decoded
	list []Problem
}

// NewProblems returns an empty list for a file of this name.
func NewProblems(name string) *Problems { return &Problems{name: name} }

// Add notes a mistake.
func (p *Problems) Add(at Pos, format string, args ...any) {
	p.AddTo(p.path, at, format, args...)
}

// AddTo notes a mistake in the value of a path.
func (p *Problems) AddTo(path string, at Pos, format string, args ...any) {
	if len(p.list) < problemsMax {
		p.list = append(p.list, Problem{at, path, fmt.Sprintf(format, args...)})
	}
}

// List returns the mistakes.
func (p *Problems) List() []Problem { return p.list }

// Err returns nil without mistakes, else an Invalid error with one line each.
func (p *Problems) Err() error {
	if len(p.list) == 0 {
		return nil
	}
	lines := make([]string, len(p.list))
	for i, q := range p.list {
		lines[i] = Where(p.name, q.At) + ": " + q.Text
	}
	return errs.New(errs.Invalid, "%s", strings.Join(lines, "\n"))
}

// Where writes "name:line:column", or the name alone.
func Where(name string, at Pos) string {
	if at.Line == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d:%d", name, at.Line, at.Column)
}

// Decode reads data into the struct that into points to. name is for messages.
// The error is Invalid.
func Decode(name string, data []byte, into any) (Positions, error) {
	problems := NewProblems(name)
	at := problems.Decode(data, BytesMax, into)
	return at, problems.Err()
}

// Decode reads data of up to bytesMax into the struct that into points to, and notes the
// mistakes.
func (p *Problems) Decode(data []byte, bytesMax int, into any) Positions {
	d := decoder{at: Positions{}, problems: p}
	d.file(p.parse(data, bytesMax), into)
	return d.at
}

// Split cuts Markdown with front matter ("---", YAML, "---") into the two. The
// front keeps its line numbers. found is false when there is no front matter.
func Split(data []byte) (front, body []byte, found bool) {
	rest, ok := bytes.CutPrefix(data, []byte("\ufeff"))
	if !ok {
		rest = data
	}
	first, rest, _ := bytes.Cut(rest, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return nil, data, false
	}
	for at := 0; at < len(rest); {
		line, _, _ := bytes.Cut(rest[at:], []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" {
			body = rest[min(len(rest), at+len(line)+1):]
			return append([]byte("\n"), rest[:at]...), body, true
		}
		at += len(line) + 1
	}
	return nil, data, false
}

// parse returns the only document's body, nil for an empty file and a broken one.
func (p *Problems) parse(data []byte, bytesMax int) (body ast.Node) {
	if len(data) > bytesMax {
		p.Add(Pos{}, "larger than %d KiB", bytesMax>>10)
		return nil
	}
	if at, ok := tooDeep(data); ok {
		p.Add(at, "nested deeper than %d", depthMax)
		return nil
	}
	if at, ok := tooLong(data); ok && len(data) > BytesMax {
		p.Add(at, "more than %d lines begin beneath each other here; keys and texts so long are not taken", rowMax)
		return nil
	}
	// The parser is third-party code and has met fewer broken files than ours
	// will: a panic there is a broken file, not a broken server.
	defer func() {
		if r := recover(); r != nil {
			body = nil
			p.Add(Pos{}, notYAML)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		p.syntax(err)
		return nil
	}
	for i, doc := range file.Docs {
		if i > 0 && doc.Body != nil {
			p.Add(place(doc.Body), "there is a second document behind ---")
			return nil
		}
	}
	if len(file.Docs) == 0 {
		return nil
	}
	return file.Docs[0].Body
}

const notYAML = "this is no YAML"

func (p *Problems) syntax(err error) {
	at, text := Pos{}, notYAML
	if y, ok := err.(yaml.Error); ok { //nolint:errorlint // the parser returns it unwrapped
		text = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			at = Pos{t.Position.Line, t.Position.Column}
		}
	}
	p.Add(at, "%s", text)
}

// tooDeep refuses deep nesting before a recursive parser meets it: brackets
// are counted wherever they stand, indentation by its width.
func tooDeep(data []byte) (Pos, bool) {
	open := 0
	line, column := 1, 0
	indent := true
	for _, c := range data {
		column++
		switch c {
		case '\n':
			line, column, indent = line+1, 0, true
			continue
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		}
		// Only a structure that really nests needs more; text may be indented freely.
		if open > 8*depthMax {
			return Pos{line, column}, true
		}
		if indent = indent && (c == ' ' || c == '-' || c == '?' || c == ':'); indent && column > 64*depthMax {
			return Pos{line, column}, true
		}
	}
	return Pos{}, false
}

// tooLong refuses long maps before the parser meets them, which takes time with the square
// of their length. What a line is cannot be told so early, only that keys of one map begin
// in one column, with nothing left of it between them.
func tooLong(data []byte) (Pos, bool) {
	type row struct{ column, lines int }
	var open []row // each further to the right than the one before
	end := func(column int) {
		for len(open) > 0 && open[len(open)-1].column > column {
			open = open[:len(open)-1]
		}
	}
	number := 0
	for text := range bytes.SplitSeq(data, []byte("\n")) {
		number++
		for line := range bytes.SplitSeq(text, []byte("\r")) { // the parser ends lines there too
			column := 0
			for ; column < len(line) && strings.IndexByte(" -?", line[column]) >= 0; column++ {
				if line[column] == '-' {
					end(column) // what follows begins another map
				}
			}
			if column == len(line) || line[column] == '#' {
				continue
			}
			end(column)
			if len(open) == 0 || open[len(open)-1].column < column {
				open = append(open, row{column: column})
			}
			last := &open[len(open)-1]
			if last.lines++; last.lines > rowMax {
				return Pos{number, column + 1}, true
			}
		}
	}
	return Pos{}, false
}
