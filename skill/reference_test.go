package skill

import (
	"strings"
	"testing"
)

// The standard's reference library, skills-ref 0.1.1, was asked about each of these once; what
// it said is the column valid. Where Parse says otherwise the reason stands beside it.
func TestParse_likeTheReference(t *testing.T) {
	const name, what = "name: pdf-forms\n", "description: Fills forms. Use it for PDFs.\n"
	const good = name + what
	for _, x := range []struct {
		front   string
		valid   bool
		because string // Parse says the opposite; "" = it says the same
	}{
		{good, true, ""},
		{good + "license: MIT\ncompatibility: Needs git\nmetadata:\n  author: a\n  version: \"1.0\"\nallowed-tools: Bash(git:*) Read\n", true, ""},
		{good + "allowed-tools:\n  - Read\n  - Bash\n", true, ""},
		{name + "description: " + strings.Repeat("a", 1024) + "\n", true, ""},
		{good + "compatibility: " + strings.Repeat("a", 500) + "\n", true, ""},
		{what, false, ""},
		{name, false, ""},
		{"name: ''\n" + what, false, ""},
		{name + "description: ''\n", false, ""},
		{"name: PDF-forms\n" + what, false, ""},
		{"name: -pdf\n" + what, false, ""},
		{"name: pdf-\n" + what, false, ""},
		{"name: pdf--forms\n" + what, false, ""},
		{"name: pdf_forms\n" + what, false, ""},
		{"name: pdf forms\n" + what, false, ""},
		{"name: pdf\n" + what, false, ""},
		{"name: 12\n" + what, false, ""},
		{"name: " + strings.Repeat("a", 65) + "\n" + what, false, ""},
		{name + "description: " + strings.Repeat("a", 1025) + "\n", false, ""},
		{good + "compatibility: " + strings.Repeat("a", 501) + "\n", false, ""},
		{good + "compatibility:\n  - git\n", false, ""},
		{good + "license: [MIT]\n", false, ""},
		{good + "license: &a MIT\n", false, ""},
		{good + "model: opus\n", false, ""},
		{good + name, false, ""},
		{name + "description: Use it when: a PDF comes\n", false, ""},
		{good + "allowed-tools: [Read]\n", false, "the library reads a part of YAML, without lists in brackets; the standard says a list"},
		{good + "compatibility: ''\n", true, "the standard says 1 to 500 characters"},
		{good + "license: ''\n", true, "a field that is there says something"},
		{good + "allowed-tools: ''\n", true, "a field that is there says something"},
		{good + "metadata: x\n", true, "the standard says a map"},
		{good + "metadata:\n  a:\n    - x\n", true, "the standard says a map to text"},
		{good + "metadata:\n  a:\n    b: c\n", true, "the standard says a map to text"},
		{good + "metadata:\n  version: 1.0\n", true, "the standard says text, and other readers of YAML make 1 of it"},
		{name + "description: 12\n", true, "the standard says text"},
	} {
		_, problems := Parse("pdf-forms", whole(x.front))
		if same := (len(problems) == 0) == x.valid; same != (x.because == "") {
			t.Errorf("%q: %v, the reference says %v %s", x.front, problems, x.valid, x.because)
		}
	}
}
