package definition

import "strings"

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
		if n := balancedJSON(text[at:]); n > 0 {
			best = text[at : at+n]
			at += n
		} else {
			break // nothing after an opening that is never closed is outermost
		}
	}
	return best
}

// balancedJSON returns the length of the object or list with which s begins, 0 if
// it is not closed.
func balancedJSON(s string) int {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// jsonTooDeep reports whether JSON nests deeper than max, without parsing it.
func jsonTooDeep(raw []byte, max int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > max {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
