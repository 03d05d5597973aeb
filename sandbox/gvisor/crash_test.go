package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// server starts a process that creates the machine; it returns when the
// create has begun.
func server(t *testing.T, dir string, b sandbox.Boot) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe(t), "create", dir)
	cmd.Stdin = strings.NewReader(string(data))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "go\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	return cmd, out
}

// A server killed at any moment of a create: the next one lists what there is
// and removes all of it, a runsc that is still at work included.
func TestServerKilledDuringCreate(t *testing.T) {
	skipUnlessItBoots(t)
	rootfs, guest := sandboxtest.Rootfs(t), guesttest.Binary(t)
	for ms := 0; ms <= 160; ms += 10 {
		dir := t.TempDir()
		b := bootOf(t, rootfs)
		b.Guest = guest
		cmd, _ := server(t, dir, b)
		<-time.After(time.Duration(ms) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		p := open(t, dir)
		ids, err := p.List(t.Context())
		if err != nil || len(ids) > 1 || len(ids) == 1 && ids[0] != b.ID {
			t.Fatalf("after %d ms: List = %v, %v", ms, ids, err)
		}
		for _, id := range ids {
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Errorf("after %d ms: %v", ms, err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		sandboxtest.Leaks(t, dir, b.ID)
		if t.Failed() {
			t.Fatalf("killed after %d ms", ms)
		}
	}
}

// A server killed when all is well: the machine lives, the next one attaches.
func TestServerKilledAfterCreate(t *testing.T) {
	skipUnlessItBoots(t)
	dir := t.TempDir()
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Guest = guesttest.Binary(t)
	cmd, out := server(t, dir, b)
	if line, err := out.ReadString('\n'); line != "up\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	p := open(t, dir)
	m, err := p.Attach(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if res := sandboxtest.NewGuest(t, m).Run("/bin/echo", "alive"); res.Stdout != "alive\n" {
		t.Errorf("%+v", res)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	sandboxtest.Leaks(t, dir, b.ID)
}

// Whatever single trace is left of a machine, it is listed and removed.
func TestHalfMadeIsListedAndRemoved(t *testing.T) {
	p := open(t, t.TempDir())
	for name, leave := range map[string]func(id sandbox.ID) error{
		"directory":     func(id sandbox.ID) error { return os.Mkdir(p.dir(id), 0o700) },
		"broken record": func(id sandbox.ID) error { return put(filepath.Join(p.dir(id), recordName), "{") },
		"state file":    func(id sandbox.ID) error { return put(p.stateFile(id), "{}") },
		"lock file":     func(id sandbox.ID) error { return put(strings.TrimSuffix(p.stateFile(id), "state")+"lock", "") },
		"control group": func(id sandbox.ID) error {
			if p.cgroups == nil {
				return put(p.stateFile(id), "{}")
			}
			return p.group(id).Make("memory")
		},
	} {
		id := sandbox.NewID()
		if err := leave(id); err != nil {
			t.Fatal(err)
		}
		if ids, err := p.List(t.Context()); err != nil || !slices.Contains(ids, id) {
			t.Errorf("%s: List = %v, %v", name, ids, err)
		}
		for range 2 {
			if err := p.Destroy(context.Background(), id); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ids, err := p.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("%s: still listed: %v, %v", name, ids, err)
		}
		sandboxtest.Leaks(t, p.c.Dir, id)
	}
}

func put(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
