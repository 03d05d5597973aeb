package skill

import (
	"errors"
	"fmt"
	"strings"
)

// This file reads allowed-tools: "Bash(git:*) Bash(jq:*) Read", or a list of such words.
// The standard leaves open what stands in brackets; package agent/policy says what it means
// here.

// Bounds of allowed-tools. What is beyond them approves nothing.
const (
	AllowedMax      = 100
	allowedBytesMax = 512 // of one
)

// Allowed is one word of allowed-tools.
type Allowed struct {
	Tool    string
	Pattern string // in the brackets, "" = there are none
}

// ParseAllowed reads one word of Skill.AllowedTools. The error says what is wrong with it.
func ParseAllowed(s string) (Allowed, error) {
	if len(s) > allowedBytesMax {
		return Allowed{}, fmt.Errorf("it has more than %d characters", allowedBytesMax)
	}
	a := Allowed{Tool: s}
	if name, rest, found := strings.Cut(s, "("); found {
		pattern, closed := strings.CutSuffix(rest, ")")
		switch {
		case !closed || !balanced(pattern):
			return Allowed{}, errors.New("its brackets are not closed")
		case strings.TrimSpace(pattern) == "":
			return Allowed{}, errors.New("there is nothing in its brackets")
		}
		a = Allowed{Tool: name, Pattern: strings.TrimSpace(pattern)}
	}
	if !isTool(a.Tool) {
		return Allowed{}, errors.New("it is no name of a tool")
	}
	return a, nil
}

// isTool reports whether a text can be the name of a tool of any client.
func isTool(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= NameMax && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+"0123456789_-") == ""
}

// balanced reports whether every bracket is closed, and none before it is opened.
func balanced(s string) bool {
	depth := 0
	for _, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0
}

// splitAllowed cuts the text of allowed-tools where white space or a comma stands outside of
// brackets. Some clients write commas.
func splitAllowed(s string) []string {
	words, depth := []string{}, 0
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth <= 0 && strings.ContainsRune(" \t\r\n,", r):
			end()
			continue
		}
		word.WriteRune(r)
	}
	end()
	return words
}

// allowedOf reads the value of allowed-tools, text or a list of texts. ok: it is one of them.
func allowedOf(value any) (words []string, ok bool) {
	switch v := value.(type) {
	case nil:
		return []string{}, true
	case string:
		return splitAllowed(v), true
	case []any:
		words = []string{}
		for _, x := range v {
			s, is := x.(string)
			if !is {
				return words, false
			}
			words = append(words, splitAllowed(s)...)
		}
		return words, true
	}
	return []string{}, false
}

// allowedAdvice says which words can approve nothing.
func allowedAdvice(words []string) (list []Problem) {
	for i, w := range words {
		if i == AllowedMax {
			return append(list, Problem{File, fmt.Sprintf("allowed-tools: there are more than %d", AllowedMax), "what is beyond that approves nothing"})
		}
		if _, err := ParseAllowed(w); err != nil {
			list = append(list, Problem{File, fmt.Sprintf("allowed-tools: %s: %v", quoted(w), err), "write NAME, or NAME(PATTERN); this approves nothing"})
		}
	}
	return list
}
