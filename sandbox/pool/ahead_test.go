package pool_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/template"
)

// setting is that of a sandbox of aSpec.
func setting(env map[string]string) string {
	spec := aSpec
	spec.Env = env
	return pool.Setting(sandbox.Boot{ID: sandbox.NewID(), Spec: spec}.BootFile())
}

func (w *world) startedIn(m *pool.Member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines[m.ID].started.Load()
}

// What a template starts runs in warm machines, also in those from a snapshot, for
// sandboxes whose commands see the same; after a crash too. For others there are machines
// in which it was not started.
func TestAhead_isForThoseWhoSeeTheSame(t *testing.T) {
	for _, saved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.use, w.canSave, w.bootTakes = template.Use{Start: "serve"}, saved, time.Second
			s := w.start(t, sized(2), 0, false, nil)
			claim := func(setting string) *pool.Member {
				t.Helper()
				m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), setting)
				if m != nil {
					s.p.Taken(m.ID)
				}
				return m
			}
			eventually(t, "two are warm", s.settled(2))
			if m := claim(setting(nil)); m == nil || !m.Begun || !w.startedIn(m) {
				t.Fatalf("saved %v: a sandbox like the machine got %+v", saved, m)
			}
			eventually(t, "it is full again", s.settled(2))
			s.kill()
			s = w.start(t, sized(2), 0, false, nil)
			eventually(t, "they are attached", s.settled(2))
			for _, other := range []string{setting(map[string]string{"A": "b"}), ""} {
				if m := claim(other); m != nil {
					t.Errorf("saved %v: a sandbox that sees something else got %+v", saved, m)
				}
				eventually(t, "another takes its place", s.settled(2))
				if m := claim(other); m == nil || m.Begun || w.startedIn(m) {
					t.Errorf("saved %v: the next one got %+v", saved, m)
				}
				if m := claim(setting(nil)); m == nil { // begun or not
					t.Error("there is none")
				}
				eventually(t, "it is full again", s.settled(2))
				if m := claim(setting(nil)); m == nil || !m.Begun {
					t.Errorf("saved %v: it is not started any more: %+v", saved, m)
				}
				eventually(t, "it is full again", s.settled(2))
				claim(setting(nil)) // what was not started
				eventually(t, "it is full again", s.settled(2))
			}
		})
	}
}

// What does not get ready before a sandbox has the machine is left to the sandbox.
func TestAhead_leavesWhatDoesNotGetReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.use = template.Use{Start: "serve"}
		w.startErr = connect.NewError(connect.CodeInvalidArgument, errors.New("it cannot be started here"))
		s := w.start(t, sized(2), 0, false, nil)
		eventually(t, "two are warm", s.settled(2))
		if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), setting(nil)); m == nil || m.Begun {
			t.Errorf("%+v", m)
		} else {
			s.p.Discard(m.ID)
		}
		if k := s.p.Status().Kinds[0]; k.Warm == 0 {
			t.Errorf("%+v", k)
		}
	})
}

func TestSetting(t *testing.T) {
	base := wire.Boot{Sandbox: "a", Hostname: "a", Workdir: "/w", Env: map[string]string{"A": "1", "B": "2"}, Network: &wire.Network{Authority: "x"}}
	same := base
	same.Sandbox, same.Hostname, same.Channel = "b", "b", "unix:/c"
	same.Env = map[string]string{"B": "2", "A": "1"}
	if pool.Setting(base) != pool.Setting(same) {
		t.Error("a name is part of it")
	}
	for name, change := range map[string]func(*wire.Boot){
		"env":       func(b *wire.Boot) { b.Env = map[string]string{"A": "1"} },
		"directory": func(b *wire.Boot) { b.Workdir = "/" },
		"user":      func(b *wire.Boot) { b.DefaultUser = "root" },
		"network":   func(b *wire.Boot) { b.Network = &wire.Network{Authority: "y"} },
	} {
		other := base
		change(&other)
		if pool.Setting(base) == pool.Setting(other) {
			t.Errorf("another %s is the same", name)
		}
	}
}
