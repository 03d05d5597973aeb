package yamlfile_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
)

type inner struct {
	Steps int     `yaml:"steps"`
	Cost  float64 `yaml:"cost_usd"`
}

type outer struct {
	Name   string         `yaml:"name"`
	Model  string         `yaml:"model"`
	Tools  []string       `yaml:"tools"`
	Rules  []inner        `yaml:"rules"`
	On     bool           `yaml:"on"`
	Wait   time.Duration  `yaml:"wait"`
	Free   map[string]any `yaml:"free"`
	Hidden string         `yaml:"-"`
	Limits struct {
		inner `yaml:",inline"`
		More  int `yaml:"more"`
	} `yaml:"limits"`
}

func TestDecode_readsEveryKindOfValue(t *testing.T) {
	const file = `
name: a b
model: |
  two
  lines
tools: [ls, "*"]
rules:
  - steps: 3
    cost_usd: 1
  - {steps: 4}
on: true
wait: 1h30m
free:
  type: object
  n: 3
  list: [1, a, null, {b: false}]
limits:
  steps: 5
  more: -6
`
	var got outer
	at, err := yamlfile.Decode("f.yaml", []byte(file), &got)
	if err != nil {
		t.Fatal(err)
	}
	var want outer
	want.Name, want.Model, want.Tools, want.On, want.Wait = "a b", "two\nlines\n", []string{"ls", "*"}, true, 90*time.Minute
	want.Rules = []inner{{Steps: 3, Cost: 1}, {Steps: 4}}
	want.Limits.Steps, want.Limits.More = 5, -6
	want.Free = map[string]any{"type": "object", "n": 3.0, "list": []any{1.0, "a", nil, map[string]any{"b": false}}}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for path, pos := range map[string]yamlfile.Pos{
		"name": {Line: 2, Column: 1}, "rules[1].steps": {Line: 10, Column: 6}, "limits.more": {Line: 19, Column: 3},
		"rules[0].nothing": {Line: 8, Column: 5}, // the thing around it
	} {
		if at.Of(path) != pos {
			t.Errorf("Of(%s) = %v, want %v", path, at.Of(path), pos)
		}
	}
	// What JSON makes of free values is what came out: no integer became another kind.
	again := map[string]any{}
	b, _ := json.Marshal(got.Free)
	if _ = json.Unmarshal(b, &again); !cmp.Equal(again, got.Free) {
		t.Errorf("%v is not %v", again, got.Free)
	}
}

func TestDecode_refuses(t *testing.T) {
	cases := []struct{ name, file, want string }{
		{"an unknown key", "modell: x", `f.yaml:1:1: "modell" is not a key here; did you mean "model"?`},
		{"an unknown key without a neighbour", "zzzzzzz: x", `f.yaml:1:1: "zzzzzzz" is not a key here`},
		{"a hidden field", "hidden: x", `"hidden" is not a key here`},
		{"an unknown key inside", "limits:\n  setps: 1", `f.yaml:2:3: "setps" is not a key here; did you mean "steps"?`},
		{"a key twice", "name: a\nname: b", "f.yaml:2:1: "},
		{"a number for text", "name: 5", `f.yaml:1:7: text is wanted here, not a number; put it in quotes`},
		{"a list for text", "name: [a]", "text is wanted here, not a list"},
		{"text for a list", "tools: ls", "f.yaml:1:8: a list is wanted here, not text"},
		{"keys for a list", "tools: {a: b}", "a list is wanted here, not keys with values"},
		{"text for a bool", "on: yes please", "true or false is wanted here, not text"},
		{"a fraction for a whole number", "limits: {steps: 1.5}", "a whole number is wanted here, not a number"},
		{"a number too large", "limits: {steps: 18446744073709551615}", "the number is too large"},
		{"an endless number", "limits: {cost_usd: .inf}", "a number is wanted here, not a number"},
		{"a bare number for a time", "wait: 10", `a time such as "10m"`},
		{"no time", "wait: soon", `"soon" is no time`},
		{"a missing value", "name:", "f.yaml:1:7: the value is missing"},
		{"an alias", "name: &x a\nmodel: *x", "references"},
		{"a bare star", "tools: [*]", "f.yaml:1:"},
		{"a merge", "free:\n  <<: {a: b}", "f.yaml:2:"},
		{"a tag", "name: !!str a", "tags (!) are not taken"},
		{"a second document", "name: a\n---\nname: b", "f.yaml:3:1: there is a second document"},
		{"no mapping", "- a", "the file should be a list of keys"},
		{"a scalar", "a", "the file should be a list of keys"},
		{"no YAML", "name: [a", "f.yaml:1:"},
		{"tabs", "limits:\n\tsteps: 1", "f.yaml:"},
		{"a number as a key", "1: a", "f.yaml:1:1: a key should be plain text"},
		{"deep brackets", "free: {a: " + strings.Repeat("[", 50000), "nested deeper"},
		{"deep values", "free: {a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}", "nested deeper than 24"},
		{"a huge file", "name: " + strings.Repeat("x", 64<<10), "larger than 64 KiB"},
		{"all mistakes at once", "nam: a\ntools: 1\nwait: x", "\nf.yaml:3:7:"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := yamlfile.Decode("f.yaml", []byte(c.file), new(outer))
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecode_takesAnEmptyFile(t *testing.T) {
	for _, file := range []string{"", "\n", "# only a comment\n", "---\n"} {
		if _, err := yamlfile.Decode("f.yaml", []byte(file), new(outer)); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestSplit(t *testing.T) {
	cases := []struct {
		file, front, body string
		found             bool
	}{
		{"---\nname: a\n---\nhello\n", "\nname: a\n", "hello\n", true},
		{"---\r\nname: a\r\n---\r\nhello", "\nname: a\r\n", "hello", true},
		{"\ufeff---\nname: a\n---", "\nname: a\n", "", true},
		{"---\n---\nx", "\n", "x", true},
		{"hello\n---\nx", "", "hello\n---\nx", false},
		{"---\nname: a\nno end", "", "---\nname: a\nno end", false},
		{"", "", "", false},
		{"----\na\n---\n", "", "----\na\n---\n", false},
	}
	for _, c := range cases {
		front, body, found := yamlfile.Split([]byte(c.file))
		if string(front) != c.front || string(body) != c.body || found != c.found {
			t.Errorf("Split(%q) = %q, %q, %v", c.file, front, body, found)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"model", "memory", "limits", "tools", "ls"}
	for word, want := range map[string]string{
		"modell": "model", "Model": "model", "limit": "limits", "toosl": "tools", "xyz": "", "": "",
		"lss": "ls", "grep": "", strings.Repeat("x", 100): "",
	} {
		if got := yamlfile.Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"name: a", "tools: [a, b]", "free: {a: [1, {b: c}]}", "a: &x\nb: *x", "- - - a", "? a\n: b", "{", "name: |\n  a\n b", "\"a\": 'b'", "!!a b", "%YAML 1.2\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v outer
		_, err := yamlfile.Decode("f", data, &v)
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Fatalf("%v is not Invalid", err)
		}
		if _, err := json.Marshal(v.Free); err != nil {
			t.Fatal(err)
		}
	})
}

// With pointers what is there differs from what is zero.
func TestDecode_fillsPointers(t *testing.T) {
	var got struct {
		Flag  *bool    `yaml:"flag"`
		Other *bool    `yaml:"other"`
		Rules []*inner `yaml:"rules"`
	}
	if _, err := yamlfile.Decode("f.yaml", []byte("flag: false\nrules: [{steps: 3}]"), &got); err != nil {
		t.Fatal(err)
	}
	if got.Flag == nil || *got.Flag || got.Other != nil || len(got.Rules) != 1 || got.Rules[0].Steps != 3 {
		t.Errorf("got %+v", got)
	}
	if _, err := yamlfile.Decode("f.yaml", []byte("flag:\nrules: [null]"), &got); err == nil || strings.Count(err.Error(), "missing") != 2 {
		t.Errorf("missing values: %v", err)
	}
}

func TestProblems_sayWhichValue(t *testing.T) {
	var v struct {
		List []struct {
			N    int            `yaml:"n"`
			Free map[string]any `yaml:"free"`
		} `yaml:"list"`
		Last string `yaml:"last"`
	}
	problems := yamlfile.NewProblems("f")
	problems.Decode([]byte("list:\n  - {n: 1}\n  - {n: x, m: 1, free: {a: [&b 1]}}\n  - 3\nlast: [a]\n"), yamlfile.BytesMax, &v)
	var paths []string
	for _, p := range problems.List() {
		paths = append(paths, p.Path)
	}
	if want := []string{"list[1].n", "list[1].m", "list[1].free.a[0]", "list[2]", "last"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	problems.Add(yamlfile.Pos{}, "of the whole")
	if list := problems.List(); list[len(list)-1].Path != "" {
		t.Errorf("%+v", list)
	}
}

func TestProblems_boundIsTheCallers(t *testing.T) {
	text := []byte(strings.Repeat("# x\n", yamlfile.BytesMax/2))
	for most, good := range map[int]bool{len(text): true, len(text) - 1: false, 10: false} {
		problems := yamlfile.NewProblems("f")
		problems.Decode(text, most, &struct{}{})
		if (problems.Err() == nil) != good {
			t.Errorf("at most %d: %v", most, problems.Err())
		}
	}
}

func TestDecode_boundsMapsOfLargeFiles(t *testing.T) {
	const most = 2000
	large := "# " + strings.Repeat("x", yamlfile.BytesMax) + "\n"
	row := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	key := func(i int) string { return fmt.Sprintf("  key-%d: 123456\n", i) }
	bare := func(i int) string { return fmt.Sprintf("  key-%d:\n", i) }
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{"so many", large + "free:\n" + row(most, key), true},
		{"one more", large + "free:\n" + row(most+1, key), false},
		{"with others in them", large + "free:\n" + row(most+1, func(i int) string { return bare(i) + "    a: 1\n" }), false},
		{"with lists in them", large + "free:\n" + row(most+1, func(i int) string { return bare(i) + "   - a: 1\n" }), false},
		{"with lines that end in other ways", strings.ReplaceAll(large+"free:\n"+row(most+1, key), "\n", "\r"), false},
		{"asked for", large + "free:\n" + row(most+1, func(i int) string { return fmt.Sprintf("  ? key-number-%d\n", i) }), false},
		{"with their colons elsewhere", large + "free:\n" + row(most+1, func(i int) string { return fmt.Sprintf("  \"k%d\"\n   :\n    1\n", i) }), false},
		{"many maps", large + "free:\n  list:\n" + row(2*most, func(int) string { return "  - a: 1\n    b: 1\n" }), true},
		{"a small file", "free:\n" + row(most+1, func(i int) string { return fmt.Sprintf(" k%d: 1\n", i) }), true},
		{"many maps beneath each other", large + "free:\n" + row(most, func(i int) string { return fmt.Sprintf("  k%d:\n    a: 1\n    b: 1\n", i) }), true},
		{"a long text", large + "text: |\n" + row(most, func(int) string { return "  Some words, and more.\n" }), true},
		{"remarks", large + row(2*most, func(int) string { return "# a: b\n" }), true},
	} {
		var v struct {
			Free map[string]any `yaml:"free"`
			Text string         `yaml:"text"`
		}
		problems := yamlfile.NewProblems("f")
		problems.Decode([]byte(c.text), 1<<20, &v)
		if err := problems.Err(); (err == nil) != c.good || err != nil && !strings.Contains(errs.Public(err), "more than 2000 lines begin beneath each other") {
			t.Errorf("%s: %.200v", c.name, err)
		}
	}
}
