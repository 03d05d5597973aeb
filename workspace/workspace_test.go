package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("WORKSPACE_WORK"); dir != "" {
		work(dir, os.Getenv("WORKSPACE_STAGE"), os.Getenv("WORKSPACE_SEED"))
		os.Exit(3)
	}
	if dir := os.Getenv("WORKSPACE_DIE"); dir != "" {
		die(dir, os.Getenv("WORKSPACE_STAGE"))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a directory with its history.
type place struct {
	t   testing.TB
	dir string // of the workspace
	c   workspace.Config
	w   *workspace.Workspace
}

func newPlace(t testing.TB) *place {
	t.Helper()
	base := t.TempDir()
	p := &place{t: t, dir: filepath.Join(base, "files")}
	p.c = configIn(base)
	must(t, os.Mkdir(p.dir, 0o755))
	p.open()
	return p
}

func configIn(base string) workspace.Config {
	return workspace.Config{Dir: filepath.Join(base, "files"), Staging: filepath.Join(base, "staging"), Store: filepath.Join(base, "history")}
}

func (p *place) open() {
	p.t.Helper()
	w, err := workspace.Open(p.c)
	must(p.t, err)
	p.w = w
	p.t.Cleanup(func() { _ = w.Close() })
}

func (p *place) snapshot() workspace.Revision {
	p.t.Helper()
	r, _, err := p.w.Snapshot(p.t.Context(), workspace.Label{Actor: "agent"})
	must(p.t, err)
	return r
}

func (p *place) restore(n uint64, path string) workspace.Revision {
	p.t.Helper()
	plan, err := p.w.PlanRestore(p.t.Context(), n, path)
	must(p.t, err)
	r, _, err := p.w.Apply(p.t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(p.t, err)
	return r
}

func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	must(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(p.t, os.WriteFile(path, []byte(text), 0o644))
}

// look is an independent picture of a directory: what a user would see.
func look(t testing.TB, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if rel == "." {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(data), data[:min(len(data), 64)])
			value := make([]byte, 100)
			if n, err := unix.Getxattr(path, "user.note", value); err == nil {
				text += " " + string(value[:n])
			}
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " -> " + target
		}
		seen[rel] = text
		return nil
	}))
	return seen
}

// put writes a file if that is possible, without waiting for the reader of a
// named pipe that may be there, or behind a link that is there.
func put(path string, data []byte, mode fs.FileMode) {
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, mode); err == nil {
		_, _ = f.Write(data)
		_ = f.Close()
	}
}

// meddle changes the directory at random.
func meddle(t testing.TB, r *rand.Rand, dir string) {
	t.Helper()
	name := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = []string{"a", "b", "c\n", "d\xff", "E", "e"}[r.IntN(6)]
		}
		return filepath.Join(append([]string{dir}, parts...)...)
	}
	for range 1 + r.IntN(6) {
		path := name()
		if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
			continue // what is no directory, a named pipe even, must not be walked through
		}
		switch r.IntN(12) {
		case 0, 1, 2:
			put(path, fmt.Appendf(nil, "%d", r.IntN(50)), 0o644)
		case 3:
			_ = os.RemoveAll(path)
		case 4:
			_ = os.Rename(path, name())
		case 5:
			_ = os.Symlink("../"+filepath.Base(name()), path)
		case 6:
			_ = os.Chmod(path, os.FileMode(0o400|r.IntN(0o400)))
		case 7:
			_ = unix.Mkfifo(path, 0o600)
		case 8:
			_ = os.Mkdir(path, 0o700)
		case 9:
			if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0); err == nil {
				_, _ = f.WriteString("more")
				_ = f.Close()
			}
		case 10:
			_ = unix.Setxattr(path, "user.note", fmt.Appendf(nil, "note %d", r.IntN(5)), 0)
		case 11:
			put(path, bytes.Repeat([]byte{byte(r.IntN(3))}, 9<<20), 0o600) // kept in parts
		}
	}
}

// What a scan of the changes finds is what a scan of everything finds; what is
// restored is what was there; and going back can be gone back.
func TestWorkspace_differential(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: files that their owner may not read")
	}
	seed := rand.Uint64()
	if text := os.Getenv("WORKSPACE_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("again: WORKSPACE_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	p := newPlace(t)
	pictures := map[uint64]map[string]string{}
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		meddle(t, r, p.dir)
		if round > rounds/2 {
			scramble(t, r, p.dir)
		}
		rev := p.snapshot()
		if before, ok := pictures[rev.N]; ok && !maps.Equal(before, look(t, p.dir)) {
			t.Fatalf("round %d: a change was not seen:\n%s", round, cmp.Diff(before, look(t, p.dir)))
		}
		pictures[rev.N] = look(t, p.dir)
		full := p.c
		full.Store, full.Capture = filepath.Join(t.TempDir(), "h"), capture.Config{Full: true}
		other, err := workspace.Open(full)
		must(t, err)
		again, _, err := other.Snapshot(t.Context(), workspace.Label{})
		must(t, err)
		must(t, other.Close())
		if again.Root != rev.Root {
			t.Fatalf("round %d: the scan of changes found %s, a whole one %s", round, rev.Root, again.Root)
		}
		if round%3 != 2 {
			continue
		}
		revs, err := p.w.Revisions(t.Context())
		must(t, err)
		target := revs[r.IntN(len(revs))]
		now := look(t, p.dir)
		made := p.restore(target.N, "")
		pictures[made.N] = look(t, p.dir)
		if round <= rounds/2 && made.Root != target.Root {
			t.Errorf("restored to %s, want %s", made.Root, target.Root)
		}
		gitKept(t, now, pictures[made.N], pictures[target.N])
		filesEqual(t, pictures[target.N], pictures[made.N])
		again, _, err = p.w.Snapshot(t.Context(), workspace.Label{})
		must(t, err)
		if plan, err := p.w.PlanRestore(t.Context(), target.N, ""); err != nil || len(plan.Ops) > 0 || again.N != made.N {
			t.Errorf("there is more to be done: %+v, %v", plan.Ops, err)
		}
		if t.Failed() {
			t.Fatalf("round %d: restored to revision %d", round, target.N)
		}
		if r.IntN(4) == 0 {
			must(t, p.w.Close())
			p.open()
		}
	}
}

func TestRestore_onePath(t *testing.T) {
	p := newPlace(t)
	p.write("src/a", "old a")
	p.write("src/sub/b", "old b")
	p.write("other", "old")
	first := p.snapshot()
	p.write("src/a", "new a")
	must(t, os.RemoveAll(filepath.Join(p.dir, "src/sub")))
	p.write("src/new", "new")
	p.write("other", "new")
	p.restore(first.N, "src")
	want := []string{"other=new", "src/a=old a", "src/sub/b=old b"}
	if got := texts(t, p.dir); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p.restore(first.N, "other")
	if got := texts(t, p.dir); got[0] != "other=old" {
		t.Errorf("%q", got)
	}
}

func texts(t testing.TB, dir string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all = append(all, rel+"="+string(data))
		return err
	}))
	return all
}

// What the history does not hold is never touched, and said.
func TestRestore_leavesWhatIsNotKept(t *testing.T) {
	p := newPlace(t)
	p.write("a", "1")
	first := p.snapshot()
	p.write("app/__pycache__/x.pyc", "cache")
	p.write("app/main.py", "code")
	p.snapshot()
	plan, err := p.w.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	if len(plan.Skipped) != 1 || plan.Skipped[0].Path != "app/__pycache__" {
		t.Errorf("the plan does not say what is left alone: %+v", plan.Skipped)
	}
	_, result, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	if want := []string{"a=1", "app/__pycache__/x.pyc=cache"}; !slices.Equal(texts(t, p.dir), want) {
		t.Errorf("%q, want %q", texts(t, p.dir), want)
	}
	if !slices.Equal(result.Kept, []string{"app"}) {
		t.Errorf("kept: %q", result.Kept)
	}
}

func TestApply_refusesAnOldPlan(t *testing.T) {
	p := newPlace(t)
	p.write("a", "1")
	first := p.snapshot()
	p.write("a", "2")
	plan, err := p.w.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	p.write("a", "3")
	if _, _, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("%v, want Conflict", err)
	}
	if got := texts(t, p.dir); got[0] != "a=3" {
		t.Errorf("it touched: %q", got)
	}
	if _, err := p.w.PlanRestore(t.Context(), 99, ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown revision: %v", err)
	}
}

// A path that leads out of the directory by a link is never followed, whatever
// the history says is there.
func TestRestore_doesNotLeaveTheDirectory(t *testing.T) {
	p := newPlace(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("canary"), 0o644))
	p.write("d/f", "inside")
	first := p.snapshot()
	must(t, os.RemoveAll(filepath.Join(p.dir, "d")))
	p.snapshot()
	p.c.Stage = func(name string) {
		if name == "staged" { // the plan was checked; now d is swapped
			must(t, os.Symlink(outside, filepath.Join(p.dir, "d")))
		}
	}
	must(t, p.w.Close())
	p.open()
	plan, err := p.w.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	_, result, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	if !slices.Equal(result.Kept, []string{"d", "d/f"}) {
		t.Errorf("kept: %q", result.Kept)
	}
	if data, _ := os.ReadFile(filepath.Join(outside, "f")); string(data) != "canary" {
		t.Errorf("outside: %q", data)
	}
}

// die takes the directory in base from one state to another and is killed at a
// stage.
func die(base, stage string) {
	c := configIn(base)
	stage, begun := strings.CutPrefix(stage, "again ") // while another one's is finished
	c.Stage = func(name string) {
		begun = begun || name == "journal"
		if name == stage && begun { // not that of a look before
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	w, err := workspace.Open(c)
	if err == nil {
		var plan workspace.Plan
		if plan, err = w.PlanRestore(context.Background(), 1, ""); err == nil {
			fmt.Println(plan.ID)
			_, _, err = w.Apply(context.Background(), plan.ID, workspace.Label{Actor: "user"})
			c.Stage("answer")
		}
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
}

// Killed at any stage, a restore has happened whole or not at all once the
// history is opened again.
func TestRestore_killedAtEachStage(t *testing.T) {
	stages := []string{"journal", "contents", "staged", "applied 0", "applied 1", "applied 2", "applied 4", "applied"}
	for _, stage := range stages {
		t.Run(strings.ReplaceAll(stage, " ", "_"), func(t *testing.T) {
			p := newPlace(t)
			p.write("keep", "same")
			p.write("d/a", "1")
			p.write("d/b", "1")
			p.write("gone/x", "1")
			p.snapshot()
			old := look(t, p.dir)
			p.write("d/a", "2")
			must(t, os.RemoveAll(filepath.Join(p.dir, "gone")))
			p.write("new/y", "2")
			p.snapshot()
			recent := look(t, p.dir)
			must(t, p.w.Close())
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "WORKSPACE_DIE="+filepath.Dir(p.dir), "WORKSPACE_STAGE="+stage)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%v: %s", err, out)
			}
			p.open()
			want := old
			if stage == "journal" || stage == "contents" {
				want = recent
			}
			if d := cmp.Diff(want, look(t, p.dir)); d != "" {
				t.Errorf("after the crash:\n%s", d)
			}
			if rest, _ := filepath.Glob(filepath.Join(filepath.Dir(p.dir), "staging*")); rest != nil {
				t.Errorf("left behind: %v", rest)
			}
			p.snapshot() // it works on
		})
	}
}

// Killed at any step between the journal, the files, the revision and the
// answer, an undo of many files has happened, and the newest revision says so,
// once; or it has not begun. Who asks for the same plan again is answered as the
// first would have been, and the next undo and redo go from there.
func TestApply_killedAtEachStepIsListedOnceOrNotBegun(t *testing.T) {
	files := 1500
	if testing.Short() {
		files = 150
	}
	p := newPlace(t)
	for i := range files {
		p.write(fmt.Sprintf("d%d/f%d", i%30, i), "old")
	}
	p.snapshot()
	old := look(t, p.dir)
	for i := range files {
		switch name := fmt.Sprintf("d%d/f%d", i%30, i); i % 3 {
		case 0:
			p.write(name, "new")
		case 1:
			must(t, os.Remove(filepath.Join(p.dir, name)))
		case 2:
			p.write(name+"x", "more")
		}
	}
	p.snapshot()
	recent := look(t, p.dir)
	must(t, p.w.Close())
	base := filepath.Dir(p.dir)
	for _, stage := range []string{
		"journal", "contents", "staged", "applied 0", fmt.Sprint("applied ", files/2), fmt.Sprint("applied ", files-1), "applied", "marked", "scanned", "objects", "listed", "dropped", "answer",
	} {
		t.Run(strings.ReplaceAll(stage, " ", "_"), func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "place")
			if out, err := exec.Command("cp", "-a", base, copied).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			q := &place{t: t, dir: filepath.Join(copied, "files"), c: configIn(copied)}
			id := killAt(t, copied, stage)
			if stage == "applied" || stage == "marked" { // once more, while it is finished
				_ = killAt(t, copied, "again objects")
			}
			if stage != "journal" && stage != "contents" && stage != "dropped" && stage != "answer" && !q.check().Unfinished {
				t.Error("it was begun, has no answer, and fsck does not say so")
			}
			q.open()
			revs, err := q.w.Revisions(t.Context())
			must(t, err)
			rev, fresh, err := q.w.Snapshot(t.Context(), workspace.Label{})
			must(t, err)
			if fresh || rev.N != revs[len(revs)-1].N {
				t.Errorf("the files are not those of the newest revision, %d", revs[len(revs)-1].N)
			}
			again, _, err := q.w.Apply(t.Context(), id, workspace.Label{Actor: "user"})
			want := recent
			if stage == "journal" || stage == "contents" {
				if len(revs) != 2 || !errs.Is(err, errs.Conflict) {
					t.Errorf("not begun: %d revisions, and the plan again: %v", len(revs), err)
				}
			} else {
				want = old
				if len(revs) != 3 || rev.Undoes != 1 || !rev.Whole || rev.Actor != "user" {
					t.Errorf("done: %d revisions, the newest %+v", len(revs), rev)
				}
				if err != nil || again.N != rev.N || again.Root != rev.Root {
					t.Errorf("the plan again: %+v, %v", again, err)
				}
				if current, undo, redo := workspace.Position(revs); current != 1 || undo != 0 || redo != 2 {
					t.Errorf("at %d, undo to %d, redo to %d", current, undo, redo)
				}
			}
			if d := cmp.Diff(want, look(t, q.dir)); d != "" {
				t.Errorf("after the crash:\n%s", d)
			}
			must(t, q.w.Close())
			if report := q.check(); report.Unfinished || report.Torn != nil {
				t.Errorf("opened, and fsck is not clean: %+v", report)
			}
		})
	}
}

// killAt goes back to the first revision and is killed at a stage. It returns
// the plan's id.
func killAt(t *testing.T, base, stage string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WORKSPACE_DIE="+base, "WORKSPACE_STAGE="+stage)
	var said, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	return strings.TrimSpace(said.String())
}
