package skill

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What fits best is first, what does not fit is left out, and hostile queries cost little.
func TestBest(t *testing.T) {
	texts := []string{
		"pdf-forms: Fills in forms of PDF files.",
		"data-report: Makes a report with plots of CSV files.",
		"web-page: Makes a page of files, and serves it.",
		"übersetzung: Translates files into German.",
	}
	for query, want := range map[string][]int{
		"fill a PDF form":                      {0, 1, 2}, // "a" is a word of two others
		"report":                               {1},
		"Reports!":                             {1},
		"plot a CSV":                           {1, 2},
		"ÜBERSETZUNG":                          {3},
		"files":                                {0, 1},
		"nothing of it":                        {2, 0}, // "of" is
		"":                                     nil,
		"zzz":                                  nil,
		"\xff\xfe \x00":                        nil,
		strings.Repeat("zz ", 5000) + "report": nil, // beyond the bound
	} {
		n := 3
		if len(want) == 2 {
			n = 2
		}
		if d := cmp.Diff(want, Best(texts, query, n)); d != "" {
			t.Errorf("%.40q: %s", query, d)
		}
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("skill-%d does what word%d says", i, i))
	}
	if got := Best(many, "which skill does word737?", 10); len(got) != 10 || got[0] != 737 {
		t.Errorf("of 1,000: %v", got)
	}
}

func FuzzBest(f *testing.F) {
	f.Add("fill forms", "Fills forms.")
	f.Add("\xff ü", "a\x00b")
	f.Fuzz(func(t *testing.T, query, text string) {
		got := Best([]string{text, "a", text}, query, 2)
		if len(got) > 2 {
			t.Error(got)
		}
		for _, i := range got {
			if i < 0 || i > 2 {
				t.Error(got)
			}
		}
	})
}
