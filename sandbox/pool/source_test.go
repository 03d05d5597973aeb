package pool_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// slowWorld has a provider that can save memory, and for which that pays.
func slowWorld(t *testing.T) *world {
	w := newWorld(t)
	w.canSave, w.bootTakes, w.loadTakes = true, 2*time.Second, 100*time.Millisecond
	return w
}

// only returns what the pool says of its one shape.
func (s *server) only(t *testing.T) pool.Kind {
	t.Helper()
	kinds := s.p.Status().Kinds
	if len(kinds) != 1 {
		t.Fatalf("%+v", kinds)
	}
	return kinds[0]
}

// counts reads what the world has counted.
func (w *world) counts() (boots, restores, saved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.creates - w.restores, w.restores, w.saved
}

// snapshotDirs lists the directories of snapshots.
func (w *world) snapshotDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(w.snapshots, "snp_*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// spoil makes every snapshot one that does not load.
func (w *world) spoil(t *testing.T) {
	t.Helper()
	for _, dir := range w.snapshotDirs(t) {
		if err := os.WriteFile(filepath.Join(dir, memoryFile), []byte("of another version"), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestSnapshot_oneBootsAndTheOthersGoOnFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(4), 0, false, nil)
		eventually(t, "four are warm", s.settled(4))
		if boots, restores, saved := w.counts(); boots != 1 || restores != 3 || saved != 1 {
			t.Errorf("%d booted, %d came from %d snapshots", boots, restores, saved)
		}
		if k := s.only(t); !k.Snapshot || k.SnapshotBytes == 0 || k.BootMS < 2000 || k.RestoreMS < 100 || k.RestoreMS > 1000 || k.Note != "" {
			t.Errorf("the pool says %+v", k)
		}
		for _, m := range w.all() {
			if !m.called.Load() || m.still.Load() {
				t.Errorf("%s waits without a name of its own, or stands still", m.id)
			}
		}

		// It is the pool's alone.
		kept := s.snaps.Kept()
		if len(kept) != 1 || len(s.snaps.List("")) != 0 {
			t.Fatalf("%+v, and a tenant sees %+v", kept, s.snaps.List(""))
		}
		id := kept[0].ID
		for name, err := range map[string]error{
			"get":    func() error { _, err := s.snaps.Get("", id); return err }(),
			"delete": s.snaps.Delete(t.Context(), "", id),
		} {
			if err == nil {
				t.Errorf("%s of the pool's snapshot is allowed", name)
			}
		}
		if _, err := s.snaps.Begin(t.Context(), sandbox.Snapshot{ID: sandbox.NewSnapshotID()}, false, 0); err != nil {
			t.Errorf("it is counted against a quota of one: %v", err)
		}
		s.kill()
	})
}

// What a sandbox has got needs the snapshot's files, also when the pool has
// given it up, and after a restart.
func TestSnapshot_staysForThoseWhoNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		eventually(t, "two are warm", s.settled(2))
		by := sandbox.NewID()
		var m *pool.Member
		for m == nil || m.From == "" { // the first is the one that it was taken of
			if m != nil {
				s.p.Discard(m.ID)
			}
			if m = s.p.Claim(t.Context(), shape("hash-1"), by, ""); m == nil {
				t.Fatal("none came from the snapshot")
			}
		}
		s.snaps.Rehold(m.From, by)
		s.p.Taken(m.ID)
		eventually(t, "two are warm again", s.settled(2))
		w.set(func() { w.rootfs = "hash-2" })
		eventually(t, "others are warm", func() bool { return s.settled(2)() && len(w.snapshotDirs(t)) == 2 })
		if _, err := os.Stat(s.snaps.Dir(m.From)); err != nil {
			t.Errorf("the files of a sandbox's machine are gone: %v", err)
		}
		s.snaps.Release(t.Context(), m.From, by)
		if _, err := os.Stat(s.snaps.Dir(m.From)); err == nil {
			t.Error("nobody needs it, and it is still there")
		}
		s.stop()
	})
}

// So do warm members that the next server attaches, though it boots its own.
func TestSnapshot_staysForMembersOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		eventually(t, "two are warm", s.settled(2))
		s.kill()
		c := sized(2)
		c.Refill = pool.RefillBoot
		s = w.start(t, c, 0, false, nil)
		eventually(t, "two are warm still", s.settled(2))
		for _, m := range w.all() {
			if m.from != "" {
				if _, err := os.Stat(m.from); err != nil {
					t.Errorf("the files of %s are gone: %v", m.id, err)
				}
			}
		}
		s.claimAll(t)
		eventually(t, "nothing is left of it", func() bool { return s.settled(2)() && len(w.snapshotDirs(t)) == 0 })
		s.stop()
	})
}

func TestSnapshot_isGivenUp(t *testing.T) {
	tests := []struct {
		name   string
		before func(w *world)                            // the server starts
		then   func(t *testing.T, w *world, s *server)   // two are warm
		want   func(t *testing.T, w *world, k pool.Kind) // two are warm again
		kept   int                                       // snapshots in the end
		config func(c pool.Config) pool.Config           // nil = as it is
	}{
		{
			name: "the template changed",
			then: func(_ *testing.T, w *world, _ *server) { w.set(func() { w.rootfs = "hash-2" }) },
			kept: 1, // of the new one
		},
		{
			name: "it does not load", kept: 0,
			then: func(t *testing.T, w *world, s *server) { w.spoil(t); s.claimAll(t) },
			want: func(t *testing.T, _ *world, k pool.Kind) {
				if k.Snapshot || !strings.Contains(k.Note, "did not load") {
					t.Errorf("the pool says %+v", k)
				}
			},
		},
		{
			name: "the disk is short", kept: 0,
			then: func(_ *testing.T, w *world, _ *server) { w.set(func() { w.diskShort = true }) },
			want: func(t *testing.T, w *world, k pool.Kind) {
				if k.Snapshot || k.Note != "the disk is short" {
					t.Errorf("the pool says %+v", k)
				}
			},
		},
		{
			name: "it does not pay", kept: 0,
			before: func(w *world) { w.loadTakes = 1900 * time.Millisecond },
			then: func(t *testing.T, _ *world, s *server) {
				for range 3 { // the last one ends those that need it
					s.claimAll(t)
					eventually(t, "again", s.settled(2))
				}
			},
			want: func(t *testing.T, w *world, k pool.Kind) {
				if _, _, saved := w.counts(); saved != 1 || k.Snapshot || !strings.Contains(k.Note, "booting 2000 ms") {
					t.Errorf("saved %d times; the pool says %+v", saved, k)
				}
			},
		},
		{
			name: "the host is busier than it was", kept: 1,
			then: func(t *testing.T, w *world, s *server) {
				w.set(func() { w.bootTakes, w.loadTakes = 20*time.Second, 4*time.Second })
				for range 4 {
					s.claimAll(t)
					eventually(t, "again", s.settled(2))
				}
			},
			want: func(t *testing.T, w *world, k pool.Kind) {
				if boots, _, saved := w.counts(); boots != 2 || saved != 1 || !k.Snapshot || k.BootMS < 20000 {
					t.Errorf("%d boots, %d saved; the pool says %+v", boots, saved, k)
				}
			},
		},
		{
			name: "it is slower, but asked for", kept: 1,
			config: func(c pool.Config) pool.Config { c.Refill = pool.RefillSnapshot; return c },
			before: func(w *world) { w.bootTakes, w.loadTakes = 10*time.Millisecond, 2*time.Second },
			then: func(t *testing.T, _ *world, s *server) {
				s.claimAll(t)
				eventually(t, "again", s.settled(2))
				s.claimAll(t)
			},
		},
		{
			name: "booting is quick", kept: 0,
			before: func(w *world) { w.bootTakes = 100 * time.Millisecond },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
			want: func(t *testing.T, w *world, k pool.Kind) {
				if _, _, saved := w.counts(); saved != 0 || k.Snapshot || !strings.Contains(k.Note, "too little to gain") {
					t.Errorf("saved %d times; the pool says %+v", saved, k)
				}
			},
		},
		{
			name: "it is not asked for", kept: 0,
			config: func(c pool.Config) pool.Config { c.Refill = pool.RefillBoot; return c },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
		},
		{
			name: "it cannot be taken", kept: 0,
			before: func(w *world) { w.saveErr = errors.New("no") },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
			want: func(t *testing.T, _ *world, k pool.Kind) {
				if k.Snapshot || !strings.Contains(k.Note, "no snapshot could be taken") {
					t.Errorf("the pool says %+v", k)
				}
			},
		},
		{
			name: "it cannot be taken, and ends the machine", kept: 0,
			before: func(w *world) { w.saveErr, w.saveEnds = errors.New("no"), true },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
			want: func(t *testing.T, _ *world, k pool.Kind) {
				if k.Snapshot || !strings.Contains(k.Note, "no snapshot could be taken") {
					t.Errorf("the pool says %+v", k)
				}
			},
		},
		{
			name: "taking it ends the machine", kept: 1, // the others come from it
			before: func(w *world) { w.saveEnds = true },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
			want: func(t *testing.T, w *world, k pool.Kind) {
				if boots, _, saved := w.counts(); boots != 1 || saved != 1 || !k.Snapshot {
					t.Errorf("%d boots, %d saved; the pool says %+v", boots, saved, k)
				}
			},
		},
		{
			name: "the provider cannot", kept: 0,
			before: func(w *world) { w.canSave = false },
			then:   func(t *testing.T, _ *world, s *server) { s.claimAll(t) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := slowWorld(t)
				if tt.before != nil {
					tt.before(w)
				}
				c := sized(2)
				if tt.config != nil {
					c = tt.config(c)
				}
				s := w.start(t, c, 0, false, nil)
				eventually(t, "two are warm", s.settled(2))
				tt.then(t, w, s)
				eventually(t, "two are warm again", func() bool { return s.settled(2)() && len(w.snapshotDirs(t)) == tt.kept })
				if tt.want != nil {
					for _, k := range s.p.Status().Kinds {
						if k.Target > 0 {
							tt.want(t, w, k)
						}
					}
				}
				s.stop()
				w.clearAll(t)
			})
		})
	}
}

// claimAll takes all that is warm, and ends it.
func (s *server) claimAll(t *testing.T) {
	t.Helper()
	for s.warm() > 0 {
		m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
		if m == nil {
			t.Fatal("none is warm")
		}
		s.p.Discard(m.ID)
	}
}

// clearAll is a last server that keeps nothing warm: then there is nothing.
func (w *world) clearAll(t *testing.T) {
	t.Helper()
	s := w.start(t, pool.Config{}, 0, false, nil)
	s.stop()
	if left := w.holds(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// One that never loads is neither taken nor tried again and again.
func TestSnapshot_thatNeverLoadsIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		for range 24 * 60 {
			w.spoil(t)
			s.claimAll(t)
			<-time.After(time.Minute)
		}
		eventually(t, "two are warm", s.settled(2))
		boots, restores, saved := w.counts()
		if saved < 5 || saved > 40 || boots < 2000 {
			t.Errorf("in a day %d were taken; %d booted, %d restored", saved, boots, restores)
		}
		s.stop()
		w.clearAll(t)
	})
}

// The next server boots nothing: the snapshot is there.
func TestSnapshot_outlivesTheServer(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := slowWorld(t)
				s := w.start(t, sized(2), 0, false, nil)
				eventually(t, "two are warm", s.settled(2))
				if how == "stop" {
					s.stop()
				} else {
					s.kill()
				}
				s = w.start(t, sized(5), 0, false, nil)
				eventually(t, "five are warm", s.settled(5))
				if boots, _, saved := w.counts(); boots != 1 || saved != 1 {
					t.Errorf("%d were booted, %d saved", boots, saved)
				}
				if k := s.only(t); !k.Snapshot || k.BootMS < 2000 {
					t.Errorf("the pool says %+v", k)
				}
				s.stop()
				w.clearAll(t)
			})
		})
	}
}

// A server that keeps nothing warm removes the snapshot when no sandbox needs
// it any more.
func TestSnapshot_withoutAPoolGoesWithTheLastSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		eventually(t, "two are warm", s.settled(2))
		s.kill()
		from := snapshot.VolumeOf(s.snaps.Kept()[0].ID)
		s = w.start(t, pool.Config{}, 0, false, nil)
		s.stop()
		for _, left := range w.holds(t) {
			t.Errorf("left of %s: %s", from, left)
		}
	})
}

// A server dies before and after each of its steps: while the first member is
// booted and saved, the others are restored, one is claimed and one discarded,
// the template changes, and the old snapshot is removed.
func TestCrash_atEveryStepOfASnapshotConverges(t *testing.T) {
	script := func(t *testing.T, s *server, taken map[sandbox.ID]bool) {
		until := func(ok func() bool) {
			for range 100 {
				synctest.Wait()
				if s.died() || ok() {
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		}
		until(s.settled(2))
		if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m != nil {
			taken[m.ID] = true // the sandbox's record is there
			s.p.Taken(m.ID)
		}
		if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m != nil {
			s.p.Discard(m.ID)
		}
		until(s.settled(2))
		s.w.set(func() { s.w.rootfs = "hash-2" })
		<-time.After(3 * time.Second)
		until(s.settled(2))
		s.stop()
	}
	steps := 0
	synctest.Test(t, func(t *testing.T) {
		w := slowWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		script(t, s, map[sandbox.ID]bool{})
		steps = s.count()
		if boots, restores, saved := w.counts(); boots != 2 || restores < 3 || saved != 2 {
			t.Fatalf("the script has %d boots, %d restores, %d snapshots", boots, restores, saved)
		}
	})
	for at := 1; at <= steps; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", at, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := slowWorld(t)
					taken := map[sandbox.ID]bool{}
					script(t, w.start(t, sized(2), at, after, nil), taken)
					used := func(id sandbox.ID) bool { return taken[id] }
					next := w.start(t, sized(2), 0, false, used)
					eventually(t, "it is full again", func() bool { return next.settled(2)() && len(w.snapshotDirs(t)) == 1 })
					if k := next.p.Status().Kinds; !k[len(k)-1].Snapshot && !k[0].Snapshot {
						t.Errorf("the next server has no snapshot: %+v", k)
					}
					next.kill()
					last := w.start(t, pool.Config{}, 0, false, used)
					last.stop()
					for _, left := range w.holds(t) {
						if !taken[sandbox.ID(left)] {
							t.Errorf("left: %s", left)
						}
					}
					for id := range taken {
						if w.machines[id] == nil {
							t.Errorf("the machine %s of a sandbox was destroyed", id)
						}
					}
				})
			})
		}
	}
	t.Logf("%d steps", steps)
}

func FuzzParseUse(f *testing.F) {
	f.Add(`{"v":1,"shape":{"provider":"qemu"},"boot_ms":2000}`)
	f.Add(`{"v":2,"shape":{"provider":"qemu"}}`)
	f.Add(`{"v":1,"shape":{},"boot_ms":-1}`)
	f.Add(`[`)
	f.Add(strings.Repeat(" ", 1<<15))
	f.Fuzz(func(t *testing.T, text string) {
		s, bootMS, err := pool.ParseUse(text)
		if err == nil && (s == (pool.Shape{}) || !(bootMS >= 0) || len(text) > 1<<14) {
			t.Errorf("%.80q is a use of %+v, %f", text, s, bootMS)
		}
	})
}

func TestParseUse_refuses(t *testing.T) {
	for _, text := range []string{
		``, `[`, `null`, `{"v":2,"shape":{"provider":"qemu"}}`, `{"v":1}`, `{"v":1,"shape":{}}`,
		`{"v":1,"shape":{"provider":"qemu"},"boot_ms":-1}`, `{"v":1,"shape":7}`, strings.Repeat(" ", 1<<15),
	} {
		if _, _, err := pool.ParseUse(text); err == nil {
			t.Errorf("%.40q is accepted", text)
		}
	}
}
