package definition

import (
	"strings"

	"github.com/skete-dev/skete/internal/jsontext"
)

// jsonCandidates are the parts of a text that may be the result, the likeliest first.
func jsonCandidates(text string) []string {
	list := []string{strings.TrimSpace(text)}
	if block := lastJSONBlock(text); block != "" {
		list = append(list, block)
	}
	if value := lastJSONValue(text); value != "" {
		list = append(list, value)
	}
	return list
}

// lastJSONBlock returns what is in the last ``` … ```.
func lastJSONBlock(text string) string {
	end := strings.LastIndex(text, "```")
	if end < 0 {
		return ""
	}
	start := strings.LastIndex(text[:end], "```")
	if start < 0 {
		start, end = end, len(text) // it was cut off
	}
	block := text[start+3 : end]
	if first, rest, ok := strings.Cut(block, "\n"); ok && !strings.ContainsAny(first, `{["`) {
		block = rest // the language
	}
	return strings.TrimSpace(block)
}

// lastJSONValue returns the last object or list that is closed and in no other.
func lastJSONValue(text string) string {
	best := ""
	for at := 0; at < len(text); {
		i := strings.IndexAny(text[at:], "{[")
		if i < 0 {
			break
		}
		at += i
		if n, _ := jsontext.Extent(text[at:]); n > 0 {
			best = text[at : at+n]
			at += n
		} else {
			break // nothing after an opening that is never closed is outermost
		}
	}
	return best
}
