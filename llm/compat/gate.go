package compat

import (
	"bytes"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// This file finds tool calls that a model wrote as text, because the
// template of a weak server lets them through.
//
// Text passes as soon as it is clear that it is no call; what is decided depends
// on the text alone, not on how it was cut. Without a call not a byte is lost.
// A textCalls is for one answer and one goroutine.

// textCalls stands between the text of an answer and its reader. It knows
//
//	<tool_call>{"name": …, "arguments": {…}}</tool_call>      Qwen, Hermes
//	<tool_call>name<arg_key>k</arg_key><arg_value>v</…>       GLM
//	<function=name>{…}</function>                             Llama 3
//	<function=name><parameter=k>v</parameter></function>      Qwen Coder
//	```json {"name": …, "arguments": {…}}```                  many, if the tool exists
//	[TOOL_CALLS][{"name": …, "arguments": {…}}]               Mistral
//	<|python_tag|>{"name": …, "parameters": {…}}              Llama 3
//	{"name": …, "parameters": {…}}                            the whole answer, if the tool exists
type textCalls struct {
	tools textTools
	buf   []byte // not yet decided
	found []textCall
	// bare: the answer begins like a JSON call; decided: that was looked at.
	bare, decided bool
	open          *callMarker // buf begins with it
	scan          int         // where in buf to look for its end
	ends          int         // ends that were none, being inside of strings
	tried         int         // markers so far
	space         []byte      // white space that is shown only if text follows
	shown         bool        // text was shown since the beginning or the last call
}

// textCall is a call that was written as text. Args are what the model wrote, mostly JSON.
type textCall struct{ Name, Args string }

type callMarker struct {
	start, end string // "" = it lasts to the end of the answer
	fence      bool
}

var markers = []*callMarker{
	{start: "<tool_call>", end: "</tool_call>"},
	{start: "<function=", end: "</function>"},
	{start: "```json", end: "```", fence: true},
	{start: "```tool_call", end: "```", fence: true},
	{start: "[TOOL_CALLS]"},
	{start: "<|python_tag|>"},
}

const (
	markersMax = 128 // of one answer; after that text is text
	endsMax    = 16  // of one marker
)

// newTextCalls returns a gate for an answer to a request that offered these tools.
func newTextCalls(specs []llm.ToolSpec) *textCalls { return &textCalls{tools: newTextTools(specs)} }

// Empty reports whether nothing came so far.
func (g *textCalls) Empty() bool { return len(g.buf) == 0 && len(g.space) == 0 && len(g.found) == 0 }

// Push takes text and returns what may be shown of it and of what came before.
func (g *textCalls) Push(text string) string {
	g.buf = append(g.buf, text...)
	return string(g.drain(false))
}

// Close returns what is left: text, and the calls.
func (g *textCalls) Close() (string, []textCall) {
	out := g.drain(true)
	if len(g.found) == 0 {
		out = append(out, g.space...)
	}
	return string(out), g.found
}

func (g *textCalls) drain(final bool) (out []byte) {
	for len(g.buf) > 0 {
		if !g.decided && !g.decide(final) {
			return out
		}
		if g.bare {
			if final {
				out = g.closeBare(out)
			}
			return out
		}
		if g.open == nil && !g.enter(&out, final) {
			return out
		}
		switch g.resolve(final) {
		case wait:
			return out
		case isText:
			out = g.show(out, len(g.open.start))
			g.open = nil
		case isCall:
			g.open, g.shown = nil, false
		}
	}
	return out
}

// show moves n bytes of buf to out. White space waits at the beginning and
// after a call: if nothing but calls follows, it is dropped.
func (g *textCalls) show(out []byte, n int) []byte {
	text := g.buf[:n]
	g.buf = g.buf[n:]
	if !g.shown && len(bytes.TrimSpace(text)) == 0 {
		g.space = append(g.space, text...)
		return out
	}
	if n > 0 {
		out = append(append(out, g.space...), text...)
		g.space, g.shown = nil, true
	}
	return out
}

// decide looks at how the answer begins. It returns false if more is needed.
func (g *textCalls) decide(final bool) bool {
	switch looksBare(g.buf) {
	case maybe:
		if !final {
			return false
		}
	case yes:
		g.bare = true
	}
	g.decided = true
	return true
}

func (g *textCalls) closeBare(out []byte) []byte {
	if calls, ok := g.tools.parseJSON(string(g.buf), true); ok {
		g.found, g.buf = append(g.found, calls...), nil
		return out
	}
	g.shown = true
	return g.show(out, len(g.buf))
}

// enter shows the text before the next marker. It returns false if there is
// none so far.
func (g *textCalls) enter(out *[]byte, final bool) bool {
	at, m := -1, (*callMarker)(nil)
	if g.tried < markersMax {
		at, m = nextMarker(g.buf)
	}
	if m == nil {
		keep := 0
		if !final && g.tried < markersMax {
			keep = halfMarker(g.buf)
		}
		*out = g.show(*out, len(g.buf)-keep)
		return false
	}
	*out = g.show(*out, at)
	g.open, g.scan, g.ends = m, len(m.start), 0
	g.tried++
	return true
}

func nextMarker(buf []byte) (at int, first *callMarker) {
	for _, m := range markers {
		if i := bytes.Index(buf, []byte(m.start)); i >= 0 && (first == nil || i < at) {
			at, first = i, m
		}
	}
	return at, first
}

// halfMarker returns how many bytes at the end of buf may begin a marker.
func halfMarker(buf []byte) int {
	longest := 0
	for _, m := range markers {
		for n := min(len(m.start)-1, len(buf)); n > longest; n-- {
			if bytes.HasSuffix(buf, []byte(m.start[:n])) {
				longest = n
			}
		}
	}
	return longest
}

type fenceVerdict int

const (
	wait fenceVerdict = iota
	isText
	isCall
)

// resolve looks whether the marker at the beginning of buf is a call. With
// isCall it has taken it out of buf.
func (g *textCalls) resolve(final bool) fenceVerdict {
	m := g.open
	if m.end == "" {
		return g.resolveToEnd(final)
	}
	for {
		i := bytes.Index(g.buf[g.scan:], []byte(m.end))
		if i < 0 {
			g.scan = max(len(m.start), len(g.buf)-len(m.end)+1)
			if final {
				return g.unclosed()
			}
			return wait
		}
		end := g.scan + i
		inner := string(g.buf[len(m.start):end])
		if calls, ok := g.tools.parse(m, inner); ok {
			g.found, g.buf = append(g.found, calls...), g.buf[end+len(m.end):]
			return isCall
		}
		g.scan = end + len(m.end)
		if g.ends++; g.ends == endsMax || m.fence && fenceIsText(inner) {
			return isText
		}
	}
}

// fenceIsText: the JSON is whole and no call, or the fence ends in a line of
// its own, which it cannot inside a JSON string.
func fenceIsText(inner string) bool {
	_, rest, ok := firstJSON(inner)
	return ok && strings.TrimSpace(rest) == "" || strings.HasSuffix(strings.TrimRight(inner, " \t"), "\n")
}

func (g *textCalls) resolveToEnd(final bool) fenceVerdict {
	if !final {
		return wait
	}
	calls, ok := g.tools.parse(g.open, string(g.buf[len(g.open.start):]))
	if !ok {
		return isText
	}
	g.found, g.buf = append(g.found, calls...), nil
	return isCall
}

// unclosed judges a marker without a good end at the end of the answer: weak
// models forget it, or write JSON that is none. The latter becomes a call
// with those arguments, so that the model is told.
func (g *textCalls) unclosed() fenceVerdict {
	inner := string(g.buf[len(g.open.start):])
	if calls, rest, ok := g.tools.parseUnclosed(g.open, inner); ok {
		g.found, g.buf = append(g.found, calls...), []byte(rest)
		return isCall
	}
	if g.open.fence {
		return isText
	}
	if call, ok := g.tools.broken(strings.TrimSuffix(strings.TrimSpace(inner), g.open.end)); ok {
		g.found, g.buf = append(g.found, call), nil
		return isCall
	}
	return isText
}

type bareGuess int

const (
	no bareGuess = iota
	maybe
	yes
)

var bareKeys = []string{`"name"`, `"type"`, `"function"`, `"tool"`, `"tool_name"`, `"arguments"`, `"parameters"`, `"id"`}

// looksBare reports whether an answer begins like a JSON tool call.
func looksBare(buf []byte) bareGuess {
	rest := bytes.TrimLeft(buf, " \r\n\t")
	if len(rest) > 0 && rest[0] == '[' {
		rest = bytes.TrimLeft(rest[1:], " \r\n\t")
	}
	if len(rest) == 0 {
		return maybe
	}
	if rest[0] != '{' {
		return no
	}
	rest = bytes.TrimLeft(rest[1:], " \r\n\t")
	for _, k := range bareKeys {
		if n := min(len(k), len(rest)); string(rest[:n]) == k[:n] {
			if n == len(k) {
				return yes
			}
			return maybe
		}
	}
	return no
}
