package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// leaving is a tenant that is about to be erased.
type leaving struct {
	*machines
	name string
	c    *client.Client
	ids  []string
	link string // to a preview, public
}

// fill gives a tenant what may be left of one: sandboxes with histories, one
// that is destroyed, a snapshot, a public link.
func (m *machines) fill(name, address string, providers ...string) *leaving {
	m.t.Helper()
	made, err := m.c.CreateKey(m.ctx(), api.CreateKey{Name: name, Tenant: name})
	if err != nil {
		m.t.Fatal(err)
	}
	l := &leaving{machines: m, name: name}
	l.c, err = client.New(client.Config{URL: "http://" + address, Key: made.Secret})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.c.Close() })
	for _, provider := range append(providers, "gvisor") { // the last one is destroyed
		sb, err := l.c.CreateSandbox(m.ctx(), api.CreateSandbox{Provider: provider, Template: "small", MemoryMB: 128, DiskMB: 64})
		if err != nil {
			m.t.Fatal(err)
		}
		m.ids[sb.ID] = true
		l.ids = append(l.ids, sb.ID)
		at := l.c.Sandbox(sb.ID)
		if _, err = at.Files().Write(m.ctx(), "/workspace/file", []byte("of "+name), client.WriteOptions{}); err == nil {
			_, err = at.History().Snapshot(m.ctx(), "kept")
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	first := l.c.Sandbox(l.ids[0])
	link, err := first.Previews().Open(m.ctx(), api.CreatePreview{Port: 8080, Public: true})
	if err == nil {
		l.link = link.URL
		_, err = first.Snapshot(m.ctx(), api.CreateSnapshot{Name: "kept", DiskOnly: true})
	}
	if err == nil {
		err = l.c.Sandbox(l.ids[len(l.ids)-1]).Destroy(m.ctx())
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// left names what there is of a tenant.
func (l *leaving) left(v *visitor) (found []string) {
	l.t.Helper()
	for _, id := range l.ids {
		_ = filepath.WalkDir(l.home, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(d.Name(), id) {
				found = append(found, path)
				return fs.SkipDir
			}
			return nil
		})
	}
	for sb, err := range l.c.Sandboxes(l.ctx(), client.SandboxFilter{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		found = append(found, "sandbox "+sb.ID)
	}
	snaps, err := l.c.Snapshots(l.ctx())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range snaps {
		found = append(found, "snapshot "+s.ID)
	}
	if status, _, _ := v.do("GET", l.link, nil, nil); status < 400 {
		found = append(found, "a public link")
	}
	return found
}

// Nothing is left of a tenant that was erased: no sandbox with its workspace, no
// history, of those that were destroyed before neither, no snapshot, no link.
// Killed in the middle, the next start ends it; other tenants lose nothing.
func TestEraseTenant_nothingIsLeft(t *testing.T) {
	t.Parallel()
	address := listenAddress(t)
	m := emulated(t, "--listen", address)
	v := newVisitor(m.world, address)
	stays := m.fill("stays", address, "gvisor")
	whole := len(stays.left(v))
	if whole < 6 {
		t.Fatalf("it looks for too little: %q", stays.left(v))
	}
	gone := m.fill("gone", address, "gvisor", "qemu")
	got, err := m.c.EraseTenant(m.ctx(), "gone")
	if err != nil || got.Sandboxes != 2 || got.Snapshots != 1 || got.Histories != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if left := gone.left(v); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	interrupted := 0
	for _, after := range []int{2, 10, 25, 60, 120} { // ms
		name := fmt.Sprint("killed-after-", after)
		l := m.fill(name, address, "gvisor", "gvisor")
		before := len(l.left(v))
		done := make(chan error, 1)
		go func() {
			_, err := m.c.EraseTenant(context.Background(), name)
			done <- err
		}()
		select {
		case <-time.After(time.Duration(after) * time.Millisecond):
			interrupted++
		case err := <-done:
			t.Logf("it took less than %d ms: %v", after, err)
		}
		m.kill()
		m.start()
		switch left := l.left(v); {
		case len(left) == 0:
		case len(left) == before: // it had not begun
			if _, err := m.c.EraseTenant(m.ctx(), name); err != nil && !errs.Is(err, errs.NotFound) {
				t.Error(err)
			}
			if left = l.left(v); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		default:
			t.Errorf("killed after %d ms, and left: %q", after, left)
		}
		if _, err := m.c.EraseTenant(m.ctx(), name); !errs.Is(err, errs.NotFound) {
			t.Errorf("an erased tenant is not unknown: %v", err)
		}
	}
	if interrupted == 0 {
		t.Error("no erasure was interrupted")
	}
	if left := stays.left(v); len(left) != whole {
		t.Errorf("of another tenant is left: %q", left)
	}
	if _, err := m.c.EraseTenant(m.ctx(), "stays"); err != nil {
		t.Error(err)
	}
}
