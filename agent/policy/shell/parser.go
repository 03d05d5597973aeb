package shell

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// bracketsMax bounds the brackets that are open at a time: the syntax package
// recurses, and has no bound of its own.
const bracketsMax = 200

// parser walks what the syntax package made of a source.
type parser struct {
	src   string
	depth int
	out   *Script
}

// opaque ends parsing: from here on it is not known what happens.
func (p *parser) opaque(why string) {
	if p.out.Opaque == "" {
		p.out.Opaque = why
	}
}

func (p *parser) lost() bool { return p.out.Opaque != "" }

// sub parses a script that a command starts.
func (p *parser) sub(src string) {
	if p.depth+1 > depthMax {
		p.opaque("it is nested too deep")
		return
	}
	q := &parser{src: src, out: p.out, depth: p.depth + 1}
	q.script()
}

// script parses the source. What cannot be parsed leaves the statements before
// it: a shell runs those.
func (p *parser) script() {
	switch {
	case len(p.src) > bytesMax:
		p.opaque("the line is too long")
	case strings.IndexByte(p.src, 0) >= 0:
		p.opaque("a zero byte")
	case strings.IndexByte(p.src, '\r') >= 0: // the syntax package takes \r\n for a line end, a shell does not
		p.opaque("a carriage return")
	case brackets(p.src) > bracketsMax:
		p.opaque("it is nested too deep")
	}
	if p.lost() {
		return
	}
	stmts, err := parse(p.src)
	p.stmts(stmts)
	if e, ok := errors.AsType[syntax.ParseError](err); ok {
		p.opaque(e.Text)
	} else if err != nil {
		p.opaque(err.Error())
	}
}

// parse returns the statements before the first error, not one by one: the text of
// a here-document comes after its statement.
func parse(src string) (stmts []*syntax.Stmt, err error) {
	// The parser has met fewer broken lines than ours will: a panic there is a
	// line that is not understood.
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("it cannot be parsed")
		}
	}()
	// Not in a for statement: after an error the sequence may go on, and a loop
	// that was left panics.
	syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(src))(func(s *syntax.Stmt, failed error) bool {
		if err == nil {
			err = failed
		}
		if s != nil && err == nil && len(stmts) <= CommandsMax {
			stmts = append(stmts, s)
		}
		return true
	})
	return stmts, err
}

// brackets is how many are open at a time, at most; quotes count as text.
func brackets(src string) (most int) {
	open := 0
	for i := range len(src) {
		switch src[i] {
		case '(', '[', '{':
			open++
			most = max(most, open)
		case ')', ']', '}':
			open = max(0, open-1)
		}
	}
	return most
}

// nested parses one level down.
func (p *parser) nested(parse func()) {
	if p.depth >= depthMax {
		p.opaque("it is nested too deep")
		return
	}
	p.depth++
	parse()
	p.depth--
}

func (p *parser) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		if p.lost() {
			return
		}
		p.stmt(s)
	}
}

// stmt lists the commands of a statement, those in its substitutions first.
func (p *parser) stmt(s *syntax.Stmt) {
	if s == nil {
		return
	}
	var c Command
	var docs []*syntax.Redirect
	for _, r := range s.Redirs {
		if r.Hdoc != nil || r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc {
			docs = append(docs, r)
		}
	}
	p.mixed(s, docs)
	if call, ok := s.Cmd.(*syntax.CallExpr); ok || s.Cmd == nil {
		p.call(&c, call)
		p.redirects(&c, s.Redirs)
		p.emit(c)
	} else {
		p.command(s.Cmd)
		p.redirects(&c, s.Redirs)
		if c.Writes {
			p.emit(c)
		}
	}
	for _, r := range docs {
		p.substitutions(r.Hdoc)
	}
}

// mixed looks for a substitution between the name of a here-document and its
// text: shells do not agree on which text that is.
func (p *parser) mixed(s *syntax.Stmt, docs []*syntax.Redirect) {
	for _, r := range docs {
		end := s.End()
		if r.Hdoc != nil {
			end = r.Hdoc.Pos()
		}
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n.(type) {
			case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ParamExp:
				if n.Pos().After(r.OpPos) && end.After(n.Pos()) {
					p.opaque("a substitution between a here-document's name and its text")
				}
			}
			return !p.lost()
		})
	}
}

// command lists the commands of all that is no simple command.
func (p *parser) command(c syntax.Command) {
	switch c := c.(type) {
	case *syntax.BinaryCmd:
		p.stmt(c.X)
		p.stmt(c.Y)
	case *syntax.Block:
		p.stmts(c.Stmts)
	case *syntax.Subshell:
		p.nested(func() { p.stmts(c.Stmts) })
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			p.stmts(c.Cond)
			p.stmts(c.Then)
		}
	case *syntax.WhileClause:
		p.stmts(c.Cond)
		p.stmts(c.Do)
	case *syntax.ForClause:
		p.loop(c)
	case *syntax.TimeClause:
		p.stmt(c.Stmt)
	case *syntax.TestClause:
		words := append([]Word{{Text: "[["}}, p.test(c.X)...)
		p.emit(Command{Words: append(words, Word{Text: "]]"})})
	case *syntax.DeclClause:
		out := Command{Words: []Word{{Text: c.Variant.Value}}}
		for _, a := range c.Args {
			out.Words = append(out.Words, p.assign(a))
		}
		p.emit(out)
	case *syntax.CaseClause:
		p.opaque("a case statement")
	case *syntax.FuncDecl:
		p.opaque("a function")
	case *syntax.ArithmCmd, *syntax.LetClause:
		p.opaque("arithmetic in brackets")
	default: // coproc, and what other shells have
		p.opaque("a command that is not understood")
	}
}

func (p *parser) loop(c *syntax.ForClause) {
	each, ok := c.Loop.(*syntax.WordIter)
	switch {
	case !ok:
		p.opaque("arithmetic in brackets")
	case c.Select:
		p.opaque("the keyword select")
	default:
		for _, w := range each.Items {
			p.word(w)
		}
		p.stmts(c.Do)
	}
}

// call takes a simple command. c is nil for a redirection alone.
func (p *parser) call(out *Command, c *syntax.CallExpr) {
	if c == nil {
		return
	}
	if len(c.Assigns)+len(c.Args) > wordsMax {
		p.opaque("a command has too many words")
		return
	}
	for _, a := range c.Assigns {
		out.Assigns = append(out.Assigns, p.assign(a))
	}
	for _, w := range c.Args {
		out.Words = append(out.Words, p.word(w))
	}
}

// assign is NAME=value, or an argument of declare and its like.
func (p *parser) assign(a *syntax.Assign) Word {
	switch {
	case a.Array != nil:
		p.opaque("an array")
		return Word{}
	case a.Naked && a.Name == nil:
		return p.word(a.Value)
	case a.Naked:
		return Word{Text: a.Name.Value}
	}
	w := Word{}
	if a.Value != nil {
		w = p.word(a.Value)
	}
	if a.Index != nil {
		p.substitutions(a.Index)
		w.Dynamic = true
	}
	if w.Dynamic {
		return Word{Text: p.text(a), Dynamic: true}
	}
	op := "="
	if a.Append {
		op = "+="
	}
	return Word{Text: a.Name.Value + op + w.Text}
}

// test lists the words and operators of [[ … ]].
func (p *parser) test(x syntax.TestExpr) []Word {
	switch x := x.(type) {
	case *syntax.BinaryTest:
		return append(append(p.test(x.X), Word{Text: x.Op.String()}), p.test(x.Y)...)
	case *syntax.UnaryTest:
		return append([]Word{{Text: x.Op.String()}}, p.test(x.X)...)
	case *syntax.ParenTest:
		return append(append([]Word{{Text: "("}}, p.test(x.X)...), Word{Text: ")"})
	case *syntax.Word:
		return []Word{p.word(x)}
	}
	p.opaque("a test that is not understood")
	return nil
}

// redirects notes whether output goes to a file.
func (p *parser) redirects(c *Command, list []*syntax.Redirect) {
	for _, r := range list {
		w := p.word(r.Word)
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if !literal(r.Word) {
				p.opaque("a here-document whose end is not known")
			}
		case syntax.RdrIn, syntax.WordHdoc, syntax.DplIn:
		case syntax.DplOut:
			if w.Text != "-" && strings.Trim(w.Text, "0123456789") != "" {
				c.Writes = true
			}
		default:
			if w.Dynamic || w.Text != "/dev/null" && w.Text != "/dev/stdout" && w.Text != "/dev/stderr" {
				c.Writes = true
			}
		}
	}
}

// literal reports whether a word holds nothing but text and quotes.
func literal(w *syntax.Word) bool {
	return !slices.ContainsFunc(w.Parts, func(part syntax.WordPart) bool {
		switch part := part.(type) {
		case *syntax.Lit:
			return strings.ContainsAny(part.Value, "$`")
		case *syntax.SglQuoted:
			return part.Dollar
		case *syntax.DblQuoted:
			return part.Dollar || !literal(&syntax.Word{Parts: part.Parts})
		}
		return true
	})
}

// text is a node as it was written.
func (p *parser) text(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	return p.src[min(from, len(p.src)):min(max(from, to), len(p.src))]
}

// word takes a word: its text without quotes, or as it was written if what it is
// shows at run time only.
func (p *parser) word(w *syntax.Word) Word {
	if w == nil {
		return Word{}
	}
	p.substitutions(w)
	raw := p.text(w)
	u := unquoter{brackets: raw == "[" || raw == "[[", braces: raw == "{"}
	if u.parts(w.Parts); u.dynamic {
		return Word{Text: raw, Dynamic: true}
	}
	return Word{Text: u.b.String()}
}

// substitutions lists the commands that run to make what is in a node.
func (p *parser) substitutions(n syntax.Node) {
	if w, ok := n.(*syntax.Word); ok && w == nil {
		return
	}
	inner := 0 // expansions around the node: quotes in them are not always quotes
	var ends []syntax.Node
	syntax.Walk(n, func(n syntax.Node) bool {
		if p.lost() {
			return false
		}
		if n == nil { // the end of the last one that began
			last := ends[len(ends)-1]
			if ends = ends[:len(ends)-1]; expands(last) {
				inner--
			}
			return true
		}
		switch x := n.(type) {
		case *syntax.CmdSubst:
			if x.TempFile || x.ReplyVar {
				p.opaque("commands in ${ }")
				return false
			}
			p.nested(func() { p.stmts(x.Stmts) })
			return false
		case *syntax.ProcSubst:
			p.nested(func() { p.stmts(x.Stmts) })
			return false
		case *syntax.ExtGlob:
			p.opaque("an extended pattern")
			return false
		case *syntax.ArithmExp:
			if x.Bracket {
				p.opaque("old arithmetic")
				return false
			}
		case *syntax.SglQuoted:
			if inner > 0 && strings.ContainsAny(x.Value, "$`") {
				p.opaque("quotes in an expansion")
				return false
			}
		}
		if expands(n) {
			if inner++; p.depth+inner > depthMax {
				p.opaque("it is nested too deep")
				return false
			}
		}
		ends = append(ends, n)
		return true
	})
}

func expands(n syntax.Node) bool {
	switch n.(type) {
	case *syntax.ParamExp, *syntax.ArithmExp:
		return true
	}
	return false
}

// unquoter makes the text of a word.
type unquoter struct {
	b                strings.Builder
	dynamic          bool
	brackets, braces bool // the word is [ or [[, or {: a name
	last             byte // unquoted byte before; 0 = the word's beginning, or a quote
	begun            bool
}

func (u *unquoter) parts(parts []syntax.WordPart) {
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			u.plain(part.Value)
		case *syntax.SglQuoted:
			u.dynamic = u.dynamic || part.Dollar // its escapes can spell anything
			u.b.WriteString(part.Value)
		case *syntax.DblQuoted:
			u.dynamic = u.dynamic || part.Dollar
			u.double(part.Parts)
		default:
			u.dynamic = true
		}
		if _, ok := part.(*syntax.Lit); !ok {
			u.last = '"'
		}
		u.begun = true
	}
}

// plain takes what stands outside of quotes.
func (u *unquoter) plain(s string) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				u.b.WriteByte(s[i])
				u.last, u.begun = '"', true
			}
			continue
		case '*', '?', '[':
			u.dynamic = u.dynamic || !u.brackets
		case '{':
			u.dynamic = u.dynamic || !u.braces && (i+1 == len(s) || s[i+1] != '}')
		case '~':
			u.dynamic = u.dynamic || !u.begun || u.last == '=' || u.last == ':'
		}
		u.b.WriteByte(c)
		u.last, u.begun = c, true
	}
}

// double takes what stands between double quotes.
func (u *unquoter) double(parts []syntax.WordPart) {
	for _, part := range parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			u.dynamic = true
			continue
		}
		for i := 0; i < len(lit.Value); i++ {
			c := lit.Value[i]
			if c == '\\' && i+1 < len(lit.Value) {
				switch next := lit.Value[i+1]; next {
				case '\n':
					i++
					continue
				case '$', '`', '"', '\\':
					i++
					c = next
				}
			}
			u.b.WriteByte(c)
		}
	}
}

// isAssign reports whether a word, as it was written, is NAME=… or NAME+=….
func isAssign(raw string) bool {
	name, _, found := strings.Cut(raw, "=")
	if !found {
		return false
	}
	name = strings.TrimSuffix(name, "+")
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i]
	}
	return name != "" && (name[0] < '0' || name[0] > '9') &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
