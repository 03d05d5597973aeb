package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/sandbox/admission"
)

// host has processors that boots share.
type host struct {
	processors float64
	work       time.Duration // of a boot, on a processor of its own

	mu      sync.Mutex
	booting int
	most    int
}

// boot takes as long as it takes beside the others.
func (h *host) boot(ctx context.Context) error {
	h.mu.Lock()
	h.booting++
	h.most = max(h.most, h.booting)
	left := h.work
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.booting--
		h.mu.Unlock()
	}()
	slice := h.work / 50
	for left > 0 {
		select {
		case <-time.After(slice):
		case <-ctx.Done():
			return ctx.Err()
		}
		h.mu.Lock()
		left -= time.Duration(float64(slice) * min(1, h.processors/float64(h.booting)))
		h.mu.Unlock()
	}
	return nil
}

// through boots behind the gate, with a deadline that begins with its turn.
func (h *host) through(g *admission.Gate, b admission.Boot, deadline time.Duration) error {
	turn, err := g.Join(b).Wait(context.Background())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := h.boot(ctx); err != nil {
		turn.End(admission.Late)
		return err
	}
	turn.End(admission.Up)
	return nil
}

// A hundred boots at once all come up on a host so slow that side by side none
// of them would, and are not later than they have to be.
func TestGate_aHundredAtOnceAllComeUpOnASlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, deadline = 100, 3 * time.Minute
		h := &host{processors: 2, work: 10 * time.Second}
		g := admission.New(128)
		began := time.Now()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := h.through(g, admission.Boot{Provider: "p", Tenant: "t"}, deadline); err != nil {
					t.Errorf("boot %d: %v", i, err)
				}
			})
		}
		all.Wait()
		least := time.Duration(n * float64(h.work) / h.processors)
		if took := time.Since(began); took > least*12/10 {
			t.Errorf("all took %s; the host could in %s", took, least)
		}
		if h.most > 10 {
			t.Errorf("%d at once on two processors", h.most)
		}
		if sideBySide(&host{processors: 2, work: h.work}, n, deadline) > 0 {
			t.Error("without the gate some came up too: this test shows nothing")
		}
	})
}

// sideBySide boots without a gate and counts what came up.
func sideBySide(h *host, n int, deadline time.Duration) (up int) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	for range n {
		all.Go(func() {
			if h.boot(ctx) == nil {
				mu.Lock()
				defer mu.Unlock()
				up++
			}
		})
	}
	all.Wait()
	return up
}

// The bound follows a host that becomes slow and fast again: down to one at a
// time, and back.
func TestGate_followsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{processors: 8, work: time.Second}
		g := admission.New(32)
		burst := func(n int) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() { _ = h.through(g, admission.Boot{Provider: "p"}, 3*time.Minute) })
			}
			all.Wait()
		}
		burst(400)
		fast := g.Limit("p")
		if fast < 8 || fast > 24 {
			t.Errorf("%d at once on eight processors", fast)
		}
		h.mu.Lock()
		h.processors = 0.5
		h.mu.Unlock()
		burst(40)
		if got := g.Limit("p"); got > fast/2 {
			t.Errorf("%d at once on half a processor", got)
		}
		h.mu.Lock()
		h.processors = 8
		h.mu.Unlock()
		burst(400)
		if got := g.Limit("p"); got < 8 {
			t.Errorf("%d at once on eight processors again", got)
		}
		if got := g.Limit("another"); got != 1 {
			t.Errorf("%d at once of a provider that never booted", got)
		}
	})
}

// Boots of a kind that was never alone are measured against how slow all are.
func TestGate_aKindThatWasNeverAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{processors: 2, work: time.Second}
		g := admission.New(128)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				if err := h.through(g, admission.Boot{Provider: "p", Like: fmt.Sprint(i / 50)}, time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if h.most > 24 { // the first rounds double the bound, and may do so once too often
			t.Errorf("%d at once on two processors", h.most)
		}
	})
}

// Boots that hang until their deadline do not keep the others, whether they
// are the first that there are or come later.
func TestGate_bootsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := admission.New(8)
		wait := func(b admission.Boot) (*admission.Turn, time.Duration) {
			began := time.Now()
			turn, err := g.Join(b).Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return turn, time.Since(began)
		}
		var hung []*admission.Turn
		for range 3 {
			turn, _ := wait(admission.Boot{Tenant: "bad"})
			hung = append(hung, turn)
		}
		good := admission.Boot{Tenant: "good", Like: "good"}
		for i := range 20 {
			turn, after := wait(good)
			if after > time.Minute || i > 0 && after > 2*time.Second {
				t.Errorf("boot %d waited %s for some that hang", i, after)
			}
			<-time.After(100 * time.Millisecond)
			turn.End(admission.Up)
			if i == 10 {
				turn, _ := wait(admission.Boot{Tenant: "bad"})
				hung = append(hung, turn)
			}
		}
		for _, turn := range hung {
			turn.End(admission.Late)
		}
		if g.Busy() {
			t.Error("busy with nothing")
		}
	})
}

// A deadline that is missed halves the bound, once for all that were under
// way; it never goes below one. What failed otherwise says nothing.
func TestGate_missedDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := admission.New(8)
		round := func(o admission.Outcome) {
			var turns []*admission.Turn
			for range g.Limit("") {
				turn, err := g.Join(admission.Boot{}).Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				turns = append(turns, turn)
			}
			<-time.After(time.Second)
			for _, turn := range turns {
				turn.End(o)
				turn.End(o)
			}
		}
		for _, want := range []int{1, 2, 4, 8, 8} {
			if got := g.Limit(""); got != want {
				t.Fatalf("%d at once, want %d", got, want)
			}
			round(admission.Up)
		}
		for _, want := range []int{8, 4, 2, 1, 1} {
			if got := g.Limit(""); got != want {
				t.Fatalf("%d at once, want %d", got, want)
			}
			round(admission.Late)
		}
		round(admission.Other)
		if got := g.Limit(""); got != 1 {
			t.Errorf("%d at once after a boot that failed by itself", got)
		}
	})
}

// line keeps the order in which places had their turns.
type line struct {
	t     *testing.T
	g     *admission.Gate
	first *admission.Turn // holds the only turn until the line is complete
	mu    sync.Mutex
	order []string
	all   sync.WaitGroup
}

func newLine(t *testing.T) *line {
	l := &line{t: t, g: admission.New(1)}
	var err error
	if l.first, err = l.g.Join(admission.Boot{Provider: "p", Tenant: "first"}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *line) join(name string, b admission.Boot) *admission.Place {
	b.Provider = "p"
	place := l.g.Join(b)
	l.all.Go(func() {
		turn, err := place.Wait(context.Background())
		if err != nil {
			l.t.Error(err)
			return
		}
		l.mu.Lock()
		l.order = append(l.order, name)
		l.mu.Unlock()
		turn.End(admission.Other)
	})
	return place
}

func (l *line) run() []string {
	l.first.End(admission.Other)
	l.all.Wait()
	return l.order
}

// One boot of another tenant does not wait for a hundred that came before it,
// and each place says truly how many are before it.
func TestGate_goesRoundTheTenants(t *testing.T) {
	l := newLine(t)
	places := map[string]*admission.Place{}
	for i := range 100 {
		name := fmt.Sprint("many ", i)
		places[name] = l.join(name, admission.Boot{Tenant: "many"})
	}
	for i := range 3 {
		name := fmt.Sprint("few ", i)
		places[name] = l.join(name, admission.Boot{Tenant: "few"})
	}
	places["spare"] = l.join("spare", admission.Boot{Spare: true})
	said := map[string]int{}
	for name, p := range places {
		if !p.Waits() {
			t.Fatalf("%s does not wait", name)
		}
		said[name] = p.Ahead()
	}
	for i, name := range l.run() {
		// What is spare may come a little earlier than the last that were asked for.
		if name != "spare" && said[name] != i {
			t.Errorf("%s had turn %d, and said that %d are before it", name, i, said[name])
		}
	}
	if said["few 2"] != 5 || said["many 99"] < 102 {
		t.Errorf("before the few's last: %d, before the many's last: %d", said["few 2"], said["many 99"])
	}
}

// Spare boots come after those that a caller waits for, but are not kept
// waiting for ever.
func TestGate_spareBootsWaitButNotForEver(t *testing.T) {
	l := newLine(t)
	for i := range 3 {
		l.join(fmt.Sprint("spare ", i), admission.Boot{Spare: true})
	}
	if !l.g.Busy() {
		t.Error("a boot that a caller waits for is under way, and the gate is not busy")
	}
	for i := range 20 {
		l.join(fmt.Sprint("asked ", i), admission.Boot{Tenant: "t"})
	}
	var spares []int
	for i, name := range l.run() {
		if name[0] == 's' {
			spares = append(spares, i)
		}
	}
	if len(spares) != 3 || spares[0] != 7 || spares[1] != 15 || spares[2] != 22 {
		t.Errorf("spare boots had turns %v", spares)
	}
	if l.g.Busy() {
		t.Error("busy with nothing")
	}
}

// A place that is given up holds up none of the others and takes no turn.
func TestGate_givingUp(t *testing.T) {
	l := newLine(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := l.g.Join(admission.Boot{Provider: "p", Tenant: "t"})
	left := make(chan error)
	go func() {
		_, err := gone.Wait(ctx)
		left <- err
	}()
	last := l.join("last", admission.Boot{Tenant: "t"})
	if got := last.Ahead(); got != 1 {
		t.Errorf("%d before the last", got)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if got := last.Ahead(); got != 0 || gone.Waits() {
		t.Errorf("%d before the last; the one that was given up waits: %v", got, gone.Waits())
	}
	if got := l.run(); len(got) != 1 {
		t.Errorf("turns: %q", got)
	}
	// A turn that comes at the same moment is not lost.
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		held, err := l.g.Join(admission.Boot{Provider: "p"}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if turn, err := l.g.Join(admission.Boot{Provider: "p"}).Wait(ctx); err == nil {
				turn.End(admission.Other)
			}
		})
		both.Go(func() { held.End(admission.Other) })
		cancel()
		both.Wait()
	}
	if l.g.Busy() {
		t.Error("a turn was lost")
	}
}
