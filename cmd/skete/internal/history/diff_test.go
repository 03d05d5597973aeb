package history

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/compare"
)

// thing is a file or a link.
type thing struct {
	link, exec bool
	text       string // or where the link leads
}

func (x *thing) entry() *api.TreeEntry {
	switch {
	case x == nil:
		return nil
	case x.link:
		return &api.TreeEntry{Type: "symlink", Target: x.text}
	case x.exec:
		return &api.TreeEntry{Type: "file", Mode: 0o755}
	}
	return &api.TreeEntry{Type: "file", Mode: 0o644}
}

// content is the text of a file, and of no other thing.
func (x *thing) content() []byte {
	if x == nil || x.link {
		return nil
	}
	return []byte(x.text)
}

// change is what the server says of a path, nil = nothing.
func change(path string, before, after *thing) *api.PathChange {
	switch {
	case before == nil && after == nil, before != nil && after != nil && *before == *after:
		return nil
	}
	f := &api.PathChange{Path: path, Action: "change", Before: before.entry(), After: after.entry()}
	switch {
	case before == nil:
		f.Action = "add"
	case after == nil:
		f.Action = "remove"
	case before.text == after.text && before.link == after.link:
		f.Action = "attributes"
	}
	for _, h := range compare.DiffLines(before.content(), after.content(), 3) {
		hunk := api.DiffHunk{Before: h.OldStart, BeforeLines: h.OldLines, After: h.NewStart, AfterLines: h.NewLines}
		for _, l := range h.Lines {
			text, ended := strings.CutSuffix(l.Text, "\n")
			kind := map[string]string{" ": "same", "-": "remove", "+": "add"}[l.Op]
			hunk.Lines = append(hunk.Lines, api.DiffLine{Kind: kind, Text: text, NoNewline: !ended})
		}
		f.Hunks = append(f.Hunks, hunk)
	}
	return f
}

// put makes a directory what a map says.
func put(dir string, files map[string]*thing) error {
	for name, x := range files {
		if x == nil {
			continue
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if x.exec {
			mode = 0o755
		}
		var err error
		if x.link {
			err = os.Symlink(x.text, name)
		} else {
			err = os.WriteFile(name, []byte(x.text), mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take is the opposite of put.
func take(dir string) (map[string]thing, error) {
	files := map[string]thing{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		x := thing{link: d.Type()&os.ModeSymlink != 0}
		if x.link {
			x.text, err = os.Readlink(name)
		} else {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				x.exec = info.Mode()&0o100 != 0
			}
			var text []byte
			if text, err = os.ReadFile(name); err == nil {
				x.text = string(text)
			}
		}
		rel, rerr := filepath.Rel(dir, name)
		files[rel] = x
		return errors.Join(err, rerr)
	})
	return files, err
}

// What is printed is a diff that git applies, whatever the names, the modes and
// the ends of the files.
func TestDiff_gitAppliesIt(t *testing.T) {
	names := []string{"a.txt", "sub/b c.txt", "ü", "tab\tname", `quote"d`, `back\slash`, "new\nline", "a b/c"}
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "-- a", "+b", "\\ No newline at end of file", "tab\t", "ü", "@@ -1 +1 @@"}), 0, 14)
	things := rapid.Custom(func(t *rapid.T) *thing {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return &thing{link: true, text: rapid.SampledFrom([]string{"a", "../b c", "ü"}).Draw(t, "target")}
		}
		x := &thing{exec: rapid.Bool().Draw(t, "exec"), text: strings.Join(lines.Draw(t, "lines"), "\n")}
		if x.text != "" && rapid.Bool().Draw(t, "ends") {
			x.text += "\n"
		}
		return x
	})
	top, n := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(top, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as a workspace is
			t.Fatal(err)
		}
		before, after := map[string]*thing{}, map[string]*thing{}
		want := map[string]thing{}
		var out bytes.Buffer
		p := &printer{w: &out, raw: true}
		for _, name := range names[:rapid.IntRange(1, len(names)).Draw(t, "names")] {
			before[name] = things.Draw(t, "before")
			after[name] = things.Draw(t, "after")
			if rapid.Bool().Draw(t, "same text") && before[name] != nil && after[name] != nil {
				after[name].text, after[name].link = before[name].text, before[name].link
			}
			if x := after[name]; x != nil {
				x.exec = x.exec && !x.link
				want[name] = *x
			}
			if f := change(name, before[name], after[name]); f != nil {
				p.file(*f)
			}
		}
		if err := put(dir, before); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 0 {
			cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
			cmd.Dir, cmd.Stdin = dir, bytes.NewReader(out.Bytes())
			cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git: %v: %s\n%s", err, text, out.String())
			}
		}
		got, err := take(dir)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(thing{})); d != "" {
			t.Fatalf("%s\n%s", d, out.String())
		}
	})
}

// What goes to a terminal cannot drive it, neither by a name nor by a line.
func TestDiff_drivesNoTerminal(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, colour: true}
	p.file(api.PathChange{Path: "x\x1b[2J", Before: &api.TreeEntry{Type: "file"}, After: &api.TreeEntry{Type: "file"}, Hunks: []api.DiffHunk{{Lines: []api.DiffLine{{Kind: "add", Text: "\x1b]0;title\x07\r"}}}}})
	p.stat(api.PathChange{Path: "x\x1b[2J", Action: "add"})
	text := out.String()
	for _, c := range []string{bold, red, green, cyan, plain} {
		text = strings.ReplaceAll(text, c, "")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }); i >= 0 {
		t.Errorf("%q", text)
	}
}

func TestAsked(t *testing.T) {
	for _, c := range []struct {
		words      string
		span, path string
		wrong      bool
	}{
		{"", "", "", false},
		{"3", "3", "", false},
		{"3..7", "3..7", "", false},
		{"..7", "..7", "", false},
		{"3..", "3..", "", false},
		{"3 src", "3", "src", false},
		{"src", "", "src", false},
		{"./7", "", "./7", false},
		{"3 7", "3", "7", false},
		{"..", "", "..", false},
		{"../x", "", "../x", false},
		{"a..b", "", "", true},
		{"3..b", "", "", true},
		{"3..7..9", "", "", true},
		{"99999999999999999999", "", "", true},
		{"src more", "", "", true},
		{"3 src more", "", "", true},
		{"3 a..b", "3", "a..b", false},
	} {
		span, path, err := asked(strings.Fields(c.words), 3)
		if (err != nil) != c.wrong || err != nil && !errs.Is(err, errs.Invalid) || !c.wrong && (span != c.span || path != c.path) {
			t.Errorf("%q: %q %q %v", c.words, span, path, err)
		}
	}
	if _, _, err := asked(nil, -1); !errs.Is(err, errs.Invalid) {
		t.Errorf("-1 lines around: %v", err)
	}
}
