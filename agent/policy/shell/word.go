package shell

import "strings"

// word is a Word on its way.
type word struct {
	Word
	bare    bool // no quote, no escape, nothing dynamic: it may be a keyword
	quoted  bool // some of it stood in quotes
	assigns bool // NAME=…
}

// word reads one word. The caller knows that one begins here.
func (p *parser) word() word {
	start := p.pos
	var b strings.Builder
	w := word{bare: true}
	dynamic := func() { w.Dynamic, w.bare = true, false }
	for !p.done() {
		c := p.peek(0)
		switch c {
		case ' ', '\t', '\n', ';', '&', '|', '(', ')':
			return p.finish(w, b.String(), start)
		case '<', '>':
			if p.peek(1) != '(' || p.pos > start {
				return p.finish(w, b.String(), start)
			}
			p.nested(func() { p.pos += 2; p.list(')') })
			dynamic()
		case 0:
			p.opaque("a zero byte")
		case '\\':
			if !p.has("\\\n") {
				w.bare, w.quoted = false, true
				if p.pos+1 < len(p.src) {
					b.WriteByte(p.peek(1))
				}
			}
			p.pos = min(len(p.src), p.pos+2)
		case '\'':
			w.bare, w.quoted = false, true
			b.WriteString(p.single())
		case '"':
			w.bare, w.quoted = false, true
			if p.double(&b) {
				dynamic()
			}
		case '$', '`':
			if p.expansion(false) {
				dynamic()
			} else {
				b.WriteByte('$')
				w.bare = false
			}
		case '*', '?', '[':
			if name := p.test(); name != "" && p.pos == start {
				b.WriteString(name)
				p.pos += len(name)
				break
			}
			dynamic()
			b.WriteByte(c)
			p.pos++
		case '{':
			if p.peek(1) != '}' && (p.pos > start || !p.aloneBrace()) {
				dynamic()
			}
			b.WriteByte(c)
			p.pos++
		case '~':
			if p.pos == start || p.src[p.pos-1] == '=' || p.src[p.pos-1] == ':' {
				dynamic()
			}
			b.WriteByte(c)
			p.pos++
		default:
			b.WriteByte(c)
			p.pos++
		}
	}
	return p.finish(w, b.String(), start)
}

// test returns [ or [[ if it is a command here, not the begin of a pattern.
func (p *parser) test() string {
	for _, name := range []string{"[[", "["} {
		if p.has(name) {
			if at := p.pos + len(name); at >= len(p.src) || strings.IndexByte(" \t\n", p.src[at]) >= 0 {
				return name
			}
		}
	}
	return ""
}

// aloneBrace: { as a keyword: no braces to expand.
func (p *parser) aloneBrace() bool {
	return p.pos+1 >= len(p.src) || strings.IndexByte(" \t\n;&|()<>\x00", p.peek(1)) >= 0
}

func (p *parser) finish(w word, text string, start int) word {
	if p.lost() {
		return w
	}
	raw := p.src[start:p.pos]
	w.Text = text
	if w.Dynamic {
		w.Text = raw
	}
	w.assigns = isAssign(raw)
	return w
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

// single reads '…'.
func (p *parser) single() string {
	text, _, closed := strings.Cut(p.src[p.pos+1:], "'")
	if !closed {
		p.opaque("a quote is not closed")
		return ""
	}
	p.pos += len(text) + 2
	return text
}

// double reads "…" and reports whether anything in it is dynamic.
func (p *parser) double(b *strings.Builder) (dynamic bool) {
	p.pos++
	for !p.done() {
		switch c := p.peek(0); c {
		case '"':
			p.pos++
			return dynamic
		case '\\':
			next := p.peek(1)
			switch {
			case next == '\n':
			case strings.IndexByte("$`\"\\", next) >= 0 && next != 0:
				b.WriteByte(next)
			default:
				b.WriteByte('\\')
				p.pos--
			}
			p.pos += 2
		case '$', '`':
			if p.expansion(true) {
				dynamic = true
			} else {
				b.WriteByte('$')
			}
		default:
			b.WriteByte(c)
			p.pos++
		}
	}
	p.opaque("a quote is not closed")
	return true
}

// expansion reads what begins with $ or `. False: it is a plain $, taken.
func (p *parser) expansion(quoted bool) bool {
	if p.peek(0) == '`' {
		p.backticks()
		return true
	}
	switch next := p.peek(1); {
	case p.has("$(("):
		p.arithmetic()
	case p.has("$("):
		p.nested(func() { p.pos += 2; p.list(')') })
	case p.has("${"):
		p.parameter()
	case p.has("$["):
		p.opaque("old arithmetic")
	case !quoted && p.has("$'"):
		p.ansi()
	case !quoted && p.has(`$"`):
		p.pos++
		var b strings.Builder
		p.double(&b)
	case next >= '0' && next <= '9', next != 0 && strings.IndexByte("@*#?-$!", next) >= 0:
		p.pos += 2
	case isNameByte(next):
		for p.pos++; p.pos < len(p.src) && isNameByte(p.peek(0)); {
			p.pos++
		}
	default:
		p.pos++
		return false
	}
	return true
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// ansi skips $'…', whose escapes can spell anything.
func (p *parser) ansi() {
	for p.pos += 2; p.pos < len(p.src); p.pos++ {
		switch p.src[p.pos] {
		case '\\':
			p.pos++
		case '\'':
			p.pos++
			return
		}
	}
	p.opaque("a quote is not closed")
}

// backticks parses `…`.
func (p *parser) backticks() {
	var b strings.Builder
	for i := p.pos + 1; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '`':
			p.pos = i + 1
			p.sub(b.String())
			return
		case c == '\\' && i+1 < len(p.src) && strings.IndexByte("`\\$", p.src[i+1]) >= 0:
			i++
			b.WriteByte(p.src[i])
		default:
			b.WriteByte(c)
		}
	}
	p.opaque("a backtick is not closed")
}

// arithmetic skips $((…)); substitutions in it are commands.
func (p *parser) arithmetic() {
	depth := 2
	for i := p.pos + 3; i < len(p.src); i++ {
		switch p.src[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 1 {
				if i+1 >= len(p.src) || p.src[i+1] != ')' {
					p.opaque("$(( that is no arithmetic")
					return
				}
				inner := p.src[p.pos+3 : i]
				p.pos = i + 2
				p.deeper(inner)
				return
			}
		case '\'', '"', '\\':
			p.opaque("quotes in arithmetic")
			return
		}
	}
	p.opaque("a bracket is not closed")
}

// deeper looks for substitutions in text, one level down.
func (p *parser) deeper(s string) {
	if p.depth >= depthMax {
		p.opaque("it is nested too deep")
		return
	}
	p.depth++
	p.text(s)
	p.depth--
}

// parameter skips ${…}; substitutions in it are commands.
func (p *parser) parameter() {
	if next := p.peek(2); next == ' ' || next == '\n' || next == '\t' || next == '|' {
		p.opaque("commands in ${ }")
		return
	}
	if p.depth >= depthMax {
		p.opaque("it is nested too deep")
		return
	}
	p.depth++
	defer func() { p.depth-- }()
	for p.pos += 2; !p.done(); {
		switch p.peek(0) {
		case '}':
			p.pos++
			return
		case '\\':
			p.pos = min(len(p.src), p.pos+2)
		case '\'':
			p.single()
		case '"':
			var b strings.Builder
			p.double(&b)
		case '$', '`':
			p.expansion(false)
		case '<', '>':
			if p.peek(1) == '(' {
				p.opaque("a substitution in ${ }")
				return
			}
			p.pos++
		default:
			p.pos++
		}
	}
	p.opaque("${ is not closed")
}
