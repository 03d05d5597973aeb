package skill

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse_allowedTools(t *testing.T) {
	for _, x := range []struct {
		value string // of allowed-tools, as YAML
		want  []string
	}{
		{"Read", []string{"Read"}},
		{"Bash(git:*) Bash(jq:*) Read", []string{"Bash(git:*)", "Bash(jq:*)", "Read"}},
		{"Bash(git add:*) Bash(git commit -m (a b):*)", []string{"Bash(git add:*)", "Bash(git commit -m (a b):*)"}},
		{"Read, Write,Edit", []string{"Read", "Write", "Edit"}},
		{"Edit(a,b)", []string{"Edit(a,b)"}},
		{"|\n  Read\n  Write\n", []string{"Read", "Write"}},
		{"\n  - Bash(npm run test:*)\n  - Read Write", []string{"Bash(npm run test:*)", "Read", "Write"}},
		{"Bash(git Read", []string{"Bash(git Read"}}, // one word, of no use
		{"Bash) Read", []string{"Bash)", "Read"}},
	} {
		s, problems := Parse("a", whole("name: a\ndescription: x\nallowed-tools: "+x.value+"\n"))
		if d := cmp.Diff(x.want, s.AllowedTools); d != "" || len(problems) > 0 {
			t.Errorf("%q: %s%v", x.value, d, problems)
		}
	}
}

func TestParseAllowed(t *testing.T) {
	for s, want := range map[string]Allowed{
		"Read":                    {Tool: "Read"},
		"Bash(git:*)":             {Tool: "Bash", Pattern: "git:*"},
		"Bash( git add:* )":       {Tool: "Bash", Pattern: "git add:*"},
		"Bash(f(x) g(y))":         {Tool: "Bash", Pattern: "f(x) g(y)"},
		"mcp__github__get-issue":  {Tool: "mcp__github__get-issue"},
		"WebFetch(domain:a.test)": {Tool: "WebFetch", Pattern: "domain:a.test"},
	} {
		if got, err := ParseAllowed(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for s, why := range map[string]string{
		"": "no name", "*": "no name", "1a": "no name", "mcp__*": "no name", "Bäsh": "no name", "(git)": "no name", "a b": "no name",
		strings.Repeat("a", 65): "no name", "Bash)": "no name",
		"Bash(git": "not closed", "Bash(git))(": "not closed", "Bash(git)x": "not closed", "Bash(a)(b)": "not closed", "Bash()": "nothing in", "Bash( )": "nothing in",
		"Bash(" + strings.Repeat("x", allowedBytesMax) + ")": "more than",
	} {
		if got, err := ParseAllowed(s); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	words := make([]string, AllowedMax+1)
	for i := range words {
		words[i] = fmt.Sprint("Tool", i)
	}
	if list := allowedAdvice(words); len(list) != 1 || !strings.Contains(list[0].String(), "more than 100") {
		t.Errorf("%v", list)
	}
}

// Whatever stands there, a word that is read is a name and what is in its brackets, and the
// text of the words holds nothing that the value did not.
func FuzzAllowed(f *testing.F) {
	f.Add("Bash(git:*) Read")
	f.Add("Bash(a (b),\n")
	f.Add("))((,,")
	f.Fuzz(func(t *testing.T, s string) {
		words := splitAllowed(s)
		for _, w := range words {
			if w == "" || strings.ContainsRune(s, '\uFFFD') == false && strings.ContainsRune(w, '\uFFFD') == false && !strings.Contains(s, w) {
				t.Fatalf("%q is no word of %q", w, s)
			}
			a, err := ParseAllowed(w)
			if err == nil && (a.Tool == "" || len(a.Tool) > 64 || !strings.HasPrefix(w, a.Tool) || !strings.Contains(w, a.Pattern)) {
				t.Fatalf("%q: %+v", w, a)
			}
		}
		_ = allowedAdvice(words)
	})
}
