package workspace_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/workspace"
)

// repo is a place whose directory, or one in it, is a repository of the user's.
type repo struct {
	*place
	at string
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
}

func newRepo(t *testing.T, at string) repo {
	t.Helper()
	needGit(t)
	p := newPlace(t)
	r := repo{p, filepath.Join(p.dir, at)}
	must(t, os.MkdirAll(r.at, 0o755))
	r.git("init", "-q", "-b", "main")
	p.write(filepath.Join(at, "a"), "1\n")
	p.write(filepath.Join(at, "src/b"), "1\n")
	r.commit("first")
	return r
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	return gitIn(r.t, r.at, args...)
}

// gitIn runs git as a user who works in the workspace does.
func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repo) commit(message string) (hash string) {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", message)
	return r.git("rev-parse", "HEAD")
}

// whole has git look for damage of any kind, and at HEAD.
func (r repo) whole(head string) {
	r.t.Helper()
	if out := r.git("fsck", "--full", "--strict", "--no-dangling"); out != "" {
		r.t.Errorf("git fsck: %s", out)
	}
	if got := r.git("rev-parse", "HEAD"); got != head {
		r.t.Errorf("HEAD is %s, want %s", got, head)
	}
	if got := r.git("symbolic-ref", "HEAD"); got != "refs/heads/main" {
		r.t.Errorf("HEAD is on %s", got)
	}
}

func (r repo) status(want ...string) {
	r.t.Helper()
	got := strings.Split(r.git("status", "--porcelain", "-uall"), "\n")
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("git status: %q, want %q", got, want)
	}
}

func (p *place) missing(name string) {
	p.t.Helper()
	if _, err := os.Lstat(filepath.Join(p.dir, name)); err == nil {
		p.t.Errorf("%s is there", name)
	}
}

// lefts are the paths that a plan leaves as they are.
func lefts(p workspace.Plan) (paths []string) {
	for _, l := range p.Left {
		paths = append(paths, l.Path)
	}
	return paths
}

func (p *place) apply(plan workspace.Plan, err error) workspace.Revision {
	p.t.Helper()
	must(p.t, err)
	rev, _, err := p.w.Apply(p.t.Context(), plan.ID, workspace.Label{Actor: "user"})
	must(p.t, err)
	return rev
}

// A step edits files, the user commits what it did, and more: undo takes the
// files back and leaves the commits and the branch; redo and undo go on.
func TestUndoOfAStep_leavesTheCommitsMadeSince(t *testing.T) {
	for _, at := range []string{"", "vendor/lib"} {
		t.Run("at "+at, func(t *testing.T) {
			p := newRepo(t, at)
			before := p.snapshot()
			p.write(filepath.Join(at, "a"), "2\n")
			p.write(filepath.Join(at, "new"), "2\n")
			step := p.snapshot()
			p.commit("the user likes it")
			p.git("branch", "side")
			p.git("gc", "-q", "--prune=now") // branches move into packed-refs, objects into a pack
			head := p.git("commit-tree", "-p", "HEAD", "-m", "and more", "HEAD^{tree}")
			p.git("update-ref", "refs/heads/main", head)
			p.git("pack-refs", "--all")

			plan, err := p.w.PlanRestore(t.Context(), before.N, "")
			if want := []string{filepath.Join(at, ".git")}; !slices.Equal(lefts(plan), want) {
				t.Errorf("the plan says that %q is left, want %q", lefts(plan), want)
			}
			undone := p.apply(plan, err)
			p.whole(head)
			p.status("M a", "D new")
			if got := p.git("log", "--format=%s"); got != "and more\nthe user likes it\nfirst" {
				t.Errorf("git log: %q", got)
			}
			if undone.Root == before.Root {
				t.Error("the .git was taken back")
			}
			revs, err := p.w.Revisions(t.Context())
			must(t, err)
			if current, undo, redo := workspace.Position(revs); current != before.N || undo != 0 || redo != step.N {
				t.Errorf("undone: at %d, undo to %d, redo to %d", current, undo, redo)
			}
			for range 2 {
				if !p.undo(true) {
					t.Fatal("nothing to redo")
				}
				p.whole(head)
				p.status("")
				if !p.undo(false) {
					t.Fatal("nothing to undo")
				}
				p.whole(head)
				p.status("M a", "D new")
			}
		})
	}
}

// A commit changes no file of the user's: it is no step of undo and redo, which
// go on to where there is something to do.
func TestPosition_commitsAreNoSteps(t *testing.T) {
	p := newRepo(t, "")
	first := p.snapshot()
	p.write("a", "2\n")
	step := p.snapshot()
	p.commit("second")
	commit := p.snapshot()
	if commit.N != step.N+1 || !commit.Aside {
		t.Fatalf("%+v", commit)
	}
	at := func(current, undo, redo uint64) {
		t.Helper()
		revs, err := p.w.Revisions(t.Context())
		must(t, err)
		if c, u, r := workspace.Position(revs); c != current || u != undo || r != redo {
			t.Errorf("at %d, undo to %d, redo to %d; want %d, %d, %d", c, u, r, current, undo, redo)
		}
	}
	at(step.N, first.N, 0)
	p.undo(false)
	at(first.N, 0, step.N)
	p.git("commit", "-q", "--allow-empty", "-m", "third")
	p.snapshot()
	at(first.N, 0, step.N)
	p.undo(true)
	at(step.N, first.N, 0)
	p.status("")
	p.whole(p.git("rev-parse", "main"))
}

// What a step did to a repository that does not work any more is put right,
// whatever it was; locks do not come back.
func TestUndoOfAStep_bringsARepositoryBack(t *testing.T) {
	for name, harm := range map[string]string{
		"all of it":  "rm -rf .git",
		"by halves":  "rm -rf .git/HEAD .git/refs .git/objects/[0-7]*",
		"objects":    "rm -rf .git/objects/*",
		"one object": "rm $(find .git/objects -type f | head -1)",
		"a branch":   "rm .git/refs/heads/main",
		"the index":  "rm .git/index",
		"packed":     "rm .git/packed-refs",
		"inside too": "rm -rf * .git",
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			p := newRepo(t, "")
			if name == "packed" {
				p.git("pack-refs", "--all")
			}
			p.git("tag", "v1")
			head := p.git("rev-parse", "HEAD")
			p.write(".git/index.lock", "")
			must(t, os.Remove(filepath.Join(p.dir, "a")))
			p.write("a", "1\n")
			p.snapshot()
			sh := exec.Command("sh", "-c", "rm -f .git/index.lock; "+harm)
			sh.Dir = p.dir
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if rev := p.snapshot(); rev.Aside {
				t.Fatal("what can be undone is said to be nothing")
			}
			if !p.undo(false) {
				t.Fatal("nothing to undo")
			}
			p.whole(head)
			p.status("")
			if got := p.git("rev-parse", "v1"); got != head {
				t.Errorf("the tag is at %s", got)
			}
			p.missing(".git/index.lock")
		})
	}
}

// An agent's commit is a commit: its files go back, it stays on the branch, and
// the plan says so. Who names the .git takes it back too.
func TestUndoOfAStep_thatCommitted(t *testing.T) {
	p := newRepo(t, "")
	old := p.git("rev-parse", "HEAD")
	before := p.snapshot()
	p.write("a", "2\n")
	head := p.commit("by the agent")
	p.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n")
	p.snapshot()
	plan, err := p.w.PlanRestore(t.Context(), before.N, "")
	must(t, err)
	if !slices.Equal(lefts(plan), []string{".git"}) || !strings.Contains(plan.Left[0].Why, "name the path") {
		t.Errorf("left: %+v", plan.Left)
	}
	p.apply(plan, nil)
	p.whole(head)
	p.status("M a")
	p.restore(before.N, ".git")
	p.whole(old)
	p.status("")
	p.missing(".git/hooks/pre-commit")
}

// A merge that is done is not begun again, a branch that git packed is not
// taken back to where its file was, and one that was made since stays.
func TestUndo_leavesWhatGitDoes(t *testing.T) {
	p := newRepo(t, "")
	first := p.git("rev-parse", "HEAD")
	p.git("checkout", "-q", "-b", "side")
	p.write("c", "side\n")
	p.commit("side")
	p.git("checkout", "-q", "main")
	p.write("d", "main\n")
	p.commit("main")
	p.git("merge", "-q", "--no-commit", "--no-ff", "side")
	p.git("branch", "old", first)
	merging := p.snapshot()
	p.git("commit", "-q", "-m", "merged")
	p.git("branch", "-f", "old", "main")
	p.git("branch", "old2/beneath")
	head := p.git("rev-parse", "HEAD")
	p.git("gc", "-q")
	p.write("a", "2\n")
	p.snapshot()
	p.restore(merging.N, "")
	p.whole(head)
	p.status("")
	p.missing(".git/MERGE_HEAD")
	if got := p.git("for-each-ref", "--format=%(refname:short)"); got != "main\nold\nold2/beneath\nside" {
		t.Errorf("branches: %q", got)
	}
	if got := p.git("rev-parse", "old"); got != head {
		t.Errorf("a branch moved to %s", got)
	}
}

// A worktree and a submodule have a .git that is a file, and what belongs to
// them in the repository of the main one; gone as a whole they come back.
func TestUndo_worktreesAndSubmodules(t *testing.T) {
	p := newRepo(t, "")
	lib := repo{p.place, filepath.Join(t.TempDir(), "lib")}
	must(t, os.Mkdir(lib.at, 0o755))
	lib.git("init", "-q", "-b", "main")
	must(t, os.WriteFile(filepath.Join(lib.at, "l"), []byte("1\n"), 0o644))
	lib.commit("lib")
	p.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib.at, "deps/lib")
	p.commit("with a submodule")
	p.git("worktree", "add", "-q", "-b", "wt", "tree")
	p.write(".gitignore", "tree\n")
	head := p.commit("ignore")
	before := p.snapshot()
	sub, tree := repo{p.place, filepath.Join(p.dir, "deps/lib")}, filepath.Join(p.dir, "tree")
	p.write("deps/lib/l", "2\n")
	p.write("tree/a", "2\n")
	p.snapshot()
	libHead := sub.commit("in the submodule")
	gitIn(t, tree, "commit", "-q", "-a", "-m", "in the worktree")
	treeHead := gitIn(t, tree, "rev-parse", "HEAD")
	p.restore(before.N, "")
	p.whole(head)
	sub.whole(libHead)
	sub.status("M l")
	if got := gitIn(t, tree, "rev-parse", "wt"); got != treeHead {
		t.Errorf("the worktree's branch is at %s, want %s", got, treeHead)
	}
	if got := gitIn(t, tree, "status", "--porcelain"); got != "M a" {
		t.Errorf("the worktree: %q", got)
	}
	here := p.snapshot()
	p.git("worktree", "remove", "--force", "tree")
	must(t, os.RemoveAll(filepath.Join(p.dir, "deps/lib")))
	must(t, os.RemoveAll(filepath.Join(p.dir, ".git/modules")))
	p.snapshot()
	p.restore(here.N, "")
	p.whole(head)
	sub.whole(libHead)
	if got := gitIn(t, tree, "status", "--porcelain"); got != "M a" {
		t.Errorf("the worktree, come back: %q", got)
	}
}

// A repository that a step made stays, and with it the directories it is in;
// what is to stand in their place cannot, and that is said.
func TestUndo_repositoryMadeSince(t *testing.T) {
	needGit(t)
	p := newPlace(t)
	p.write("x/lib", "a file")
	before := p.snapshot()
	must(t, os.RemoveAll(filepath.Join(p.dir, "x")))
	must(t, os.MkdirAll(filepath.Join(p.dir, "x/lib"), 0o755))
	r := repo{p, filepath.Join(p.dir, "x/lib")}
	r.git("init", "-q", "-b", "main")
	p.write("x/lib/sub/f", "1\n")
	head := r.commit("mine")
	made := p.snapshot()
	plan, err := p.w.PlanRestore(t.Context(), before.N, "")
	must(t, err)
	if want := []string{"x/lib/.git", "x/lib"}; !slices.Equal(lefts(plan), want) {
		t.Errorf("left: %+v", plan.Left)
	}
	rev, result, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	if result.Kept != nil || !rev.Whole {
		t.Errorf("kept %q; %+v", result.Kept, rev)
	}
	r.whole(head)
	r.status("D sub/f")
	p.restore(made.N, "")
	r.status("")
}

// To revert a step leaves the commits too, and has no conflict in them.
func TestRevert_leavesTheCommits(t *testing.T) {
	p := newRepo(t, "")
	p.snapshot()
	p.write("a", "2\n")
	p.commit("by the agent")
	step := p.snapshot()
	p.write("src/b", "2\n")
	head := p.commit("by the user")
	p.apply(p.w.PlanRevert(t.Context(), step.N, nil))
	p.whole(head)
	p.status("M a")
	must(t, os.RemoveAll(filepath.Join(p.dir, ".git")))
	gone := p.snapshot()
	p.apply(p.w.PlanRevert(t.Context(), gone.N, nil))
	p.whole(head)
	p.status("M a")
}

// scramble changes what is in a few .gits at random.
func scramble(t testing.TB, r *rand.Rand, dir string) {
	t.Helper()
	names := []string{"HEAD", "config", "index", "index.lock", "MERGE_HEAD", "refs/heads/x", "refs/heads/x/y", "objects/ab/" + strings.Repeat("c", 38), "packed-refs", "hooks/h", "modules/m/HEAD"}
	for range r.IntN(4) {
		path := filepath.Join(dir, []string{".git", "a/.git", "a/b/.git"}[r.IntN(3)])
		if r.IntN(4) > 0 {
			path = filepath.Join(path, names[r.IntN(len(names))])
		}
		if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
			continue // RemoveAll would open a named pipe that is there, and wait for ever
		}
		if r.IntN(3) == 0 {
			_ = os.RemoveAll(path)
			continue
		}
		put(path, []byte{byte('0' + r.IntN(10))}, 0o644)
	}
}

// inGit reports whether a path is a .git or in one.
func inGit(path string) bool { return slices.Contains(strings.Split(path, "/"), ".git") }

// gitKept compares pictures of before and after going back: what is in a .git
// is what was there, and perhaps something more that the target has.
func gitKept(t testing.TB, before, after, target map[string]string) {
	t.Helper()
	for path, was := range before {
		if inGit(path) && after[path] != was {
			t.Errorf("%q was %q, is %q", path, was, after[path])
		}
	}
	for path, is := range after {
		if _, was := before[path]; inGit(path) && !was && (is != target[path] || strings.HasSuffix(path, ".lock")) {
			t.Errorf("%q came from nowhere: %q", path, is)
		}
	}
}

// filesEqual compares two pictures where no .git is. A directory that holds one
// is there, whether the target has it or not.
func filesEqual(t testing.TB, target, after map[string]string) {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	holds := func(dir string) bool {
		for path := range after {
			if inGit(path) && strings.HasPrefix(path, dir+"/") {
				return true
			}
		}
		return false
	}
	for path, is := range target {
		if !inGit(path) && !holds(path) {
			want[path] = is
		}
	}
	for path, is := range after {
		if !inGit(path) && !holds(path) {
			got[path] = is
		}
	}
	for path := range want { // what stands where a directory with a repository does
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if is := after[dir]; is != "" && !strings.HasPrefix(is, "4") {
				t.Errorf("%q is beneath %q, which is %q", path, dir, is)
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
