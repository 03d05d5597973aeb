package workspace_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/workspace"
)

// git runs git in a repository of its own.
func git(t *testing.T, dir string, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

// ordinary is what git keeps of a picture: files, links, and whether their
// owner may run them.
func ordinary(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for name := range look(t, dir) {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		must(t, err)
		switch {
		case strings.HasPrefix(name+"/", ".git/") || strings.Contains(name+"/", "/.git/"):
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			must(t, err)
			seen[name] = fmt.Sprintf("%v %q", info.Mode()&0o100 != 0, data)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			must(t, err)
			seen[name] = "-> " + target
		}
	}
	return seen
}

// Git takes the stream, finds nothing wrong, and has in each commit what was on
// disk in the revision.
func TestExportGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	p := newPlace(t)
	var pictures []map[string]string
	keep := func(text string) {
		t.Helper()
		_, fresh, err := p.w.Snapshot(t.Context(), workspace.Label{Actor: "user:anna <x>", Text: text, Run: "run_1\nforged: yes", Step: 2})
		must(t, err)
		if !fresh {
			t.Fatal("nothing changed")
		}
		pictures = append(pictures, ordinary(t, p.dir))
	}
	keep("an empty directory")
	p.write("a/b/c", "1")
	p.write("new\nline \"quoted\" \\ \xff\xfe", "2")
	p.write("swap", "a file")
	p.write(" leading and trailing ", "")
	p.write("D", "M 100644 inline x\ndata 1\n")
	must(t, os.Symlink("b\n\xff", filepath.Join(p.dir, "a/link")))
	must(t, unix.Mkfifo(filepath.Join(p.dir, "fifo"), 0o600))
	keep("names\nand a second line")
	must(t, os.Remove(filepath.Join(p.dir, "swap")))
	p.write("swap/inside", "now a directory")
	must(t, os.Chmod(filepath.Join(p.dir, "a/b/c"), 0o755))
	p.write("repo/.git/config", "of somebody else")
	keep("swapped")
	must(t, os.RemoveAll(filepath.Join(p.dir, "swap")))
	must(t, os.Symlink("a", filepath.Join(p.dir, "swap")))
	must(t, os.Remove(filepath.Join(p.dir, "a/link")))
	must(t, unix.Mkfifo(filepath.Join(p.dir, "a/link"), 0o600))
	p.write("large", strings.Repeat("0123456789abcde\n", 600<<10))
	keep("")
	must(t, os.RemoveAll(filepath.Join(p.dir, "a")))
	keep("less")
	p.restore(2, "")
	pictures = append(pictures, pictures[1])

	var stream bytes.Buffer
	must(t, workspace.ExportGit(t.Context(), p.w, &stream))
	repo := t.TempDir()
	git(t, repo, nil, "init", "-q")
	git(t, repo, stream.Bytes(), "fast-import", "--quiet", "--done")
	git(t, repo, nil, "fsck", "--strict", "--full")
	commits := strings.Fields(git(t, repo, nil, "rev-list", "--reverse", "main"))
	if len(commits) != len(pictures) {
		t.Fatalf("%d commits of %d revisions", len(commits), len(pictures))
	}
	for i, commit := range commits {
		git(t, repo, nil, "checkout", "-q", "-f", commit)
		git(t, repo, nil, "clean", "-q", "-ffdx")
		if d := cmp.Diff(pictures[i], ordinary(t, repo)); d != "" {
			t.Errorf("revision %d: %s", i+1, d)
		}
	}
	message := git(t, repo, nil, "log", "-1", "--format=%an|%B", commits[2])
	for _, want := range []string{"user:anna  x|swapped\n", "\nRevision: 3\n", "\nRun: run_1 forged: yes\n", "\nStep: 2\n", "\nNot-in-git: 2\n"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message has no %q:\n%s", want, message)
		}
	}
}
