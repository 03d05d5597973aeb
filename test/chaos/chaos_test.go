package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/thread"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a store that outlives its processes, and what is known of it.
type world struct {
	t       *testing.T
	guest   *Guest
	socket  string
	dir     string
	process int
	acked   map[string]map[string]string // by tenant: "thread seq" -> hash
	kills   int
	again   []time.Duration // from a start after a kill to the first event
	onFail  string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "store"), acked: map[string]map[string]string{}}
	w.guest, w.socket = startGuest(t)
	return w
}

// ended is how a process ended.
type ended struct {
	done   bool
	killed bool
	stderr string
}

// life runs one process until it is done or dead. killAfter says how long
// after its first event it is killed, and early counts from its start; a
// negative one: not at all.
func (w *world) life(o order, killAfter time.Duration, early bool) ended {
	w.t.Helper()
	w.process++
	o.Process, o.Dir, o.Guest = w.process, w.dir, w.socket
	content, err := json.Marshal(o)
	must(w.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(content))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	began := time.Now()
	must(w.t, cmd.Start())
	var killed atomic.Bool
	var timer *time.Timer
	arm := func() {
		if killAfter >= 0 {
			timer = time.AfterFunc(killAfter, func() { killed.Store(true); _ = cmd.Process.Kill() })
		}
	}
	if early {
		arm()
	}
	var e ended
	var first time.Duration
	for lines := bufio.NewScanner(out); lines.Scan(); { // to the end: all that was said counts
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "done":
			e.done = true
		case "had":
			w.had(o.Tenant, rest)
		case "ack":
			if first == 0 {
				if first = time.Since(began); !early {
					arm()
				}
			}
			w.had(o.Tenant, rest)
		}
	}
	err = cmd.Wait()
	if timer != nil {
		timer.Stop()
	}
	e.stderr = stderr.String()
	e.killed = killed.Load() || (o.DieAt > 0 && err != nil && strings.Contains(err.Error(), "killed"))
	if err != nil && !e.killed {
		w.t.Fatalf("process %d: %v\n%s%s", w.process, err, e.stderr, w.onFail)
	}
	if w.kills > 0 && first > 0 {
		w.again = append(w.again, first)
	}
	if e.killed {
		w.kills++
	}
	if strings.Contains(e.stderr, "ERROR") || strings.Contains(e.stderr, "panic") {
		w.t.Errorf("process %d complained:\n%s%s", w.process, e.stderr, w.onFail)
	}
	return e
}

// had takes in "thread seq hash call" of an event that is durable.
func (w *world) had(tenant, rest string) {
	w.t.Helper()
	f := strings.Fields(rest)
	if len(f) != 4 {
		return // torn by the kill
	}
	if w.acked[tenant] == nil {
		w.acked[tenant] = map[string]string{}
	}
	key := f[0] + " " + f[1]
	if old := w.acked[tenant][key]; old != "" && old != f[2] {
		w.t.Errorf("event %s was %s and is %s%s", key, old, f[2], w.onFail)
	}
	w.acked[tenant][key] = f[2]
	if f[3] != "-" {
		w.guest.finish(f[0] + " " + f[3])
	}
}

// finish lets a run come to its end.
func (w *world) finish(o order) {
	w.t.Helper()
	o.DieAt = 0
	if e := w.life(o, -1, false); !e.done {
		w.t.Fatalf("it did not end\n%s%s", e.stderr, w.onFail)
	}
}

// report prints how long it took to run again.
func (w *world) report() {
	if len(w.again) == 0 {
		return
	}
	slices.Sort(w.again)
	at := func(q float64) time.Duration {
		return w.again[min(int(q*float64(len(w.again))), len(w.again)-1)].Round(time.Millisecond)
	}
	w.t.Logf("%d kills; running again after p50 %v, p99 %v, max %v", w.kills, at(0.5), at(0.99), at(1))
	if at(1) > patience.Of(20*time.Second) {
		w.t.Errorf("it took %v to run again", at(1))
	}
}

func killsWanted() int {
	if n, err := strconv.Atoi(os.Getenv("CHAOS_KILLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 8
	}
	return 50
}

// seeded returns random numbers, and says how to have them again.
func (w *world) seeded() *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	w.onFail = fmt.Sprintf("\nagain: CHAOS_SEED=%d CHAOS_KILLS=%d go test -count=1 -timeout 60m -run '^%s$' ./test/chaos", seed, killsWanted(), w.t.Name())
	w.t.Logf("SEED=%d", seed)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log(w.onFail)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// rampage kills at random until so many kills were made, one run after the
// other, and lets the last one finish.
func (w *world) rampage(p plot, kills int) {
	random := w.seeded()
	for run := 1; w.kills < kills; run++ {
		o := order{Tenant: fmt.Sprint("t", run), Plot: p}
		for done := false; !done; {
			if w.kills >= kills {
				w.finish(o)
				break
			}
			after, early := time.Duration(random.Int64N(int64(40*time.Millisecond))), false
			if random.IntN(5) == 0 { // while it starts
				after, early = time.Duration(random.Int64N(int64(300*time.Millisecond))), true
			}
			done = w.life(o, after, early).done
		}
		w.check(o)
	}
	w.report()
}

// 200 steps of four calls each, killed at any moment: no event that was
// acknowledged is lost, no call that was finished runs again, what is keyed
// happens once, and what may happen once at most once.
func TestKill_random(t *testing.T) {
	newWorld(t).rampage(plot{Steps: 200}, killsWanted())
}

// The same for a run with three sub-agents at work in one machine, whose
// calls people decide about.
func TestKill_subagentsAndApprovals(t *testing.T) {
	newWorld(t).rampage(plot{Steps: 24, Boss: true}, killsWanted()/2)
}

// The same for a run that plans, asks, is shown an image, has its conversation
// shortened, and is held to a check.
func TestKill_people(t *testing.T) {
	newWorld(t).rampage(plot{People: true}, killsWanted()/2)
}

// A run of which no process lives longer than to its next append: each dies
// right after it, or right before the one that follows.
func TestKill_atEveryAppend(t *testing.T) {
	for name, p := range map[string]plot{"one agent": {Steps: 3}, "sub-agents": {Steps: 1, Boss: true}, "people": {People: true}} {
		if testing.Short() && p.Boss {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := order{Tenant: "t", Plot: p, Progress: true}
			for n, done := 0, false; !done; n++ {
				if n > 200 {
					t.Fatal("it does not come on")
				}
				o.DieAt, o.Before = 1+n%2, n%2 == 1
				done = w.life(o, -1, false).done
			}
			w.check(o)
			w.report()
		})
	}
}

// A run whose first process dies at its n-th write, records and claims
// included: it begins once, and comes to its end.
func TestKill_atEveryWriteOfTheBeginning(t *testing.T) {
	last := 9
	if testing.Short() {
		last = 4
	}
	w := newWorld(t)
	for n := 1; n <= last; n++ {
		for _, before := range []bool{true, false} {
			o := order{Tenant: fmt.Sprintf("t%d%v", n, before), Plot: plot{Steps: 1}, DieAt: n, Before: before}
			if e := w.life(o, -1, false); !e.killed {
				t.Fatalf("write %d never came", n)
			}
			w.finish(o)
			w.check(o)
		}
	}
	w.report()
}

// sortedIDs returns the keys of m in order.
func sortedIDs(m map[thread.ID][]thread.Event) []thread.ID {
	var ids []thread.ID
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
