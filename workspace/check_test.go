package workspace_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// check checks a history that is not open, with Check and then as fsck does.
func (p *place) check() workspace.Report {
	p.t.Helper()
	report, err := workspace.Check(p.t.Context(), p.c.Store)
	must(p.t, err)
	if d := cmp.Diff(report, p.fsck()); d != "" {
		p.t.Errorf("fsck finds something else: %s", d)
	}
	return report
}

// fsck is what `skete fsck` does with a history, which may be open.
func (p *place) fsck() workspace.Report {
	p.t.Helper()
	report, err := workspace.CheckRunning(p.t.Context(), p.c.Store, filepath.Join(filepath.Dir(p.c.Store), "check"))
	must(p.t, err)
	for _, x := range report.Problems {
		p.t.Errorf("the history is damaged: %s", x)
	}
	return report
}

// smallHistory has every kind of object, in several segments.
func smallHistory(t testing.TB) *place {
	p := newPlace(t)
	must(t, p.w.Close())
	p.c.SegmentBytes = 8 << 10
	p.open()
	for n := range 6 {
		p.write(fmt.Sprintf("dir/f%d", n), noise(uint64(n), 3000))
		p.write("text", strings.Repeat(fmt.Sprint("line ", n, "\n"), 50))
		p.snapshot()
	}
	f, err := os.Create(filepath.Join(p.dir, "sparse"))
	must(t, err)
	must(t, f.Truncate(9<<20))
	_, err = f.WriteAt([]byte("middle"), 5<<20)
	must(t, err)
	must(t, f.Close())
	p.snapshot()
	must(t, p.w.Close())
	return p
}

// A bit that flips anywhere is found and its file named. Open refuses, or keeps
// all revisions, unless it cannot tell the damage from what a power cut leaves.
func TestCheck_findsEveryFlippedBit(t *testing.T) {
	p := smallHistory(t)
	whole := p.check()
	if whole.Revisions != 7 || whole.Objects < 20 || whole.Torn != nil || whole.Unfinished {
		t.Fatalf("%+v", whole)
	}
	var files []string
	for _, pattern := range []string{"objects/*.seg", "revisions"} {
		names, err := filepath.Glob(filepath.Join(p.c.Store, pattern))
		must(t, err)
		files = append(files, names...)
	}
	if len(files) < 4 {
		t.Fatalf("too few files: %q", files)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 400 {
		name := files[r.IntN(len(files))]
		old, err := os.ReadFile(name)
		must(t, err)
		at := r.IntN(len(old))
		data := bytes.Clone(old)
		data[at] ^= 1 << r.IntN(8)
		must(t, os.WriteFile(name, data, 0o600))
		report, err := workspace.Check(t.Context(), p.c.Store)
		must(t, err)
		if report.Whole() && report.Torn == nil {
			t.Fatalf("round %d: byte %d of %s flipped, and nothing found", round, at, name)
		}
		named := false
		for _, x := range append(report.Problems, report.Torn...) {
			named = named || strings.HasSuffix(name, x.File) && x.File != ""
		}
		if !named {
			t.Fatalf("round %d: the damage is in %s, found: %v %v", round, name, report.Problems, report.Torn)
		}
		w, err := workspace.Open(p.c)
		if err == nil {
			revs, err := w.Revisions(t.Context())
			must(t, err)
			if len(revs) != 7 && report.Torn == nil {
				t.Fatalf("round %d: byte %d of %s flipped, and %d revisions are left", round, at, name, len(revs))
			}
		} else if !errs.Is(err, errs.Corrupt) {
			t.Fatalf("round %d: %v, want Corrupt", round, err)
		}
		must(t, w.Close())
		must(t, os.WriteFile(name, old, 0o600))
	}
	p.check()
}

// What a power cut leaves at the end of a file is said, is no damage, and is
// gone when the history was opened.
func TestCheck_tornTail(t *testing.T) {
	p := smallHistory(t)
	segments, err := filepath.Glob(filepath.Join(p.c.Store, "objects/*.seg"))
	must(t, err)
	last := segments[len(segments)-1]
	for name, file := range map[string]string{"objects": last, "revisions": filepath.Join(p.c.Store, "revisions")} {
		old, err := os.ReadFile(file)
		must(t, err)
		for _, tail := range [][]byte{{'r'}, old[16:40], make([]byte, 700), append(bytes.Clone(old[len(old)-60:]), make([]byte, 512)...)} {
			must(t, os.WriteFile(file, append(bytes.Clone(old), tail...), 0o600))
			if report := p.check(); len(report.Torn) != 1 || !strings.HasPrefix(report.Torn[0].File, name) {
				t.Errorf("%s: %+v", name, report)
			}
			p.open()
			if revs, err := p.w.Revisions(t.Context()); err != nil || len(revs) != 7 {
				t.Errorf("%s: %d revisions, %v", name, len(revs), err)
			}
			must(t, p.w.Close())
			if report := p.check(); report.Torn != nil {
				t.Errorf("%s: still torn: %v", name, report.Torn)
			}
		}
	}
}

// An object that a revision needs and that is gone is named with revision and
// path; a history that is none is an error.
func TestCheck_missing(t *testing.T) {
	p := smallHistory(t)
	segments, err := filepath.Glob(filepath.Join(p.c.Store, "objects/*.seg"))
	must(t, err)
	must(t, os.Remove(segments[0]))
	report, err := workspace.Check(t.Context(), p.c.Store)
	must(t, err)
	found := false
	for _, x := range report.Problems {
		found = found || x.Revision == 7 && x.Path == "dir/f0" && x.Object != "" && x.Why == "it is missing"
	}
	if !found {
		t.Errorf("%v", report.Problems)
	}
	if _, err := workspace.Check(t.Context(), t.TempDir()); err == nil {
		t.Error("an empty directory was checked")
	}
}

// A journal that is damaged is said, and no undo is made of it.
func TestCheck_journal(t *testing.T) {
	p := smallHistory(t)
	journal := filepath.Join(p.c.Store, "journal")
	before := look(t, p.dir)
	for name, text := range map[string]string{
		"empty":        "",
		"no journal":   "hello",
		"wrong sum":    "skjournal1 00000000\n{}",
		"no sum":       "skjournal1 \n{}",
		"another kind": "skjournal2 00000000\n",
	} {
		must(t, os.WriteFile(journal, []byte(text), 0o600))
		must(t, os.WriteFile(journal+".staged", nil, 0o600))
		report, err := workspace.Check(t.Context(), p.c.Store)
		must(t, err)
		if len(report.Problems) != 1 || report.Problems[0].File != "journal" {
			t.Errorf("%s: %+v", name, report)
		}
		if _, err := workspace.Open(p.c); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
	if len(look(t, p.dir)) != len(before) {
		t.Error("it touched the directory")
	}
	must(t, os.Remove(journal))
	p.open()
	p.snapshot()
}
