package threadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

func appendNumbers(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	if head, err := log.Head(t.Context(), id); head != 0 || err != nil {
		t.Errorf("head of an unknown thread: %d, %v", head, err)
	}
	if es := load(t, log, id, 1); len(es) != 0 {
		t.Errorf("an unknown thread has %d events", len(es))
	}
	seq := opened(t, log, id, "a", "b")
	for i := range 20 {
		es := events(fmt.Sprint(i), fmt.Sprint(i, "'"))
		got, err := log.Append(t.Context(), id, seq, es...)
		if err != nil || got != seq+2 {
			t.Fatalf("append after %d: %d, %v", seq, got, err)
		}
		if es[0].Seq != seq+1 || es[1].Seq != seq+2 {
			t.Errorf("the events after %d were numbered %d, %d", seq, es[0].Seq, es[1].Seq)
		}
		seq = got
		if head, err := log.Head(t.Context(), id); head != seq || err != nil {
			t.Fatalf("head %d, %v, appended through %d", head, err, seq)
		}
		if n := len(load(t, log, id, 1)); uint64(n) != seq {
			t.Fatalf("load has %d events, appended through %d", n, seq)
		}
	}
}

func appendSettles(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	run := thread.NewRunID()
	given := []thread.Event{
		{At: time.Now().In(time.FixedZone("x", 3600)), Body: thread.Opened{Agent: json.RawMessage("{ \"a\" :\n1 }"), Labels: map[string]string{}}},
		thread.New(run, thread.ModelCompleted{
			Message: llm.Assistant(
				llm.Block{Kind: llm.KindReasoning, Vendor: &llm.Vendor{Dialect: "d", Data: json.RawMessage(`{"s":"<&>\u2028"}`)}},
				llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "c", Name: "n", Args: json.RawMessage("{\"x\": \"\xff<\"}\n")}},
			), Usage: llm.Usage{}, Model: "m",
		}),
		thread.New("", thread.Input{From: "user", Blocks: []llm.Block{}}),
	}
	if _, err := log.Append(t.Context(), id, 0, given...); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(given, load(t, log, id, 1)); d != "" {
		t.Errorf("handed back and loaded differ:\n%s", d)
	}
}

func conflict(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	opened(t, log, id, "a", "b")
	for _, after := range []uint64{0, 1, 2, 4, 1000} {
		_, err := log.Append(t.Context(), id, after, events("x")...)
		wantClass(t, fmt.Sprintf("append after %d of 3", after), err, errs.Conflict)
	}
	_, err := log.Append(t.Context(), thread.NewID(), 3, events("x")...)
	wantClass(t, "append to the end of no thread", err, errs.NotFound)
	wantSaid(t, log, id, "a", "b")
	if _, err := log.Append(t.Context(), id, 3, events("c")...); err != nil {
		t.Errorf("append after the conflicts: %v", err)
	}
}

func bounds(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	fill := func(n int) string { return strings.Repeat("x", n) }
	many := make([]string, thread.AppendMax)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, bad := range []struct {
		what   string
		events []thread.Event
		want   errs.Class
	}{
		{"no events", nil, errs.Invalid},
		{"an event without a body", []thread.Event{{}}, errs.Internal},
		{"a large event", events(fill(thread.EventBytesMax)), errs.Limit},
		{"a small and a large event", events("a", fill(thread.EventBytesMax)), errs.Limit},
		{"too much together", events(fill(40<<10), fill(40<<10), fill(40<<10), fill(40<<10), fill(40<<10)), errs.Limit},
		{"too many", events(append(many, "one more")...), errs.Limit},
		{"arguments that are no JSON", []thread.Event{thread.New("", thread.ToolStarted{Call: "c", Args: json.RawMessage(`{`)})}, errs.Invalid},
		{"an unknown kind that is no JSON", []thread.Event{thread.New("", thread.Unknown{Name: "x", V: 1, Data: json.RawMessage(`}`)})}, errs.Invalid},
		{"a kind of the future", []thread.Event{thread.New("", thread.Unknown{Name: "input", V: 99, Data: json.RawMessage(`{}`)})}, errs.Invalid},
	} {
		_, err := log.Append(t.Context(), id, seq, bad.events...)
		wantClass(t, bad.what, err, bad.want)
	}
	if n := len(load(t, log, id, 1)); n != 1 {
		t.Fatalf("after what was refused there are %d events", n)
	}
	large := events(fill(45<<10), fill(45<<10), fill(45<<10), fill(45<<10))
	seq, err := log.Append(t.Context(), id, seq, large...)
	if err != nil {
		t.Fatalf("180 KB in one append: %v", err)
	}
	if _, err := log.Append(t.Context(), id, seq, events(many...)...); err != nil {
		t.Fatalf("%d events in one append: %v", thread.AppendMax, err)
	}
	if d := cmp.Diff(large, load(t, log, id, 2)[:4]); d != "" {
		t.Error("the large events came back changed")
	}
}

func badIDs(t *testing.T, s Store) {
	log := s.Log(t, tenant)
	good := string(thread.NewID())
	for _, bad := range []string{"", "x", "thr_", "thr_ABC", good + "/", good + "//x", good + "/a b", good + "/*", good + "/>", good + "/.", good + "/a/b/c/d/e", good + "\n"} {
		_, err := log.Append(t.Context(), thread.ID(bad), 0, events("x")...)
		wantClass(t, fmt.Sprintf("append to %q", bad), err, errs.Invalid)
		wantClass(t, fmt.Sprintf("delete %q", bad), log.Delete(t.Context(), thread.ID(bad)), errs.Invalid)
	}
}

func atomicity(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				es, err := collect(log.Load(ctx, id, 1))
				if ctx.Err() != nil {
					return
				}
				if err != nil || len(es)%5 != 1 {
					t.Errorf("a reader sees %d events, %v; they come by fives", len(es), err)
					return
				}
			}
		})
	}
	for i := range 50 {
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events(fmt.Sprint(i), "b", "c", "d", "e")...); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	wg.Wait()
}

// writers has N writers that all append to where the thread ends: each success
// is in the log exactly once, at its place, and nothing else is.
func writers(t *testing.T, s Store) {
	const n, each = 8, 25
	id := thread.NewID()
	opened(t, s.Log(t, tenant), id)
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		acked     = map[uint64]string{}
		conflicts atomic.Int64
	)
	for w := range n {
		log := s.Log(t, tenant)
		wg.Go(func() {
			for i := 0; i < each; {
				head, err := log.Head(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				// The same content from two writers must not pass for the same append.
				name := fmt.Sprintf("%d", i)
				if w%2 == 0 {
					name = fmt.Sprintf("%d/%d", w, i)
				}
				at := time.Unix(int64(i), 0).UTC()
				seq, err := log.Append(t.Context(), id, head, thread.Event{At: at, Body: text(name)})
				switch {
				case err == nil:
					mu.Lock()
					if was, double := acked[seq]; double {
						t.Errorf("event %d was acknowledged to two writers: %q and %q", seq, was, name)
					}
					acked[seq] = name
					mu.Unlock()
					i++
				case errs.Is(err, errs.Conflict):
					conflicts.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	es := load(t, s.Log(t, tenant), id, 1)
	if len(es) != n*each+1 || len(acked) != n*each {
		t.Fatalf("%d events, %d acknowledged, want %d", len(es), len(acked), n*each)
	}
	for _, e := range es[1:] {
		if got := e.Body.(thread.Input).Blocks[0].Text; got != acked[e.Seq] {
			t.Errorf("event %d is %q, acknowledged was %q", e.Seq, got, acked[e.Seq])
		}
	}
	if conflicts.Load() == 0 {
		t.Log("the writers never met")
	}
}

// faults repeats appends as a driver does: the same again after Unavailable.
func faults(t *testing.T, s Store) {
	if s.Fail == nil {
		t.Skip("this implementation cannot be made to fail")
	}
	ways := []Fault{Lost, Mute, Later}
	random := rand.New(rand.NewPCG(1, 2))
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	var want []string
	unsure := 0
	for i := range 60 {
		name := fmt.Sprint(i)
		es := events(name, name+"'")
		if random.IntN(3) > 0 {
			s.Fail(t, tenant, ways[i%len(ways)])
		}
		got, err := log.Append(t.Context(), id, seq, es...)
		for try := 0; errs.Is(err, errs.Unavailable) && try < 10; try++ {
			unsure++
			got, err = log.Append(t.Context(), id, seq, es...)
		}
		if err != nil {
			t.Fatalf("append %d: %v", i, err)
		}
		seq, want = got, append(want, name, name+"'")
	}
	wantSaid(t, log, id, want...)
	if unsure == 0 {
		t.Error("no append was told Unavailable: the faults did not happen")
	}
	// A foreign append in between is a conflict, unless ours had landed.
	for i := range 4 * len(ways) {
		f := ways[i%len(ways)]
		mine := fmt.Sprintf("mine %d", i)
		es := events(mine)
		s.Fail(t, tenant, f)
		got, err := log.Append(t.Context(), id, seq, es...)
		if err == nil { // it was known in time what became of it
			seq = got
			continue
		}
		wantClass(t, string(f), err, errs.Unavailable)
		head := meddle(t, log, id)
		for range 10 {
			if got, err = log.Append(t.Context(), id, seq, es...); !errs.Is(err, errs.Unavailable) {
				break
			}
		}
		landed := slices.Contains(said(load(t, log, id, seq+1)), mine)
		if landed != (err == nil) || err == nil && got != seq+1 || err != nil && !errs.Is(err, errs.Conflict) {
			t.Errorf("%s, then a foreign append: told %d, %v, in the log: %v", f, got, err, landed)
		}
		seq = head
	}
	seen := map[string]bool{}
	for _, text := range said(load(t, log, id, 1)) {
		if text != "foreign" && seen[text] {
			t.Errorf("%q is there twice", text)
		}
		seen[text] = true
	}
}

// meddle appends at the end, wherever that is, as another party does.
func meddle(t *testing.T, log thread.Log, id thread.ID) uint64 {
	t.Helper()
	es := events("foreign")
	for deadline := time.Now().Add(patience); ; {
		head, err := log.Head(t.Context(), id)
		if err == nil {
			head, err = log.Append(t.Context(), id, head, es...)
		}
		if err == nil {
			return head
		}
		if time.Now().After(deadline) || !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Unavailable) {
			t.Fatal(err)
		}
	}
}
