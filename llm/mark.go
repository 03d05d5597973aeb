package llm

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Marked is text of another origin than what stands around it, as an element that it
// cannot close: <tag of="origin">text</tag>. The text is else as it was.
func Marked(tag, attribute, origin, text string) string {
	return MarkBegin(tag, attribute, origin) + "\n" + Unclosed(tag, strings.TrimSpace(text)) + "\n" + MarkEnd(tag)
}

// MarkBegin and MarkEnd are what stands around such a text.
func MarkBegin(tag, attribute, origin string) string {
	return fmt.Sprintf("<%s %s=%q>", tag, attribute, Unclosed(tag, origin))
}

// MarkEnd is the end of what MarkBegin begins.
func MarkEnd(tag string) string { return "</" + tag + ">" }

// Unclosed is text in which nothing ends an element of tag: </tag becomes <\/tag.
func Unclosed(tag, text string) string {
	if !strings.Contains(text, "/") {
		return text
	}
	return closing(tag).ReplaceAllString(text, `<\/$1`)
}

var closings sync.Map // tag -> *regexp.Regexp

func closing(tag string) *regexp.Regexp {
	known, ok := closings.Load(tag)
	if !ok {
		known, _ = closings.LoadOrStore(tag, regexp.MustCompile(`(?i)<\s*/\s*(`+regexp.QuoteMeta(tag)+`)`))
	}
	return known.(*regexp.Regexp)
}
