package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/test/bench/revision"
)

// kept is how many files the workspace has whose history is measured in
// machines, and changed how many of them each step changes.
const (
	kept    = 12_000
	changed = 10
)

// histories measures a step and its undo through the API, as a person or a run
// has them: in gVisor, where the engine sees the files on the host, and in
// QEMU, where it works in the guest. Beside each, git in the same machine.
func (b *bench) histories() error {
	for _, tool := range []string{"qemu-system-x86_64", "mmdebstrap"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skipped("history in machines", "ms", "no "+tool)
			return nil
		}
	}
	tree, err := os.MkdirTemp("", "skete-bench-tree-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := revision.Plant(tree, kept); err != nil {
		return err
	}
	s, err := b.start("--providers", "gvisor,qemu")
	if err != nil {
		return err
	}
	return errors.Join(b.historiesOn(s, tree), s.stop())
}

func (b *bench) historiesOn(s *server, tree string) error {
	recipe := filepath.Join(s.home, "recipe")
	if err := os.Mkdir(recipe, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(recipe, "skete.template.yaml"), []byte("from: debian\npackages: [git]\n"), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"doctor", "--fix", "--yes", "--provider", "qemu"},
		{"template", "prepare", "debian"},
		{"template", "build", recipe, "--name", "git"},
	} {
		cmd := exec.CommandContext(b.ctx, b.skete, args...)
		cmd.Env = append(os.Environ(), "SKETE_HOME="+s.home)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("skete %s: %w\n%s", args[0], err, out)
		}
	}
	for _, provider := range []string{"gvisor", "qemu"} {
		if err := b.historyIn(s, provider, tree); err != nil {
			return fmt.Errorf("%s: %w", provider, err)
		}
	}
	return nil
}

// Commands of the machine. An edit changes the sizes too, so that git sees it
// whatever the clock's steps are.
const (
	edit = `i=0; while [ $i -lt %[1]d ]; do f=$(printf 'd%%02d/e%%03d/file%%05d.go' $((i*997/10%%40)) $((i*997/10)) $((i*997))); echo 'step %[2]d' >> $f; i=$((i+1)); done`

	asGit  = `export GIT_DIR=/tmp/shadow GIT_WORK_TREE=/workspace HOME=/tmp; `
	setup  = asGit + `git init -q && git config core.fsync committed,index && git config gc.auto 0 && git config core.untrackedCache true && git config user.name b && git config user.email b@localhost && ` + commit
	commit = `git add -A -f . && git commit -q --allow-empty -m step`
	back   = asGit + commit + ` && git read-tree --reset -u HEAD~1 && ` + commit
)

func (b *bench) historyIn(s *server, provider, tree string) error {
	made, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{Provider: provider, Template: "git", MemoryMB: 1024, DiskMB: 2048})
	if err != nil {
		return err
	}
	sb := s.c.Sandbox(made.ID)
	if _, err := sb.Files().UploadDir(b.ctx, tree, "/workspace"); err != nil {
		return err
	}
	h := sb.History()
	save := func() error { _, err := h.Snapshot(b.ctx, ""); return err }
	undo := func() error {
		plan, err := h.Plan(b.ctx, api.PlanChange{Do: "undo"})
		if err == nil {
			_, err = h.Apply(b.ctx, plan.ID)
		}
		return err
	}
	first, err := timed(save)
	if err != nil {
		return err
	}
	b.Millis("history: first revision of 12000 files, through the API, "+provider, []time.Duration{first}, "", "")
	n := 0
	step := func() error { n++; return shell(b, sb, fmt.Sprintf(edit, changed, n)) }
	ours, err := b.rounds(step, save, undo)
	if err != nil {
		return err
	}
	run := func(script string) func() error { return func() error { return shell(b, sb, script) } }
	if err := run(setup)(); err != nil {
		return err
	}
	theirs, err := b.rounds(step, run(asGit+commit), run(back))
	if err != nil {
		return err
	}
	for i, what := range []string{"a step of 10 files of 12000", "undo of 10 files of 12000"} {
		mine := b.Millis("history: "+what+", through the API, "+provider, ours[i], []string{"p50 <= 50 ms", "p50 <= 200 ms"}[i], "")
		git := b.Millis("peer: "+what+", git in the machine, "+provider, theirs[i], "", "one command of the sandbox")
		b.Value("ratio: git / "+what+", "+provider+" (p50)", git/mine, "x", "", "larger is better for us")
	}
	return sb.Destroy(b.ctx)
}

// rounds changes files, keeps that, changes files again and goes back.
func (b *bench) rounds(step, save, undo func() error) (took [2][]time.Duration, err error) {
	for range b.count(20) {
		for i, do := range []func() error{save, undo} {
			if err := step(); err != nil {
				return took, err
			}
			d, err := timed(do)
			if err != nil {
				return took, err
			}
			took[i] = append(took[i], d)
		}
	}
	return took, nil
}

func shell(b *bench, sb *client.Sandbox, script string) error {
	out, err := sb.Command("/bin/sh", "-c", script).CombinedOutput(b.ctx)
	if err != nil {
		return fmt.Errorf("%w: %.300q", err, out)
	}
	return nil
}
