package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
)

// filledMax bounds a text after filling in, in bytes.
const filledMax = 8 << 20

// part is a stretch of text, or something to be filled in.
type part struct {
	text string
	verb string // "", "result", "match", "user", "step", "n"
	arg  string // of result and match: the name of a tool, or a number
	re   *regexp.Regexp
}

// hole finds what is filled in.
var (
	hole   = pattern.Lazy(`\{\{ *(result|match|user|step|n)((?: +"[^"]*")*) *\}\}`)
	quoted = pattern.Lazy(`"([^"]*)"`)
)

// split finds the holes of a text. Other double braces are text: files that
// models write are full of them.
func split(s string) ([]part, error) {
	var parts []part
	for {
		at := hole().FindStringSubmatchIndex(s)
		if at == nil {
			return append(parts, part{text: s}), nil
		}
		p := part{verb: s[at[2]:at[3]]}
		var args []string
		for _, q := range quoted().FindAllStringSubmatch(s[at[4]:at[5]], -1) {
			args = append(args, q[1])
		}
		if err := p.take(args); err != nil {
			return nil, fmt.Errorf("%.80s: %w", s[at[0]:at[1]], err)
		}
		parts = append(parts, part{text: s[:at[0]]}, p)
		s = s[at[1]:]
	}
}

func (p *part) take(args []string) (err error) {
	want := map[string]int{"result": 1, "match": 2}[p.verb]
	if len(args) != want {
		return fmt.Errorf("%d texts in quotes are wanted", want)
	}
	if want > 0 {
		p.arg = args[0]
	}
	if want > 1 {
		if p.re, err = regexp.Compile(args[1]); err != nil {
			return fmt.Errorf("no regular expression: %w", err)
		}
	}
	return nil
}

// value is what goes into a hole.
func (p part) value(s *sight, nth int) (string, error) {
	switch p.verb {
	case "":
		return p.text, nil
	case "user":
		return s.user, nil
	case "step":
		return strconv.Itoa(s.step), nil
	case "n":
		return strconv.Itoa(nth), nil
	}
	r := s.result(p.arg)
	if r == nil {
		return "", fmt.Errorf("there is no result of %q", p.arg)
	}
	text := textOf(r.Blocks)
	if p.verb == "result" {
		return text, nil
	}
	found := p.re.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("the result of %q does not match %s", p.arg, p.re)
	}
	return found[len(found)-1], nil
}

// result finds the last result of a tool, or the n-th of the last message.
func (s *sight) result(which string) *llm.Result {
	if n, err := strconv.Atoi(which); err == nil {
		if n >= 1 && n <= len(s.results) {
			return s.results[n-1]
		}
		return nil
	}
	for _, v := range slices.Backward(s.req.Messages) {
		blocks := v.Blocks
		for _, block := range slices.Backward(blocks) {
			if r := block.Result; r != nil && (r.Name == which || r.CallID == which) {
				return r
			}
		}
	}
	return nil
}

// fill fills the holes of a text.
func fill(text string, s *sight, nth int) (string, error) {
	parts, err := split(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		v, err := p.value(s, nth)
		if err != nil {
			return "", err
		}
		if b.Len()+len(v) > filledMax {
			return "", fmt.Errorf("more than %d bytes when filled in", filledMax)
		}
		b.WriteString(v)
	}
	return b.String(), nil
}

// fillAny fills the texts of arguments. What is {{n}} or {{step}} and nothing
// else becomes a number.
func fillAny(v any, s *sight, nth int) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		text, err := fill(v, s, nth)
		if n, bad := strconv.Atoi(text); bad == nil && number().MatchString(v) {
			return n, err
		}
		return text, err
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if out[i], err = fillAny(v[i], s, nth); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			if out[k], err = fillAny(v[k], s, nth); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

var number = pattern.Lazy(`^\{\{ *(n|step) *\}\}$`)

// written returns the arguments as the model writes them.
func (c *called) written(s *sight, nth int) (string, error) {
	if c.Raw != "" || c.Args == nil {
		return fill(c.Raw, s, nth)
	}
	args, err := fillAny(c.Args, s, nth)
	if err != nil {
		return "", err
	}
	return encode(args)
}

func (r *reply) fill(s *sight, nth int) (said, error) {
	out := said{stop: llm.Stop(r.Stop)}
	for kind, text := range []string{r.Reasoning, r.Text} {
		filled, err := fill(text, s, nth)
		if err != nil {
			return out, err
		}
		if filled != "" {
			out.blocks = append(out.blocks, llm.Block{Kind: [...]llm.Kind{llm.KindReasoning, llm.KindText}[kind], Text: filled})
		}
	}
	for i, c := range r.Calls {
		args, err := c.written(s, nth)
		if err != nil {
			return out, err
		}
		out.blocks = append(out.blocks, llm.Block{Kind: llm.KindCall, Call: llm.NewCall(c.id(s.step, i), c.Name, args)})
	}
	if out.stop == "" {
		out.stop = llm.StopEnd
		if len(r.Calls) > 0 {
			out.stop = llm.StopTools
		}
	}
	return out, nil
}

func (c *called) id(step, i int) string {
	switch {
	case c.NoID:
		return ""
	case c.ID != "":
		return c.ID
	}
	return fmt.Sprintf("call_%d_%d", step, i+1)
}
