package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/template"
)

var aSpec = sandbox.Spec{CPUs: 1, MemoryMB: 256, DiskMB: 64, PidsMax: 100, Network: "none"}

func shape(rootfs string) pool.Shape {
	return pool.ShapeOf(aSpec, "fake", template.Rootfs{Name: "host", Hash: rootfs}, "g1")
}

func sized(n int) pool.Config {
	return pool.Config{Sizes: []pool.Size{{Spec: aSpec, Size: n}}, AtOnce: 8}
}

// eventually polls in the bubble's own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		synctest.Wait()
		if ok() {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Fatalf("it never came true: %s", what)
}

func (s *server) warm() (n int) {
	for _, k := range s.p.Status().Kinds {
		n += k.Warm
	}
	return n
}

func (s *server) settled(n int) func() bool {
	return func() bool {
		st := s.p.Status()
		all := 0
		for _, k := range st.Kinds {
			if k.Making+k.Ending > 0 {
				return false
			}
			all += k.Warm
		}
		return all == n
	}
}

func TestPool_fillsGivesAndRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, sized(3), 0, false, nil)
		eventually(t, "three are warm", s.settled(3))
		by := sandbox.NewID()
		m := s.p.Claim(t.Context(), shape("hash-1"), by, "")
		if m == nil || m.Machine.ID() != m.ID || m.Volume.Path == "" {
			t.Fatalf("%+v", m)
		}
		if !s.p.Owns(m.ID) {
			t.Error("a claimed machine that no record names yet is nobody's")
		}
		s.p.Taken(m.ID)
		eventually(t, "it is full again", s.settled(3))
		if s.p.Owns(m.ID) {
			t.Error("the pool keeps what it gave away")
		}
		other := aSpec
		other.MemoryMB = 512
		if m := s.p.Claim(t.Context(), pool.ShapeOf(other, "fake", template.Rootfs{Name: "host", Hash: "hash-1"}, "g1"), by, ""); m != nil {
			t.Error("a machine of another shape was given")
		}
		kinds := s.p.Status().Kinds
		if kinds[0].Claims != 1 || kinds[0].Misses != 0 || kinds[1].Misses != 1 {
			t.Errorf("%+v", kinds)
		}
		s.stop()
		if diff := cmp.Diff([]string{string(m.ID)}, w.holds(t)); diff != "" {
			t.Errorf("after the stop, beside what was given away: %s", diff)
		}
	})
}

func TestClaim_givesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		w := newWorld(t)
		s := w.start(t, sized(n), 0, false, nil)
		eventually(t, "all are warm", s.settled(n))
		var mu sync.Mutex
		given := map[sandbox.ID]bool{}
		var wg sync.WaitGroup
		for range n + 20 {
			wg.Go(func() {
				m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
				if m == nil {
					return
				}
				s.p.Taken(m.ID)
				mu.Lock()
				defer mu.Unlock()
				if given[m.ID] {
					t.Errorf("%s was given twice", m.ID)
				}
				given[m.ID] = true
			})
		}
		wg.Wait()
		if len(given) != n {
			t.Errorf("%d of %d were given", len(given), n)
		}
		k := s.p.Status().Kinds[0]
		if k.Claims != n || k.Misses != 20 {
			t.Errorf("%+v", k)
		}
		s.stop()
	})
}

func TestClaim_waitsWhileManyMoveIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := pool.ClaimsAtOnce + 2
		s := w.start(t, sized(n), 0, false, nil)
		eventually(t, "all are warm", s.settled(n))
		var first *pool.Member
		for range pool.ClaimsAtOnce {
			first = s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if m := s.p.Claim(over, shape("hash-1"), sandbox.NewID(), ""); m != nil {
			t.Error("it did not wait")
		}
		got := make(chan *pool.Member)
		go func() { got <- s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "") }()
		synctest.Wait()
		select {
		case <-got:
			t.Error("it did not wait")
		default:
		}
		s.p.Taken(first.ID)
		if m := <-got; m == nil {
			t.Error("it got none")
		}
		s.kill()
	})
}

// Two servers that believe to be the same node: the compare-and-set decides.
func TestClaim_isFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := w.start(t, sized(1), 0, false, nil)
		eventually(t, "it is warm", one.settled(1))
		two := w.start(t, sized(1), 0, false, nil)
		eventually(t, "it is attached", two.settled(1))
		a := one.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
		b := two.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
		if a == nil || b != nil {
			t.Errorf("%v and %v", a, b)
		}
		one.kill()
		two.stop()
	})
}

// What was made once is often made again soon: one member is kept for it, for
// ten minutes after the last create, while the host has room.
func TestPool_oneMemberFollowsACreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, pool.Config{DemandMax: 1}, 0, false, nil)
		if s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "") != nil {
			t.Fatal("it had one already")
		}
		eventually(t, "one for one create", s.settled(1))
		<-time.After(9 * time.Minute)
		m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
		if m == nil {
			t.Fatal("it went before its ten minutes")
		}
		s.p.Discard(m.ID)
		eventually(t, "another for the next create", s.settled(1))
		<-time.After(9 * time.Minute)
		if !s.settled(1)() {
			t.Error("the second create did not count")
		}
		<-time.After(2 * time.Minute)
		eventually(t, "gone ten minutes after the last", s.settled(0))
		s.stop()
	})
}

func TestPool_noMemberFollowsACreateOfAnEmulatedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.isolation = sandbox.MicroVMEmulated
		s := w.start(t, pool.Config{DemandMax: 1}, 0, false, nil)
		for range 5 {
			_ = s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
			<-time.After(time.Minute)
			if !s.settled(0)() {
				t.Error("a member was made")
			}
		}
		s.stop()
	})
}

func TestPool_noMemberFollowsACreateWhereThereIsNoRoom(t *testing.T) {
	for name, host := range map[string]pool.Host{
		"memory":    {Total: 16 << 30, Available: 3<<30 + 100<<20}, // twice a tenth, less than a machine's 256 MB
		"processor": {Total: 16 << 30, Available: 12 << 30, Waited: 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.memory = host
				s := w.start(t, pool.Config{DemandMax: 1}, 0, false, nil)
				_ = s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "")
				<-time.After(time.Minute)
				if !s.settled(0)() {
					t.Error("a member was made all the same")
				}
				w.set(func() { w.memory = pool.Host{Total: 16 << 30, Available: 12 << 30} })
				eventually(t, "one when there is room", s.settled(1))
				s.stop()
			})
		})
	}
}

// A client that asks for every shape there is gets no member of each.
func TestPool_shapesWithoutConfigurationAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, pool.Config{DemandMax: 1, AtOnce: 4}, 0, false, nil)
		for n := range 40 {
			other := shape("hash-1")
			other.MemoryMB = 256 + n
			_ = s.p.Claim(t.Context(), other, sandbox.NewID(), "")
			<-time.After(time.Second)
		}
		<-time.After(3 * time.Minute)
		if n := len(w.all()); n == 0 || n > 8 {
			t.Errorf("%d members for 40 shapes", n)
		}
		s.stop()
	})
}

func TestPool_demandMakesMembersAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, pool.Config{DemandMax: 2, AtOnce: 2}, 0, false, nil)
		for range 3 {
			if s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), "") != nil {
				t.Fatal("it had one already")
			}
		}
		eventually(t, "one for three creates", s.settled(1))
		for range 30 {
			if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m != nil {
				s.p.Discard(m.ID)
			}
		}
		eventually(t, "no more than the bound", s.settled(2))
		<-time.After(time.Hour)
		eventually(t, "forgotten", s.settled(0))
		s.stop()
	})
}

func TestPool_replacesWhatIsStaleOldOrBroken(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*world, *machine)
	}{
		{"ended", func(_ *world, m *machine) { m.end(sandbox.ReasonKilled) }},
		{"wedged", func(_ *world, m *machine) { m.wedged.Lock() }},
		{"old", func(*world, *machine) { <-time.After(2 * time.Hour) }},
		{"another template", func(w *world, _ *machine) { w.set(func() { w.rootfs = "hash-2" }) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := w.start(t, sized(1), 0, false, nil)
				eventually(t, "it is warm", s.settled(1))
				old := w.all()[0]
				tt.spoil(w, old)
				eventually(t, "another is warm", func() bool {
					all := w.all()
					return s.settled(1)() && len(all) == 1 && all[0] != old
				})
				s.stop()
				if left := w.holds(t); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

func TestPool_getsSmallerWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, sized(8), 0, false, nil)
		eventually(t, "it is full", s.settled(8))
		w.set(func() { w.memory.Available = 100 << 20 })
		eventually(t, "a part goes first", func() bool { n := s.warm(); return n < 8 && n > 0 })
		eventually(t, "all are gone", s.settled(0))
		if !s.p.Status().Tight {
			t.Error("it does not say why")
		}
		creates := w.creates
		<-time.After(time.Minute)
		if w.creates != creates {
			t.Error("it made one while memory was short")
		}
		w.set(func() { w.memory.Available = 12 << 30 })
		eventually(t, "it fills again", s.settled(8))
		w.set(func() { w.memory.Stalled = 50 })
		eventually(t, "stalls count as well", s.settled(0))
		s.stop()
	})
}

func TestPool_comesAfterWhoIsBooting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.boots = admission.New(0)
		turn, err := w.boots.Join(admission.Boot{Provider: "another"}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer turn.End(admission.Up)
		var now, most atomic.Int64
		w.boot = func(context.Context) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second)
			now.Add(-1)
			return nil
		}
		s := w.start(t, sized(6), 0, false, nil)
		eventually(t, "it fills all the same", s.settled(6))
		if most.Load() != 1 {
			t.Errorf("%d were made at once while sandboxes were booting", most.Load())
		}
		s.stop()
	})
}

func TestPool_goesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var tries atomic.Int64
		w.boot = func(context.Context) error {
			if tries.Add(1) <= 3 {
				return errors.New("no")
			}
			return nil
		}
		s := w.start(t, sized(1), 0, false, nil)
		eventually(t, "it is warm at last", s.settled(1))
		s.stop()
		if left := w.holds(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestPool_survivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, sized(3), 0, false, nil)
		eventually(t, "three are warm", s.settled(3))
		orphan := s.p.Claim(t.Context(), shape("hash-1"), "sbx_never", "")
		given := s.p.Claim(t.Context(), shape("hash-1"), "sbx_is", "")
		s.kill()
		creates := w.creates
		s = w.start(t, sized(1), 0, false, func(id sandbox.ID) bool { return id == given.ID })
		eventually(t, "one is warm", s.settled(1))
		if w.creates != creates {
			t.Error("it made one although one was there")
		}
		if s.p.Owns(orphan.ID) || s.p.Owns(given.ID) {
			t.Error("it owns what was claimed")
		}
		s.stop()
		if diff := cmp.Diff([]string{string(given.ID)}, w.holds(t)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPool_withoutSizesClearsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		eventually(t, "two are warm", s.settled(2))
		s.kill()
		s = w.start(t, pool.Config{}, 0, false, nil)
		synctest.Wait()
		if left := w.holds(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		s.stop()
	})
}

// A server dies before and after each of its steps of making, claiming,
// discarding and closing; the next one leaves nothing but what sandboxes have.
func TestCrash_atEveryStepConverges(t *testing.T) {
	script := func(t *testing.T, s *server, taken map[sandbox.ID]bool) {
		for range 100 {
			synctest.Wait()
			if s.died() || s.settled(2)() {
				break
			}
			<-time.After(100 * time.Millisecond)
		}
		if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m != nil {
			taken[m.ID] = true // the sandbox's record is there
			s.p.Taken(m.ID)
		}
		if m := s.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m != nil {
			s.p.Discard(m.ID)
		}
		for range 50 {
			<-time.After(100 * time.Millisecond)
		}
		s.stop()
	}
	steps := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start(t, sized(2), 0, false, nil)
		script(t, s, map[sandbox.ID]bool{})
		steps = s.count()
	})
	if steps < 20 {
		t.Fatalf("the script has only %d steps", steps)
	}
	for at := 1; at <= steps; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", at, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					taken := map[sandbox.ID]bool{}
					script(t, w.start(t, sized(2), at, after, nil), taken)
					next := w.start(t, sized(2), 0, false, func(id sandbox.ID) bool { return taken[id] })
					eventually(t, "it is full again", next.settled(2))
					if m := next.p.Claim(t.Context(), shape("hash-1"), sandbox.NewID(), ""); m == nil || taken[m.ID] {
						t.Errorf("the next server gave %v", m)
					} else {
						next.p.Discard(m.ID)
					}
					next.stop()
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
}

// TestModel does random things to a pool and compares with what must hold.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) { model(t, rt) })
	})
}

func model(t *testing.T, rt *rapid.T) {
	w := newWorld(t)
	size := rapid.IntRange(0, 4).Draw(rt, "size")
	if w.canSave = rapid.Bool().Draw(rt, "snapshots"); w.canSave {
		w.bootTakes, w.loadTakes = time.Second, 100*time.Millisecond
	}
	config := pool.Config{Sizes: []pool.Size{{Spec: aSpec, Size: size}}, AtOnce: 2, DemandMax: 2, AgeMax: 10 * time.Minute}
	given := map[sandbox.ID]bool{} // sandboxes have these
	used := func(id sandbox.ID) bool { return given[id] }
	s := w.start(t, config, 0, false, used)
	rootfs, n := "hash-1", 1
	for range rapid.IntRange(1, 25).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"claim", "discard", "pass", "long", "end", "template", "crash", "restart", "short", "plenty", "spoil", "full", "room"}).Draw(rt, "do") {
		case "claim":
			if m := s.p.Claim(t.Context(), shape(rootfs), sandbox.NewID(), ""); m != nil {
				if given[m.ID] {
					rt.Fatalf("%s was given twice", m.ID)
				}
				given[m.ID] = true
				s.p.Taken(m.ID)
			}
		case "discard":
			if m := s.p.Claim(t.Context(), shape(rootfs), sandbox.NewID(), ""); m != nil {
				s.p.Discard(m.ID)
			}
		case "pass":
			<-time.After(3 * time.Second)
		case "long":
			<-time.After(5 * time.Minute)
		case "end":
			for _, m := range w.all() {
				if !given[m.id] {
					m.end(sandbox.ReasonKilled)
					break
				}
			}
		case "template":
			n++
			rootfs = fmt.Sprintf("hash-%d", n)
			w.set(func() { w.rootfs = rootfs })
		case "crash":
			s.kill()
			s = w.start(t, config, 0, false, used)
		case "restart":
			s.stop()
			s = w.start(t, config, 0, false, used)
		case "short":
			w.set(func() { w.memory.Available = 1 << 20 })
		case "plenty":
			w.set(func() { w.memory.Available = 12 << 30 })
		case "spoil":
			w.spoil(t)
		case "full":
			w.set(func() { w.diskShort = true })
		case "room":
			w.set(func() { w.diskShort = false })
		}
	}
	w.set(func() { w.memory.Available, w.diskShort = 12<<30, false })
	<-time.After(2 * time.Hour) // demand is forgotten, what failed is tried again
	eventually(t, "it has its size", s.settled(size))
	for id := range given {
		if w.machines[id] == nil {
			rt.Errorf("the machine %s of a sandbox is gone", id)
		}
	}
	s.stop()
	s = w.start(t, pool.Config{}, 0, false, used)
	s.stop()
	for _, left := range w.holds(t) {
		if !given[sandbox.ID(left)] {
			rt.Errorf("left: %s", left)
		}
	}
}

func TestHost_tight(t *testing.T) {
	for _, tt := range []struct {
		m    pool.Host
		want bool
	}{
		{pool.Host{}, false}, // a host that says nothing
		{pool.Host{Total: 16 << 30, Available: 8 << 30}, false},
		{pool.Host{Total: 16 << 30, Available: 1 << 30}, true},
		{pool.Host{Total: 16 << 30, Available: 8 << 30, Stalled: 11}, true},
		{pool.Host{Total: 16 << 30, Available: 8 << 30, DiskFull: true}, true},
		{pool.Host{Total: 1 << 30, Available: 600 << 20}, false},
		{pool.Host{Total: 512 << 20, Available: 300 << 20}, false},
	} {
		if tt.m.Tight() != tt.want {
			t.Errorf("%+v: %v", tt.m, !tt.want)
		}
	}
	if m := pool.LookAtHost(); m.Total <= 0 || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("this host: %+v", m)
	}
}

func FuzzDecode(f *testing.F) {
	id := string(sandbox.NewID())
	f.Add("pool/"+id, []byte(`{"v":1,"node":"one","id":"`+id+`","state":"warm"}`), []byte("some avg10=1.5 avg60=0\n"))
	f.Add("pool/x", []byte(`{}`), []byte("some avg10=NaN\nMemTotal: 5 kB\nMemAvailable: -1 kB"))
	f.Fuzz(func(t *testing.T, key string, value, text []byte) {
		if got, err := pool.DecodeID(key, value); err == nil && "pool/"+string(got) != key {
			t.Errorf("%s at %q", got, key)
		}
		if m := pool.ParseHost(text, text, text); m.Total < 0 || m.Available < 0 || !(m.Stalled >= 0 && m.Stalled <= 100) {
			t.Errorf("%+v", m)
		}
	})
}

func TestLoad_leavesAloneWhatItCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := sandbox.NewID()
		if _, err := w.registry.Create(t.Context(), "pool/"+string(id), []byte(`{"v":99}`)); err != nil {
			t.Fatal(err)
		}
		s := w.start(t, sized(0), 0, false, nil)
		if !s.p.Owns(id) {
			t.Error("what a newer skete has written would be swept away")
		}
		s.stop()
		if left := strings.Join(w.holds(t), " "); left != "pool/"+string(id) {
			t.Errorf("left: %s", left)
		}
	})
}

// A machine without a network is of no use to a sandbox with one, and whatever the
// policy is, the machine is the same.
func TestShapeOf_network(t *testing.T) {
	of := func(s sandbox.Spec) pool.Shape { return pool.ShapeOf(s, "gvisor", template.Rootfs{}, "guest") }
	none := of(sandbox.Spec{Network: egress.None})
	rules := of(sandbox.Spec{Network: egress.None, Egress: &egress.Policy{Allow: []egress.Rule{{Host: "api.example.com"}}}})
	open := of(sandbox.Spec{Network: egress.Open})
	if none == rules || rules != open || none.Network || !open.Network {
		t.Errorf("without %+v, with rules %+v, open %+v", none, rules, open)
	}
}
