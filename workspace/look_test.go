package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

// unified is a diff as people write it.
func unified(d workspace.Diff) string {
	var b strings.Builder
	for _, f := range d.Files {
		kind := string(rune(max(f.Before.Type, '-'))) + string(rune(max(f.After.Type, '-')))
		b.WriteString(kind + " " + f.Path)
		if f.Binary {
			b.WriteString(" binary")
		}
		if f.Large {
			b.WriteString(" large")
		}
		b.WriteString("\n")
		for _, h := range f.Hunks {
			for _, l := range h.Lines {
				b.WriteString("  " + string(rune(l.Kind)) + l.Text)
				if l.NoNewline {
					b.WriteString("$")
				}
				b.WriteString("\n")
			}
		}
	}
	if d.Cut {
		b.WriteString("cut\n")
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	p := newPlace(t)
	p.write("src/a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	p.write("src/gone", "x\n")
	p.write("bin", "a\x00b")
	p.write("swap/f", "file in a directory\n")
	p.write("mode", "same")
	first := p.snapshot()
	p.write("src/a", "1\n2\n3\n4\nfive\n6\n7\n8\n9")
	must(t, os.Remove(filepath.Join(p.dir, "src/gone")))
	p.write("bin", "a\x00c")
	must(t, os.RemoveAll(filepath.Join(p.dir, "swap")))
	p.write("swap", "now a file\n")
	must(t, os.Chmod(filepath.Join(p.dir, "mode"), 0o755))
	must(t, os.Mkdir(filepath.Join(p.dir, "empty"), 0o755))
	must(t, os.Symlink("a", filepath.Join(p.dir, "src/link")))
	second := p.snapshot()
	for name, c := range map[string]struct {
		from, to uint64
		o        workspace.DiffOptions
		want     string
	}{
		"all": {first.N, second.N, workspace.DiffOptions{Hunks: true, Context: 1}, "ff bin binary\n-d empty\nff mode\n" +
			"ff src/a\n   4\n  -5\n  +five\n   6\n   8\n  -9\n  +9$\n" +
			"f- src/gone\n  -x\n-l src/link\ndf swap\n  +now a file\nf- swap/f\n  -file in a directory\n"},
		"backwards":      {second.N, first.N, workspace.DiffOptions{Path: "src/gone", Hunks: true}, "-f src/gone\n  +x\n"},
		"a directory":    {first.N, second.N, workspace.DiffOptions{Path: "src"}, "ff src/a\nf- src/gone\n-l src/link\n"},
		"the empty tree": {0, first.N, workspace.DiffOptions{Path: "swap", Hunks: true}, "-d swap\n-f swap/f\n  +file in a directory\n"},
		"nothing there":  {first.N, second.N, workspace.DiffOptions{Path: "no/where"}, ""},
		"the same":       {second.N, second.N, workspace.DiffOptions{}, ""},
		"few files":      {first.N, second.N, workspace.DiffOptions{FilesMax: 2}, "ff bin\n-d empty\ncut\n"},
		"few bytes":      {first.N, second.N, workspace.DiffOptions{Path: "src/a", Hunks: true, BytesMax: 3}, "ff src/a large\n"},
	} {
		d, err := p.w.Diff(t.Context(), c.from, c.to, c.o)
		must(t, err)
		if diff := cmp.Diff(c.want, unified(d)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := p.w.Diff(t.Context(), 1, 99, workspace.DiffOptions{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown revision: %v", err)
	}
}

func TestEntryAndContent(t *testing.T) {
	p := newPlace(t)
	p.write("d/text", "hello")
	must(t, os.Symlink("text", filepath.Join(p.dir, "d/link")))
	sparse := filepath.Join(p.dir, "sparse")
	f, err := os.Create(sparse)
	must(t, err)
	must(t, f.Truncate(40<<20))
	_, err = f.WriteAt([]byte("middle"), 20<<20)
	must(t, err)
	must(t, f.Close())
	rev := p.snapshot()
	for path, want := range map[string]tree.Type{"": tree.Dir, "d": tree.Dir, "d/text": tree.File, "d/link": tree.Link} {
		if e, err := p.w.Entry(t.Context(), rev.N, path); err != nil || e.Type != want {
			t.Errorf("%q: %c, %v", path, e.Type, err)
		}
	}
	for path, want := range map[string]errs.Class{
		"no": errs.NotFound, "d/text/x": errs.NotFound, "d/link/x": errs.NotFound,
		"/d": errs.Invalid, "d/": errs.Invalid, "../x": errs.Invalid, "d//text": errs.Invalid, "d/\x00": errs.Invalid,
	} {
		if _, err := p.w.Entry(t.Context(), rev.N, path); !errs.Is(err, want) {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
	var b bytes.Buffer
	must(t, p.w.Content(t.Context(), rev.N, "d/text", &b))
	if b.String() != "hello" {
		t.Errorf("%q", b.String())
	}
	for _, path := range []string{"d", "d/link"} {
		if err := p.w.Content(t.Context(), rev.N, path, &b); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", path, err)
		}
	}
	b.Reset()
	must(t, p.w.Content(t.Context(), rev.N, "sparse", &b))
	want, err := os.ReadFile(sparse)
	must(t, err)
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("a sparse file: %d bytes, want %d", b.Len(), len(want))
	}
}
