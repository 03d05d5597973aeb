package revision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
)

// Names of the contenders.
const (
	nameCaptured = "captured"
	nameScanned  = "scanned"
	nameGit      = "git with fsync"
)

// ours is a workspace.
type ours struct {
	label, path, store string
	w                  *workspace.Workspace
}

func captured(v volume.Volume, history string) (contender, error) {
	return open(nameCaptured, v, history, capture.Config{Watch: true})
}

func scanned(v volume.Volume, history string) (contender, error) {
	return open(nameScanned, v, history, capture.Config{})
}

func open(label string, v volume.Volume, history string, c capture.Config) (contender, error) {
	c.State = filepath.Join(history, "state")
	w, err := workspace.Open(workspace.Config{Dir: v.Path, Staging: filepath.Join(v.Disk, layout.Staging), Store: history, Capture: c})
	if err != nil {
		return nil, err
	}
	return &ours{label, v.Path, history, w}, nil
}

func (o *ours) name() string { return o.label }
func (o *ours) dir() string  { return o.path }
func (o *ours) close() error { return o.w.Close() }

func (o *ours) snapshot(ctx context.Context) error {
	_, _, err := o.w.Snapshot(ctx, workspace.Label{Actor: "bench"})
	return err
}

func (o *ours) undo(ctx context.Context) error {
	revs, err := o.w.Revisions(ctx)
	if err != nil || len(revs) < 2 {
		return errors.Join(err, errors.New("nothing to undo"))
	}
	return o.back(ctx, revs[len(revs)-2].N)
}

func (o *ours) restore(ctx context.Context) error { return o.back(ctx, 1) }

func (o *ours) back(ctx context.Context, n uint64) error {
	plan, err := o.w.PlanRestore(ctx, n, "")
	if err == nil {
		_, _, err = o.w.Apply(ctx, plan.ID, workspace.Label{Actor: "bench"})
	}
	return err
}

func (o *ours) bytes() (int64, error) { return usage(filepath.Join(o.store, "objects")) }

// git is a shadow repository, as other tools keep one.
type git struct{ path, repository string }

func newGit(v volume.Volume, history string) (contender, error) {
	g := &git{v.Path, filepath.Join(history, "git")}
	if _, err := g.run(context.Background(), "init", "-q"); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *git) name() string { return nameGit }
func (g *git) dir() string  { return g.path }
func (g *git) close() error { return nil }

func (g *git) run(ctx context.Context, args ...string) (string, error) {
	all := append([]string{
		"-c", "core.fsync=committed,index", "-c", "gc.auto=0", "-c", "core.untrackedCache=true", "-c", "core.looseCompression=1",
		"-c", "user.name=bench", "-c", "user.email=bench@localhost", "--git-dir=" + g.repository, "--work-tree=" + g.path,
	}, args...)
	cmd := exec.CommandContext(ctx, "git", all...)
	cmd.Dir = g.path
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %.300q", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (g *git) snapshot(ctx context.Context) error {
	if _, err := g.run(ctx, "add", "-A", "-f", "."); err != nil {
		return err
	}
	tree, err := g.run(ctx, "write-tree")
	if err != nil {
		return err
	}
	args := []string{"commit-tree", "-m", "step", tree}
	if both, err := g.run(ctx, "rev-parse", "HEAD", "HEAD^{tree}"); err == nil { // it fails before the first
		last, was, _ := strings.Cut(both, "\n")
		if was == tree {
			return nil
		}
		args = append(args, "-p", last)
	}
	commit, err := g.run(ctx, args...)
	if err == nil {
		_, err = g.run(ctx, "update-ref", "HEAD", commit)
	}
	return err
}

func (g *git) undo(ctx context.Context) error { return g.back(ctx, "HEAD~1") }

func (g *git) restore(ctx context.Context) error {
	first, err := g.run(ctx, "rev-list", "--max-parents=0", "HEAD")
	if err != nil {
		return err
	}
	return g.back(ctx, first)
}

// back keeps what is there, as we do, then goes back, and keeps that.
func (g *git) back(ctx context.Context, to string) error {
	to, err := g.run(ctx, "rev-parse", to)
	if err != nil {
		return err
	}
	if err := g.snapshot(ctx); err != nil {
		return err
	}
	if _, err := g.run(ctx, "read-tree", "--reset", "-u", to); err != nil {
		return err
	}
	return g.snapshot(ctx)
}

func (g *git) bytes() (int64, error) { return usage(filepath.Join(g.repository, "objects")) }

// usage is what a directory takes on disk.
func usage(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	return n, err
}
