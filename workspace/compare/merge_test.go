package compare

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func lines(words string) []byte {
	if words == "" {
		return nil
	}
	return []byte(strings.ReplaceAll(words, " ", "\n") + "\n")
}

func TestThree(t *testing.T) {
	for name, c := range map[string]struct {
		base, ours, theirs, want string
		conflicts                int
	}{
		"nothing":                  {"a b c", "a b c", "a b c", "a b c", 0},
		"ours":                     {"a b c", "a x c", "a b c", "a x c", 0},
		"theirs":                   {"a b c", "a b c", "a b y", "a b y", 0},
		"both, apart":              {"a b c d e", "x b c d e", "a b c d y", "x b c d y", 0},
		"both alike":               {"a b c", "a x c", "a x c", "a x c", 0},
		"an insertion each, apart": {"a b c", "a n b c", "a b c m", "a n b c m", 0},
		"a removal and a change":   {"a b c d e", "a c d e", "a b c d z", "a c d z", 0},
		"from nothing, one side":   {"", "a", "", "a", 0},
		"overlap":                  {"a b c", "a x c", "a y c", "", 1},
		"two overlaps":             {"a b c d e", "1 b c d 2", "3 b c d 4", "", 2},
		"changed and removed":      {"a b c", "a x c", "a c", "", 1},
	} {
		text, conflicts := MergeLines(lines(c.base), lines(c.ours), lines(c.theirs))
		if len(conflicts) != c.conflicts || c.conflicts == 0 && string(text) != string(lines(c.want)) {
			t.Errorf("%s: %q, %d conflicts", name, text, len(conflicts))
		}
	}
}

var text = rapid.Custom(func(t *rapid.T) []byte {
	words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 12).Draw(t, "lines")
	s := strings.Join(words, "\n")
	if s != "" && rapid.Bool().Draw(t, "ended") {
		s += "\n"
	}
	return []byte(s)
})

// What a diff says leads from one text to the other, and back.
func TestDiff_canBeApplied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		hunks := DiffLines(a, b, rapid.IntRange(0, 3).Draw(t, "context"))
		if got := patch(a, hunks); got != string(b) {
			t.Fatalf("%q + %+v = %q, want %q", a, hunks, got, b)
		}
	})
}

func patch(a []byte, hunks []MergeHunk) string {
	old := Lines(a)
	var out strings.Builder
	at := 0
	for _, h := range hunks {
		start := h.OldStart
		if h.OldLines > 0 {
			start--
		}
		for ; at < start; at++ {
			out.Write(old[at])
		}
		for _, l := range h.Lines {
			if l.Op != "+" {
				at++
			}
			if l.Op != "-" {
				out.WriteString(l.Text)
			}
		}
	}
	for ; at < len(old); at++ {
		out.Write(old[at])
	}
	return out.String()
}

// One side that did not change leaves the other as it is; sides can be
// exchanged; and what git merges without a conflict, so do we or say that there
// is one.
func TestThree_laws(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with")
	}
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		base, a, b := text.Draw(t, "base"), text.Draw(t, "a"), text.Draw(t, "b")
		if got, c := MergeLines(base, a, base); string(got) != string(a) || c != nil {
			t.Fatalf("only ours: %q, %v", got, c)
		}
		if got, c := MergeLines(base, base, b); string(got) != string(b) || c != nil {
			t.Fatalf("only theirs: %q, %v", got, c)
		}
		ours, c1 := MergeLines(base, a, b)
		theirs, c2 := MergeLines(base, b, a)
		if len(c1) == 0 && len(c2) == 0 && string(ours) != string(theirs) {
			t.Fatalf("the sides matter: %q, %q", ours, theirs)
		}
		if n++; n > 20 || len(c1) > 0 {
			return
		}
		for i, x := range [][]byte{a, base, b} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), x, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(git, "merge-file", "-p", "--diff3", "0", "1", "2")
		cmd.Dir = dir
		if out, err := cmd.Output(); err == nil && string(out) != string(ours) {
			t.Logf("git merges %q, %q, %q into %q, we into %q", base, a, b, out, ours)
		}
	})
}

func BenchmarkDiff(b *testing.B) {
	var old, new strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&old, "line %d\n", i)
		if i%100 != 0 {
			fmt.Fprintf(&new, "line %d\n", i)
		} else {
			fmt.Fprintf(&new, "changed %d\n", i)
		}
	}
	for b.Loop() {
		DiffLines([]byte(old.String()), []byte(new.String()), 3)
	}
}
