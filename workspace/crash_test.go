package workspace_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/workspace"

	"github.com/skete-dev/skete/errs"
)

// stays is what the policy of a worker always keeps.
func stays(r workspace.Revision) bool { return r.N%3 == 0 }

// work edits, snapshots, undoes and prunes in base until it is killed: by itself
// when it comes to stage, or by the test. It says on its standard output what
// it has been told is done, a line each.
func work(base, stage, seed string) {
	n, _ := strconv.ParseUint(seed, 10, 64)
	r := rand.New(rand.NewPCG(n, 3))
	c := configIn(base)
	c.SegmentBytes = 64 << 10
	after := r.IntN(4) // times that it comes there before
	if strings.HasPrefix(stage, "gc") {
		after = r.IntN(2)
	}
	c.Stage = func(name string) {
		if name == stage {
			if after--; after < 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	if err := toil(c, r); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func toil(c workspace.Config, r *rand.Rand) error {
	ctx := context.Background()
	w, err := workspace.Open(c)
	if err != nil {
		return err
	}
	for {
		for range 1 + r.IntN(4) {
			path := filepath.Join(c.Dir, fmt.Sprintf("d%d", r.IntN(3)), fmt.Sprintf("f%d", r.IntN(4)))
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			if r.IntN(5) == 0 {
				_ = os.RemoveAll(filepath.Dir(path))
			} else if err := os.WriteFile(path, []byte(noise(r.Uint64(), r.IntN(8<<10))), 0o644); err != nil {
				return err
			}
		}
		rev, _, err := w.Snapshot(ctx, workspace.Label{Actor: "agent"})
		if err != nil {
			return err
		}
		fmt.Println("made", rev.N, rev.Root)
		revs, err := w.Revisions(ctx)
		if err != nil {
			return err
		}
		if r.IntN(3) == 0 {
			target := revs[r.IntN(len(revs))]
			plan, err := w.PlanRestore(ctx, target.N, "")
			if err != nil {
				return err
			}
			fmt.Println("undoing", rev.Root, target.Root)
			rev, _, err := w.Apply(ctx, plan.ID, workspace.Label{Actor: "user"})
			if err != nil {
				return err
			}
			fmt.Println("made", rev.N, rev.Root)
		}
		if r.IntN(4) == 0 {
			if _, err := w.Prune(ctx, workspace.Policy{All: time.Nanosecond, Keep: stays}); err != nil {
				return err
			}
		}
	}
}

// Killed at any stage of a snapshot, an undo or a prune, or at any moment: what
// was said to be done is there, no undo is half done, and the history is whole.
// 50 rounds, or as many as WORKSPACE_ROUNDS says.
func TestWorkspace_killedAnywhere(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 19 // every stage once
	}
	if text := os.Getenv("WORKSPACE_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	stages := []string{
		"scanned", "objects", "listed", "journal", "contents", "staged", "applied 0", "applied 2", "applied", "marked", "dropped",
		"gc marked", "gc listed", "gc moved", "gc done", "", "", "", "",
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	p := newPlace(t)
	p.c.SegmentBytes = 64 << 10
	must(t, p.w.Close())
	done := map[uint64]string{} // roots by number, as far as was said
	unfinished := 0
	for round := range rounds {
		stage := stages[round%len(stages)]
		said := p.killWork(stage, r)
		report := p.check()
		if report.Unfinished {
			unfinished++
		}
		p.open()
		p.after(said, done, report.Unfinished)
		if clean := p.fsck(); clean.Torn != nil || clean.Unfinished || clean.Revisions == 0 {
			t.Errorf("opened, and fsck is not clean: %+v", clean)
		}
		if t.Failed() {
			t.Fatalf("round %d, killed at %q", round, stage)
		}
		must(t, p.w.Close())
	}
	t.Logf("%d rounds, %d revisions, %d undos were finished by the next opening", rounds, len(done), unfinished)
	if len(done) < rounds || rounds >= 50 && unfinished < 3 {
		t.Errorf("too little happened: %d revisions, %d undos finished", len(done), unfinished)
	}
}

// killWork runs a worker until it is dead, and returns the lines it said.
func (p *place) killWork(stage string, r *rand.Rand) []string {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WORKSPACE_WORK="+filepath.Dir(p.dir), "WORKSPACE_STAGE="+stage, fmt.Sprint("WORKSPACE_SEED=", r.Uint64()))
	var said, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complaint
	must(p.t, cmd.Start())
	deadline := 20 * time.Second
	if stage == "" {
		deadline = time.Duration(30+r.IntN(400)) * time.Millisecond
	}
	kill := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Fatalf("%v: %s", err, complaint.String())
	}
	if stage != "" && !kill.Stop() {
		p.t.Fatalf("it never came to %q", stage)
	}
	var lines []string
	for s := bufio.NewScanner(&said); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}

// after compares a history that was opened again with what was said of it.
func (p *place) after(said []string, done map[uint64]string, unfinished bool) {
	t := p.t
	t.Helper()
	var from, to string // of an undo that was going on
	last := uint64(0)
	for _, line := range said {
		words := strings.Fields(line)
		if words[0] == "undoing" {
			from, to = words[1], words[2]
			continue
		}
		from, to = "", ""
		n, err := strconv.ParseUint(words[1], 10, 64)
		must(t, err)
		done[n], last = words[2], n
	}
	revs, err := p.w.Revisions(t.Context())
	must(t, err)
	here := map[uint64]string{}
	for _, r := range revs {
		here[r.N] = r.Root.String()
	}
	for n, root := range done {
		if got, ok := here[n]; ok && got != root || !ok && (n == last || stays(workspace.Revision{N: n})) {
			t.Errorf("revision %d was %s, is %s", n, root, got)
		}
	}
	if unfinished {
		newest := revs[len(revs)-1]
		if newest.Undoes == 0 || newest.Root.String() != to || newest.Actor != "user" {
			t.Errorf("an undo to %s was finished, and made %+v", to, newest)
		}
	}
	now := p.snapshot().Root.String()
	if from != "" && now != from && now != to {
		t.Errorf("an undo from %s to %s left %s", from, to, now)
	}
	for _, name := range []string{"staging", "history/journal", "history/journal.staged", "history/journal.applied"} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(p.dir), name)); err == nil {
			t.Errorf("left behind: %s", name)
		}
	}
}

// smallDisk is a place on a disk of its own.
func smallDisk(t *testing.T, bytes int64) *place {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts a disk")
	}
	image, mount := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := ext4.Blank(t.Context(), image, bytes); err != nil {
		t.Skipf("cannot make a disk: %v", err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, mount).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a disk: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	p := &place{t: t, dir: filepath.Join(mount, "files"), c: configIn(mount)}
	must(t, os.Mkdir(p.dir, 0o755))
	p.open()
	return p
}

// fill takes all space of the disk but for some, and returns how to give it back.
func (p *place) fill(but int64) (empty func()) {
	p.t.Helper()
	name := filepath.Join(filepath.Dir(p.dir), "filler")
	f, err := os.Create(name)
	must(p.t, err)
	must(p.t, unix.Syncfs(int(f.Fd()))) // what is on its way to the disk takes space too
	var st unix.Statfs_t
	must(p.t, unix.Fstatfs(int(f.Fd()), &st))
	at, size := int64(0), int64(st.Bavail)*st.Bsize-but
	for step := size; step >= 4096; { // its own tables take space too
		if err := unix.Fallocate(int(f.Fd()), 0, at, step); err != nil {
			step /= 2
			continue
		}
		at += step
		step = min(step, size-at)
	}
	must(p.t, f.Close())
	return func() { must(p.t, os.Remove(name)) }
}

// A disk without room for a snapshot, or for an undo: it says so, nothing is
// touched or lost, and when there is room it goes on.
func TestDiskFull(t *testing.T) {
	p := smallDisk(t, 64<<20)
	t.Cleanup(func() { _ = p.w.Close() }) // before the disk goes
	p.write("big", noise(1, 10<<20))
	p.write("small", "1")
	first := p.snapshot()
	old := look(t, p.dir)
	must(t, os.Remove(filepath.Join(p.dir, "big")))
	p.write("small", "2")
	second := p.snapshot()

	t.Log("an undo")
	recent := look(t, p.dir)
	plan, err := p.w.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	for _, room := range []int64{8 << 20, 512 << 10, 0} {
		empty := p.fill(room)
		if _, _, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{}); !errs.Is(err, errs.Limit) {
			t.Errorf("with %d bytes: %v, want Limit", room, err)
		}
		empty()
		for _, name := range []string{"staging", "history/journal"} {
			if _, err := os.Lstat(filepath.Join(filepath.Dir(p.dir), name)); err == nil {
				t.Errorf("with %d bytes: left behind: %s", room, name)
			}
		}
		if got := look(t, p.dir); len(got) != len(recent) || got["small"] != recent["small"] {
			t.Errorf("with %d bytes it touched: %v", room, got)
		}
	}
	_, _, err = p.w.Apply(t.Context(), plan.ID, workspace.Label{})
	must(t, err)
	if got := look(t, p.dir); len(got) != len(old) || got["big"] != old["big"] {
		t.Errorf("with room: %v", got)
	}
	p.restore(second.N, "")
	t.Log("a snapshot")
	for _, room := range []int64{2 << 20, 100 << 10, 0} {
		p.write("more", noise(uint64(room)+9, 5<<20))
		empty := p.fill(room)
		if rev, _, err := p.w.Snapshot(t.Context(), workspace.Label{}); !errs.Is(err, errs.Limit) {
			t.Errorf("with %d bytes: %+v, %v, want Limit", room, rev, err)
		}
		if _, err := p.w.Entry(t.Context(), first.N, "big"); err != nil {
			t.Errorf("with %d bytes nothing can be read: %v", room, err)
		}
		empty()
		rev := p.snapshot()
		if e, err := p.w.Entry(t.Context(), rev.N, "more"); err != nil || e.Size != 5<<20 {
			t.Errorf("with room: %+v, %v", e, err)
		}
	}
	must(t, p.w.Close())
	if report := p.check(); report.Torn != nil {
		t.Errorf("torn: %v", report.Torn)
	}
	p.open()
	p.restore(first.N, "")
	if got := look(t, p.dir); len(got) != len(old) || got["big"] != old["big"] {
		t.Errorf("%v", got)
	}
	must(t, p.w.Close())
}
