package envd

import (
	"strings"
	"testing"
)

// The history tells what was run, also where a request is not one, or too long to be
// looked at whole.
func TestCodeName(t *testing.T) {
	for body, want := range map[string]string{
		`{"code":"x = 1\nx","language":null}`: "code x = 1\nx",
		`{"language":"bash","code":"rm a"}`:   "code rm a",
		`{"code":""}`:                         "code",
		`{"code":7}`:                          "code",
		`nothing`:                             "code",
		`{"code":"` + strings.Repeat("x", codeBytesMax)[9:]: "code",
	} {
		if got := codeName([]byte(body)); got != want {
			t.Errorf("%.40q: %.40q, want %q", body, got, want)
		}
	}
}

// What clients call a template is found by our name of it.
func TestTemplateName(t *testing.T) {
	for asked, want := range map[string]string{"base": "", "code-interpreter-v1": "code-interpreter", "code-interpreter": "code-interpreter", "mine": "mine"} {
		if got := templateName(asked); got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
}
