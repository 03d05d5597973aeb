package shell

import "strings"

type parser struct {
	src   string
	pos   int
	depth int
	out   *Script
	// docs are here-documents whose bodies begin after the next newline.
	docs []document
}

type document struct {
	end    string
	quoted bool // nothing in it is expanded
	tabs   bool // leading tabs are dropped
}

func (p *parser) peek(n int) byte {
	if p.pos+n < len(p.src) {
		return p.src[p.pos+n]
	}
	return 0
}

func (p *parser) has(s string) bool { return strings.HasPrefix(p.src[p.pos:], s) }

func (p *parser) take(s string) bool {
	if !p.has(s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *parser) done() bool { return p.pos >= len(p.src) || p.lost() }

// blanks skips what separates words, and comments.
func (p *parser) blanks() {
	for !p.done() {
		switch {
		case p.peek(0) == ' ' || p.peek(0) == '\t':
			p.pos++
		case p.has("\\\n"):
			p.pos += 2
		case p.peek(0) == '#' && p.startsWord():
			for !p.done() && p.peek(0) != '\n' {
				p.pos++
			}
		default:
			return
		}
	}
}

func (p *parser) startsWord() bool {
	return p.pos == 0 || strings.IndexByte(" \t\n;&|()", p.src[p.pos-1]) >= 0
}

// newline takes a line's end and the here-documents that begin there.
func (p *parser) newline() {
	p.pos++
	docs := p.docs
	p.docs = nil
	for _, d := range docs {
		p.body(d)
	}
}

// body skips a here-document; substitutions in it are commands.
func (p *parser) body(d document) {
	start, end := p.pos, len(p.src)
	for at := p.pos; at < len(p.src); {
		line, _, _ := strings.Cut(p.src[at:], "\n")
		next := min(len(p.src), at+len(line)+1)
		shown := line
		if d.tabs {
			shown = strings.TrimLeft(line, "\t")
		}
		if shown == d.end {
			end, p.pos = at, next
			break
		}
		at, p.pos = next, next
	}
	if !d.quoted {
		p.text(p.src[start:end])
	}
}

// text looks for substitutions in text where nothing else is special.
func (p *parser) text(s string) {
	q := &parser{src: s, out: p.out, depth: p.depth}
	for !q.done() {
		switch q.peek(0) {
		case '\\':
			q.pos += 2
		case '$', '`':
			q.expansion(true)
		default:
			q.pos++
		}
	}
}

// list parses commands up to the closing character, 0 = the end of the text.
func (p *parser) list(closing byte) {
	for {
		p.blanks()
		if p.done() {
			if closing != 0 {
				p.opaque("a bracket is not closed")
			}
			return
		}
		switch c := p.peek(0); c {
		case '\n':
			p.newline()
		case ';', '&', '|':
			p.separator()
		case ')':
			if closing != ')' {
				p.opaque("a bracket is closed that was not opened")
				return
			}
			p.pos++
			return
		case '(':
			p.subshell()
		default:
			p.simple()
		}
	}
}

func (p *parser) separator() {
	switch {
	case p.has(";;"), p.has(";&"):
		p.opaque("a case statement")
	case p.has("&>"):
		p.simple() // a redirection without a command
	default:
		p.pos++
	}
}

func (p *parser) subshell() {
	if p.has("((") {
		p.opaque("arithmetic in brackets")
		return
	}
	p.nested(func() { p.pos++; p.list(')') })
	p.redirections()
}

// nested runs parse one level deeper.
func (p *parser) nested(parse func()) {
	switch {
	case p.depth >= depthMax:
		p.opaque("it is nested too deep")
	case len(p.docs) > 0:
		p.opaque("a substitution between a here-document's name and its text")
	default:
		p.depth++
		parse()
		p.depth--
	}
}

// redirections are those that follow a compound command; a word there begins
// what is parsed next.
func (p *parser) redirections() {
	var c Command
	for p.blanks(); p.redirected(&c); p.blanks() {
	}
	if c.Writes {
		p.emit(c)
	}
}

// simple parses one simple command, or the keyword in front of one.
func (p *parser) simple() {
	var c Command
	for {
		p.blanks()
		if p.done() || p.endsCommand() {
			break
		}
		if p.redirected(&c) {
			continue
		}
		if p.peek(0) == '(' {
			p.opaque("a function, an array or an extended pattern")
			return
		}
		w := p.word()
		if p.lost() {
			return
		}
		if len(c.Words) == 0 && len(c.Assigns) == 0 && !c.Writes && w.bare && p.keyword(w.Text) {
			return
		}
		if p.peek(0) == '(' && !p.done() {
			p.opaque("a function, an array or an extended pattern")
			return
		}
		if len(c.Words) == 0 && w.assigns {
			c.Assigns = append(c.Assigns, w.Word)
		} else {
			c.Words = append(c.Words, w.Word)
		}
		if len(c.Words)+len(c.Assigns) > wordsMax {
			p.opaque("a command has too many words")
			return
		}
	}
	p.emit(c)
}

func (p *parser) endsCommand() bool {
	switch p.peek(0) {
	case '\n', ';', '|', ')':
		return true
	case '&':
		return p.peek(1) != '>'
	}
	return false
}

// keyword acts on a word that is none of a command's; true = it was one.
func (p *parser) keyword(s string) bool {
	switch s {
	case "if", "then", "elif", "else", "while", "until", "do", "!", "{":
		return true // a command follows, for list
	case "fi", "done", "}":
		p.redirections()
		return true
	case "time":
		p.blanks()
		p.take("-p ")
		return true
	case "for":
		p.loop()
		return true
	case "[[":
		p.condition()
		return true
	case "case", "esac", "select", "function", "coproc", "in":
		p.opaque("the keyword " + s)
		return true
	}
	return false
}

// loop parses `for NAME in WORDS` up to its end; `do` follows for list.
func (p *parser) loop() {
	p.blanks()
	if p.peek(0) == '(' {
		p.opaque("arithmetic in brackets")
		return
	}
	for n := 0; ; n++ {
		p.blanks()
		if p.done() || p.peek(0) == ';' || p.peek(0) == '\n' {
			return
		}
		if strings.IndexByte("&|<>()", p.peek(0)) >= 0 {
			p.opaque("a loop that is not understood")
			return
		}
		if w := p.word(); n == 1 && (w.Text != "in" || !w.bare) && !p.lost() {
			if w.Text == "do" && w.bare {
				return
			}
			p.opaque("a loop that is not understood")
			return
		}
	}
}

// condition parses [[ … ]], in which operators are words.
func (p *parser) condition() {
	c := Command{Words: []Word{{Text: "[["}}}
	for {
		p.blanks()
		if p.done() {
			p.opaque("[[ is not closed")
			return
		}
		if p.peek(0) == '\n' {
			p.newline()
			continue
		}
		if strings.IndexByte("&|<>();", p.peek(0)) >= 0 {
			if p.has("<(") || p.has(">(") {
				p.opaque("a substitution in [[")
				return
			}
			c.Words = append(c.Words, Word{Text: p.src[p.pos : p.pos+1]})
			p.pos++
			continue
		}
		w := p.word()
		c.Words = append(c.Words, w.Word)
		if w.bare && w.Text == "]]" {
			p.emit(c)
			p.redirections()
			return
		}
	}
}

// redirected takes one redirection, with the number in front of it.
func (p *parser) redirected(c *Command) bool {
	start := p.pos
	for p.peek(0) >= '0' && p.peek(0) <= '9' && p.pos < len(p.src) {
		p.pos++
	}
	both := p.pos == start && p.has("&>")
	if !both && (p.done() || p.peek(0) != '<' && p.peek(0) != '>' || p.pos == start && (p.has("<(") || p.has(">("))) {
		p.pos = start
		return false
	}
	for _, op := range []string{"&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">"} {
		if !p.take(op) {
			continue
		}
		p.blanks()
		if p.done() || p.endsCommand() || strings.IndexByte("<>", p.peek(0)) >= 0 && !p.has("<(") && !p.has(">(") {
			p.opaque("a redirection to nowhere")
			return true
		}
		p.target(c, op, p.word())
		return true
	}
	return true
}

func (p *parser) target(c *Command, op string, w word) {
	switch op {
	case "<<", "<<-":
		p.docs = append(p.docs, document{end: w.Text, quoted: w.quoted, tabs: op == "<<-"})
		if w.Dynamic {
			p.opaque("a here-document whose end is not known")
		}
	case "<", "<<<", "<&":
	case ">&":
		if w.Text != "-" && strings.Trim(w.Text, "0123456789") != "" {
			c.Writes = true
		}
	default:
		if w.Dynamic || w.Text != "/dev/null" && w.Text != "/dev/stdout" && w.Text != "/dev/stderr" {
			c.Writes = true
		}
	}
}
