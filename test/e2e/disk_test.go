package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/scratch"
)

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// syncHome writes out what the kernel has of a server's files, the workspaces'
// own file systems first. A sync of all disks would last as long as other tests
// write to theirs.
func syncHome(t *testing.T, home string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(home, "volumes", "*", "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, home) {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Syncfs(int(f.Fd()))
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tenant makes one, and its client.
func (w *world) tenant(name, address string) *client.Client {
	w.t.Helper()
	made, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: name, Tenant: name})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: "http://" + address, Key: made.Secret})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

func (w *world) own(c *client.Client, diskMB int) *client.Sandbox {
	w.t.Helper()
	sb, err := c.CreateSandbox(w.ctx(), api.CreateSandbox{Provider: "gvisor", MemoryMB: 128, DiskMB: diskMB})
	if err != nil {
		w.t.Fatalf("create: %v\nserver's log:\n%s", err, w.log)
	}
	w.ids[sb.ID] = true
	return c.Sandbox(sb.ID)
}

func (w *world) refused(what string, err error, class errs.Class, text string) {
	w.t.Helper()
	if !errs.Is(err, class) || !strings.Contains(errs.Public(err), text) || strings.Contains(errs.Public(err), w.home) {
		w.t.Errorf("%s: %v (class %s), want %s with %q", what, err, errs.Of(err), class, text)
	}
}

// A tenant that fills the host's disk is held still before the others notice, the
// server takes what ends and removes things, also after a start on the full disk,
// and goes on by itself when there is room.
func TestDisk_oneTenantFillsIt(t *testing.T) {
	disk := scratch.Disk(t, 3000)
	address := listenAddress(t)
	w := newWorld(t, "--providers", "gvisor", "--listen", address, "--set", "reserve_mb=400")
	w.home = filepath.Join(disk, "home")
	w.start()
	t.Cleanup(func() { // the world's own look is at its own tenant
		if w.cmd == nil {
			return
		}
		for _, name := range []string{"greedy", "modest"} {
			if _, err := w.c.EraseTenant(w.ctx(), name); err != nil && !errs.Is(err, errs.NotFound) {
				t.Errorf("erase %s: %v", name, err)
			}
		}
	})
	greedy, modest := w.tenant("greedy", address), w.tenant("modest", address)
	_, err := greedy.CreateSandbox(w.ctx(), api.CreateSandbox{Provider: "gvisor", DiskMB: 50 << 10})
	w.refused("a disk larger than the server's", err, errs.Limit, "larger than the server's own")

	mine := w.own(modest, 64)
	write := func(n int) {
		t.Helper()
		if _, err := mine.Files().Write(w.ctx(), fmt.Sprintf("/workspace/f%d", n%50), bytes.Repeat([]byte{byte(n)}, 8<<10), client.WriteOptions{}); err != nil {
			t.Fatalf("write %d of the other tenant: %v\nserver's log:\n%s", n, err, w.log)
		}
	}
	growers := []*client.Sandbox{w.own(greedy, 2000), w.own(greedy, 2000), w.own(greedy, 2000)}
	for i, to := range []string{"/workspace/big", "/workspace/big", "/tmp/big"} {
		_, err := growers[i].StartProcess(w.ctx(), api.StartProcess{Key: "fill", Argv: []string{"dd", "if=/dev/zero", "of=" + to, "bs=1M"}})
		if err != nil {
			t.Fatal(err)
		}
	}
	held := func() (n int) {
		for _, sb := range growers {
			if info, err := sb.Get(w.ctx()); err == nil && info.State == "paused" && info.Reason == "the server's disk is full" {
				n++
			}
		}
		return n
	}
	began, least, n := time.Now(), int64(1<<62), 0
	w.until("what fills the disk is held still", func() error {
		write(n)
		n++
		least = min(least, freeBytes(t, disk))
		if held() == 0 || least > 600<<20 {
			return fmt.Errorf("%d MB are free", least>>20)
		}
		return nil
	})
	for range 50 { // those of them that are left go on growing
		write(n)
		n++
		least = min(least, freeBytes(t, disk))
	}
	t.Logf("held still after %v: %d of 3; %d MB were free at least", time.Since(began).Round(time.Millisecond), held(), least>>20)
	if least < 16<<20 {
		t.Errorf("only %d MB were left", least>>20)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); bytes.Contains(mounts, []byte("emergency_ro")) {
		t.Errorf("a file system became read-only:\n%s", mounts)
	}
	full := func(when string) {
		t.Helper()
		_, err := modest.CreateSandbox(w.ctx(), api.CreateSandbox{Provider: "gvisor", DiskMB: 64})
		w.refused(when+": a create", err, errs.Unavailable, "the server's disk is full")
		_, err = growers[0].Resume(w.ctx())
		if info, gerr := growers[0].Get(w.ctx()); gerr != nil || info.State == "paused" {
			w.refused(when+": waking one that fills it", err, errs.Unavailable, "the server's disk is full")
		}
		if _, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: "late", Tenant: "modest"}); err != nil {
			t.Errorf("%s: a key: %v", when, err)
		}
		write(n)
		n++
	}
	full("full")
	w.kill()
	// What is left is taken too, by a program that is not ours, but for what the
	// kernel still has to write for those who stand still.
	syncHome(t, w.home)
	filler := filepath.Join(disk, "filler")
	_ = os.WriteFile(filler, make([]byte, freeBytes(t, disk)), 0o600)
	w.start()
	if _, err := mine.Stop(w.ctx()); err != nil {
		t.Errorf("stop on a full disk: %v", err)
	}
	_, err = mine.Start(w.ctx())
	w.refused("start of a sandbox on a full disk", err, errs.Unavailable, "the server's disk is full")
	if _, err := w.c.EraseTenant(w.ctx(), "greedy"); err != nil {
		t.Fatalf("erase on a full disk: %v\nserver's log:\n%s", err, w.log)
	}
	for _, sb := range growers {
		if info, err := sb.Get(w.ctx()); err == nil && info.State != "destroyed" {
			t.Errorf("%s is %s", sb.ID, info.State)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.until("there is room again", func() error {
		_, err := mine.Start(w.ctx())
		return err
	})
	if got, err := mine.Files().Read(w.ctx(), fmt.Sprintf("/workspace/f%d", (n-1)%50), 1<<20); err != nil || len(got) != 8<<10 || got[0] != byte(n-1) {
		t.Errorf("the newest file of the other tenant: %d bytes, %v", len(got), err)
	}
	w.own(modest, 64)
}

// A workspace whose file system dies is said to be that, never an internal error,
// and its sandbox is stopped; a start checks it, and what was written is there.
func TestDisk_aWorkspaceThatDies(t *testing.T) {
	w := newWorld(t, "--providers", "gvisor")
	w.start()
	sb := w.create(api.CreateSandbox{Provider: "gvisor", MemoryMB: 128, DiskMB: 64})
	w.create(api.CreateSandbox{Provider: "gvisor", MemoryMB: 128, DiskMB: 64}) // its processes have a copy of the first one's mount
	if _, err := sb.Files().Write(w.ctx(), "/workspace/kept", []byte("kept"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.History().Snapshot(w.ctx(), "before"); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(w.home, "volumes", sb.ID, "data"))
	if err != nil {
		t.Skip("workspaces are no images here: ", err)
	}
	syncHome(t, w.home)
	const goingDown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	err = unix.IoctlSetPointerInt(int(dir.Fd()), goingDown, withoutFlush)
	dir.Close()
	if err != nil {
		t.Fatal(err)
	}
	late := func() error {
		_, err := sb.Files().Write(w.ctx(), "/workspace/late", []byte("late"), client.WriteOptions{})
		return err
	}
	calls := map[string]func() error{
		"a write": late,
		"history": func() error { _, err := sb.History().Page(w.ctx(), 10, ""); return err },
		"a diff":  func() error { _, err := sb.History().Diff(w.ctx(), 1, 0, client.DiffOptions{}); return err },
		"undo": func() error {
			_, err := sb.History().Plan(w.ctx(), api.PlanChange{Do: "undo"})
			return err
		},
		"a snapshot": func() error { _, err := sb.History().Snapshot(w.ctx(), "during"); return err },
		"exec": func() error {
			_, err := sb.RunCommand(w.ctx(), api.RunCommand{Command: "date > /workspace/date"})
			return err
		},
	}
	w.until("the sandbox is stopped", func() error {
		for what, call := range calls {
			if err := call(); errs.Is(err, errs.Internal) {
				t.Errorf("%s: %v: %q", what, err, errs.Public(err))
				delete(calls, what)
			}
		}
		info, err := sb.Get(w.ctx())
		if err == nil && info.State != "stopped" {
			err = fmt.Errorf("it is %s", info.State)
		}
		return err
	})
	w.until("it starts, once what held the file system has ended", func() error {
		_, err := sb.Start(w.ctx())
		if err != nil && !errs.Is(err, errs.Unavailable) {
			t.Errorf("start: %v: %q", err, errs.Public(err))
		}
		return err
	})
	if got, err := sb.Files().Read(w.ctx(), "/workspace/kept", 100); err != nil || string(got) != "kept" {
		t.Errorf("after the check: %q, %v", got, err)
	}
	if err := late(); err != nil {
		t.Errorf("a write after the check: %v", err)
	}
}
