package history

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
)

func TestParseToken_bad(t *testing.T) {
	for _, s := range []string{
		"", "-", "undo", "undo-1", "undo-1-", "undo--a", "Undo-1-a", "eat-1-a", "undo-1-a b", "undo-1-a\n", "\nundo-1-a",
		"undo--1-a", "undo-+1-a", "undo-1-ä", "undo-99999999999999999999-a", "undo-1-../a", "undo-1-" + strings.Repeat("a", 201),
	} {
		if k, err := parseToken(s); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %+v, %v", s, k, err)
		}
	}
}

// Whatever a client sends as a plan is refused, or is read as what makes the
// same plan again; one plan never has two forms, for answers are remembered by it.
func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"undo-3-abc", "restore-18446744073709551615-a", "revert-007-a", "redo-0-_.:-", "", "undo-1-a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := parseToken(s)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("%q: %v is not Invalid", s, err)
			}
			return
		}
		if k.String() != s {
			t.Fatalf("%q is read as %q", s, k)
		}
		if l := k.label(); l == "" || strings.ContainsAny(l, "\n\x00") {
			t.Fatalf("%q is labelled %q", s, l)
		}
	})
}
