package runs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

func TestOverflow(t *testing.T) {
	f := func(window, prompt, estimated int) thread.ModelFailed {
		return thread.ModelFailed{Trouble: llm.Overflow, Model: "m", WindowTokens: window, PromptTokens: prompt, Estimated: estimated}
	}
	other := f(4000, 5000, 5000)
	other.Model = "other"
	slow := f(4000, 5000, 5000)
	slow.Trouble = llm.Overloaded
	for name, c := range map[string]struct {
		failures []thread.ModelFailed
		want     Overflow
	}{
		"none":                            {nil, Overflow{}},
		"another trouble":                 {[]thread.ModelFailed{slow}, Overflow{}},
		"of an older log":                 {[]thread.ModelFailed{f(4000, 5000, 0)}, Overflow{}},
		"both are said":                   {[]thread.ModelFailed{f(4000, 6000, 3000)}, Overflow{"m", 4000, 2}},
		"the window alone":                {[]thread.ModelFailed{f(4000, 0, 2000)}, Overflow{"m", 4000, 2}},
		"our estimate was high":           {[]thread.ModelFailed{f(4000, 5000, 10_000)}, Overflow{"m", 4000, 0.5}},
		"nothing is said":                 {[]thread.ModelFailed{f(0, 0, 5000)}, Overflow{"m", 3000, 0}},
		"nothing, and again":              {[]thread.ModelFailed{f(0, 0, 5000), f(0, 0, 2500)}, Overflow{"m", 1500, 0}},
		"a larger one later":              {[]thread.ModelFailed{f(4000, 5000, 5000), f(8000, 9000, 9000)}, Overflow{"m", 4000, 1}},
		"a prompt that was not the cause": {[]thread.ModelFailed{f(4096, 0, 20)}, Overflow{"m", 4096, 0}},
		"more tokens than bytes":          {[]thread.ModelFailed{f(4000, 90_000, 1000)}, Overflow{"m", 4000, scaleMax}},
		"another model":                   {[]thread.ModelFailed{f(2000, 3000, 3000), other}, Overflow{"other", 4000, 1}},
	} {
		var o Overflow
		for _, b := range c.failures {
			o.add(b)
		}
		if d := cmp.Diff(c.want, o); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
