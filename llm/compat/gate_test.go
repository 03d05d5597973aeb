package compat

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/internal/patience"
)

// through sends text through a gate in pieces of n bytes.
func through(text string, n int) (shown string, calls []textCall) {
	g := newTextCalls(offered("read", "write"))
	var out strings.Builder
	for len(text) > 0 {
		k := min(n, len(text))
		out.WriteString(g.Push(text[:k]))
		text = text[k:]
	}
	rest, calls := g.Close()
	out.WriteString(rest)
	return out.String(), calls
}

// FuzzGate: how text was cut changes nothing; without a call not a byte is
// lost; and a call has a name.
func FuzzGate(f *testing.F) {
	for _, s := range []string{
		"<tool_call>{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}</tool_call> after", "<tool_call>\n<function=write>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
		"<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>", "<function=read>{\"path\":\"a\"}</function><function=", "x ```json\n{\"name\":\"read\",\"arguments\":{}}\n``` y ```json {}```",
		"[TOOL_CALLS] [{\"name\":\"read\",\"arguments\":{}}]", "[TOOL_CALLS]read[ARGS]{}", "<|python_tag|>{\"name\":\"read\",\"parameters\":{}}", " [{\"name\":\"read\",\"parameters\":{}}] ", "{\"name\":\"x\"} text",
		"<tool_call>{\"name\":\"read\",\"arguments\":{\"a\":", "<tool_call><tool_call>", "```tool_calls\n{\"name\":\"read\",\"args\":{}}```", "<tool_call>{\"name\":\"read\"}{\"name\":\"write\"} tail", "a<", "```jso",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown, calls := through(text, len(text))
		for _, n := range []int{1, 3} {
			if s, c := through(text, n); s != shown || !cmp.Equal(c, calls) {
				t.Errorf("in pieces of %d: %q %v\nwhole: %q %v", n, s, c, shown, calls)
			}
		}
		if len(calls) == 0 && shown != text {
			t.Errorf("%q became %q", text, shown)
		}
		for _, c := range calls {
			if c.Name == "" {
				t.Errorf("a call without a name: %+v", c)
			}
		}
	})
}

// quickMax is a hundred times what the slowest needs on the reference, and a
// tenth of what trying each marker against the whole rest would.
const quickMax = 10 * time.Second

// Nested brackets and fifty thousand markers are no attack.
func TestGate_staysQuickWhateverComes(t *testing.T) {
	for name, text := range map[string]string{
		"markers":        strings.Repeat("<tool_call>", 50_000),
		"ends":           "<tool_call>" + strings.Repeat("</tool_call>", 50_000),
		"fences":         strings.Repeat("```json\n", 50_000),
		"half markers":   strings.Repeat("<tool_cal", 50_000),
		"one long call":  "<tool_call>{\"name\":\"read\",\"arguments\":{\"path\":\"" + strings.Repeat("x", 1<<20) + "\"}}</tool_call>",
		"deep":           "[TOOL_CALLS]" + strings.Repeat("[", 200_000),
		"deep and bare":  strings.Repeat("[", 200_000),
		"long and bare":  "{\"name\":\"" + strings.Repeat("x", 1<<20),
		"open functions": strings.Repeat("<function=read><parameter=a>", 20_000),
	} {
		patience.Within(t, quickMax, name, func() {
			if shown, calls := through(text, 64); len(calls) == 0 && shown != text {
				t.Errorf("%s: %d bytes became %d", name, len(text), len(shown))
			}
		})
	}
}
