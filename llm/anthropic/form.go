package anthropic

import (
	"strconv"
	"strings"
)

// form is what a model takes and what it refuses. The vendor does not
// tell it over the wire, so it follows from the version in the id; an id without
// one is taken for a new model, since the old ones are known.
type form struct {
	// adaptive: thinking is "adaptive" and its depth an effort; else it is a
	// budget in tokens.
	adaptive bool
	// effort: output_config.effort is known.
	effort bool
	// bound: thinking is checked against what stands before it, forced tool use
	// is refused.
	bound bool
	// sampling: temperature is taken.
	sampling bool
	// schema: output_config.format is known.
	schema bool
}

// formOf reads ids such as claude-opus-4-5-20251101, claude-3-7-sonnet-latest
// and anthropic.claude-sonnet-5-5.
func formOf(id string) form {
	v, known := version(id)
	if !known {
		return form{adaptive: true, effort: true, schema: true, sampling: true}
	}
	name := strings.ToLower(id)
	frontier := strings.Contains(name, "fable") || strings.Contains(name, "mythos")
	return form{
		adaptive: v >= 406,
		effort:   v >= 406 || (v == 405 && strings.Contains(name, "opus")),
		bound:    v >= 505 || (frontier && v >= 501),
		sampling: v < 407,
		schema:   v >= 405 || (v == 401 && strings.Contains(name, "opus")),
	}
}

// version returns 100*major + minor of the vendor's own models. Numbers of more
// than two digits are dates.
func version(id string) (int, bool) {
	_, id, known := strings.Cut(strings.ToLower(id), "claude")
	if !known {
		return 0, false
	}
	var numbers []int
	for part := range strings.FieldsFuncSeq(id, func(r rune) bool { return strings.ContainsRune("-.@:_", r) }) {
		n, err := strconv.Atoi(part)
		if err == nil && len(part) <= 2 {
			numbers = append(numbers, n)
		} else if len(numbers) > 0 {
			break // what follows the version: a date, a name, "v1"
		}
	}
	switch len(numbers) {
	case 0:
		return 0, false
	case 1:
		return 100 * numbers[0], true
	}
	return 100*numbers[0] + numbers[1], true
}

// budgets are tokens of thinking for models that want a number. The vendor
// wants at least 1,024 and less than the whole output.
var budgets = map[string]int{"low": 4_000, "medium": 10_000, "high": 24_000}

const budgetMin = 1024
