// Package threadtest is the suite that every thread.Log and thread.Blobs
// passes.
//
//	threadtest.Suite(t, func(t *testing.T) threadtest.Store { … })
//
// The suite uses ids of its own, so one store may serve all of its tests.
package threadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
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

// patience bounds every wait of the suite.
const patience = 30 * time.Second

// Store is what the suite tests.
type Store struct {
	// Log and Blobs return those of a tenant.
	Log   func(t *testing.T, tenant string) thread.Log
	Blobs func(t *testing.T, tenant string) thread.Blobs
	// Fail makes the next append of the tenant fail in a way; nil = the
	// implementation cannot.
	Fail func(t *testing.T, tenant string, f Fault)
}

// Fault is a way in which an append fails that nobody can know the end of.
type Fault string

// Faults.
const (
	Lost  Fault = "the append never arrives"
	Mute  Fault = "the append happens, its answer is lost"
	Later Fault = "the append arrives after the caller was told Unavailable"
)

// Suite runs all tests.
func Suite(t *testing.T, open func(t *testing.T) Store) {
	s := open(t)
	tests := []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"append numbers without gaps and tells the truth at once", appendNumbers},
		{"what Append hands back is what Load yields", appendSettles},
		{"the wrong end is a conflict and changes nothing", conflict},
		{"bounds", bounds},
		{"bad ids", badIDs},
		{"an append is whole or not at all", atomicity},
		{"of writers with the same idea of the end one wins", writers},
		{"faults never lose and never double", faults},
		{"load from anywhere", loadFrom},
		{"load can be left", loadLeft},
		{"10,000 events in order", huge},
		{"unknown events stay as they are", unknown},
		{"watch yields what was and what comes", watch},
		{"many watchers, some slow", watchers},
		{"watch ends with its context", watchEnds},
		{"watch of a deleted thread ends", watchDeleted},
		{"list", list},
		{"a deleted thread stays deleted", deleted},
		{"tenants never see each other", tenants},
		{"blobs", blobs},
		{"a cancelled context", cancelled},
	}
	for _, c := range tests {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { c.run(t, s) })
	}
}

const tenant = "suite"

func text(s string) thread.Input {
	return thread.Input{From: "user", Blocks: []llm.Block{llm.Text(s)}}
}

func events(texts ...string) (es []thread.Event) {
	for _, s := range texts {
		es = append(es, thread.New("", text(s)))
	}
	return es
}

func opened(t *testing.T, log thread.Log, id thread.ID, texts ...string) uint64 {
	t.Helper()
	es := append([]thread.Event{thread.New("", thread.Opened{Agent: json.RawMessage(`{}`), Name: "a"})}, events(texts...)...)
	seq, err := log.Append(t.Context(), id, 0, es...)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(len(es)); seq != want {
		t.Fatalf("opened at %d, want %d", seq, want)
	}
	return seq
}

func collect(seq iter.Seq2[thread.Event, error]) (es []thread.Event, err error) {
	for e, err := range seq {
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
	return es, nil
}

// load reads a thread and checks its numbering.
func load(t *testing.T, log thread.Log, id thread.ID, from uint64) []thread.Event {
	t.Helper()
	es, err := collect(log.Load(t.Context(), id, from))
	if err != nil {
		t.Fatalf("load %s from %d: %v", id, from, err)
	}
	for i, e := range es {
		if want := max(from, 1) + uint64(i); e.Seq != want {
			t.Fatalf("load %s from %d: event %d has number %d", id, from, want, e.Seq)
		}
	}
	return es
}

// said returns the texts of the inputs.
func said(es []thread.Event) (texts []string) {
	for _, e := range es {
		if in, ok := e.Body.(thread.Input); ok {
			texts = append(texts, in.Blocks[0].Text)
		}
	}
	return texts
}

func wantSaid(t *testing.T, log thread.Log, id thread.ID, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, said(load(t, log, id, 1))); d != "" {
		t.Errorf("%s (-want +got):\n%s", id, d)
	}
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}

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

func loadFrom(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	other := thread.NewID()
	seq, oseq := opened(t, log, id), opened(t, log, other)
	random := rand.New(rand.NewPCG(3, 4))
	last := uint64(300)
	if testing.Short() {
		last = 120
	}
	for seq < last { // appends of several sizes, with another thread in between
		es := make([]string, 1+random.IntN(6))
		for i := range es {
			es[i] = fmt.Sprint(seq + 1 + uint64(i))
		}
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events(es...)...); err != nil {
			t.Fatal(err)
		}
		if random.IntN(2) == 0 {
			if oseq, err = log.Append(t.Context(), other, oseq, events("other")...); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := load(t, log, id, 0)
	if uint64(len(all)) != seq {
		t.Fatalf("%d events, want %d", len(all), seq)
	}
	for from := uint64(1); from <= seq+2; from++ {
		es := load(t, log, id, from)
		if from > seq {
			if len(es) != 0 {
				t.Errorf("load beyond the end has %d events", len(es))
			}
			continue
		}
		if d := cmp.Diff(all[from-1:], es); d != "" {
			t.Fatalf("load from %d differs:\n%s", from, d)
		}
	}
}

func loadLeft(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	opened(t, log, id, "a", "b", "c")
	for e, err := range log.Load(t.Context(), id, 1) {
		if err != nil || e.Seq != 1 {
			t.Errorf("first: %d, %v", e.Seq, err)
		}
		break
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for e, err := range log.Watch(ctx, id, 2) {
		if err != nil || e.Seq != 2 {
			t.Errorf("first: %d, %v", e.Seq, err)
		}
		break
	}
}

func huge(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	for seq < 10_000 {
		es := make([]string, min(thread.AppendMax, 10_000-int(seq)))
		for i := range es {
			es[i] = fmt.Sprint(seq + 1 + uint64(i))
		}
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events(es...)...); err != nil {
			t.Fatal(err)
		}
	}
	es := load(t, log, id, 1)
	if len(es) != 10_000 {
		t.Fatalf("%d events", len(es))
	}
	for i, text := range said(es) {
		if want := fmt.Sprint(i + 2); text != want {
			t.Fatalf("event %s says %s", want, text)
		}
	}
	if tail := load(t, log, id, 9_999); len(tail) != 2 {
		t.Errorf("the last two are %d", len(tail))
	}
}

func unknown(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	want := []thread.Event{
		thread.New("", thread.Unknown{Name: "of.the.future", V: 7, Data: json.RawMessage(`{"n":1e400, "s":"<\u0000>", "deep":[[[]]]}`)}),
		thread.New("", thread.Unknown{Name: "bare", V: 1}),
		thread.New("", thread.Unknown{Name: "no.object", V: 1, Data: json.RawMessage(`"x"`)}),
	}
	if _, err := log.Append(t.Context(), id, seq, want...); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, load(t, log, id, 2)); d != "" {
		t.Error(d)
	}
}

// follow watches until want events came, or the error.
func follow(ctx context.Context, log thread.Log, id thread.ID, from uint64, want int, each func()) ([]thread.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var es []thread.Event
	for e, err := range log.Watch(ctx, id, from) {
		if err != nil {
			return es, err
		}
		es = append(es, e)
		if each != nil {
			each()
		}
		if len(es) == want {
			return es, nil
		}
	}
	return es, errors.New("the watch ended by itself")
}

func watch(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	type result struct {
		es  []thread.Event
		err error
	}
	done := map[uint64]chan result{}
	start := func(from uint64) {
		done[from] = make(chan result, 1)
		go func() {
			es, err := follow(t.Context(), log, id, from, int(61-max(from, 1)), nil)
			done[from] <- result{es, err}
		}()
	}
	start(0) // of a thread that is not there yet
	seq := opened(t, log, id, "a")
	start(1)
	for seq < 60 {
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events(fmt.Sprint(seq))...); err != nil {
			t.Fatal(err)
		}
		if seq == 20 || seq == 40 {
			start(seq)     // of what is there
			start(seq + 5) // of what comes
		}
	}
	all := load(t, log, id, 1)
	for from, ch := range done {
		r := <-ch
		if r.err != nil {
			t.Errorf("watch from %d: %v after %d events", from, r.err, len(r.es))
			continue
		}
		if d := cmp.Diff(all[max(from, 1)-1:], r.es); d != "" {
			t.Errorf("watch from %d differs:\n%s", from, d)
		}
	}
}

func watchers(t *testing.T, s Store) {
	const n, last = 60, 200
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	var wg sync.WaitGroup
	gate := make(chan struct{}) // the slow ones stand at it from their first event on
	for i := range n {
		wg.Go(func() {
			var each func()
			if i%10 == 0 {
				each = func() { <-gate }
			}
			es, err := follow(t.Context(), log, id, 1, last, each)
			if err != nil {
				t.Errorf("watcher %d: %v after %d events", i, err, len(es))
				return
			}
			for at, e := range es {
				if e.Seq != uint64(at)+1 {
					t.Errorf("watcher %d: event %d has number %d", i, at+1, e.Seq)
					return
				}
			}
		})
	}
	for seq < last {
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events("x")...); err != nil {
			t.Error(err)
			break
		}
	}
	close(gate)
	wg.Wait()
}

func watchEnds(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	opened(t, log, id)
	for _, id := range []thread.ID{id, thread.NewID()} {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := follow(ctx, log, id, 2, 1, nil)
			got <- err
		}()
		cancel()
		select {
		case err := <-got:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the watch ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the watch does not end")
		}
	}
}

func watchDeleted(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	child := id.Sub("c")
	opened(t, log, id)
	opened(t, log, child)
	got := make(chan error, 2)
	var seen sync.WaitGroup
	seen.Add(2)
	for _, id := range []thread.ID{id, child} {
		go func() {
			_, err := follow(t.Context(), log, id, 1, 2, seen.Done)
			got <- err
		}()
	}
	seen.Wait()
	if err := log.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-got:
			wantClass(t, "the watch of a deleted thread", err, errs.NotFound)
		case <-time.After(patience):
			t.Fatal("the watch of a deleted thread does not end")
		}
	}
	_, err := follow(t.Context(), log, id, 1, 1, nil)
	wantClass(t, "a new watch of a deleted thread", err, errs.NotFound)
}

func ids(t *testing.T, log thread.Log, root thread.ID) (got []thread.ID) {
	t.Helper()
	for id, err := range log.List(t.Context(), root) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, id)
	}
	return got
}

func list(t *testing.T, s Store) {
	log := s.Log(t, tenant+"-list")
	a, b := thread.NewID(), thread.NewID()
	all := []thread.ID{a, a.Sub("x"), a.Sub("x").Sub("y"), a.Sub("x-1"), a.Sub("X_2"), b, b.Sub("x")}
	for _, id := range all {
		opened(t, log, id, "hello")
	}
	slices.Sort(all)
	for root, want := range map[thread.ID][]thread.ID{
		"":             all,
		a:              slices.DeleteFunc(slices.Clone(all), func(id thread.ID) bool { return !id.Under(a) }),
		a.Sub("x"):     {a.Sub("x"), a.Sub("x").Sub("y")},
		b.Sub("x"):     {b.Sub("x")},
		b.Sub("none"):  nil,
		thread.NewID(): nil,
	} {
		if d := cmp.Diff(want, ids(t, log, root)); d != "" {
			t.Errorf("list of %q:\n%s", root, d)
		}
	}
	if err := log.Delete(t.Context(), a.Sub("x")); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(all), func(id thread.ID) bool { return id.Under(a.Sub("x")) })
	if d := cmp.Diff(want, ids(t, log, "")); d != "" {
		t.Errorf("list after a deletion:\n%s", d)
	}
}

func deleted(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	child, unborn := id.Sub("c"), id.Sub("d").Sub("e")
	seq := opened(t, log, id, "a", "b")
	cseq := opened(t, log, child, "x")
	for range 2 {
		if err := log.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for what, append := range map[string]struct {
		id    thread.ID
		after uint64
	}{
		"at the old end":             {id, seq},
		"from the start":             {id, 0},
		"beneath, at the old end":    {child, cseq},
		"beneath, from the start":    {child, 0},
		"beneath, what never was":    {unborn, 0},
		"after an event in between":  {id, 1},
		"after what would come next": {id, seq + 1},
	} {
		_, err := log.Append(t.Context(), append.id, append.after, events("zombie")...)
		wantClass(t, "a zombie appends "+what, err, errs.NotFound)
	}
	for _, id := range []thread.ID{id, child, unborn} {
		if head, err := log.Head(t.Context(), id); head != 0 || err != nil {
			t.Errorf("head of a deleted thread: %d, %v", head, err)
		}
		if n := len(load(t, log, id, 1)); n != 0 {
			t.Errorf("%s has %d events after its deletion", id, n)
		}
	}
	if got := ids(t, log, id); got != nil {
		t.Errorf("deleted, and listed: %v", got)
	}
	if err := log.Delete(t.Context(), thread.NewID()); err != nil {
		t.Errorf("delete an unknown thread: %v", err)
	}
}

func tenants(t *testing.T, s Store) {
	id := thread.NewID()
	names := []string{"a", "b", "a.b", "a b", "*", ">", "ü", "../a", ".", "TH_a", strings.Repeat("x", 64)}
	for _, name := range names {
		log := s.Log(t, name)
		opened(t, log, id, "of "+name)
		if _, err := s.Blobs(t, name).Put(t.Context(), []byte("blob of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		log := s.Log(t, name)
		wantSaid(t, log, id, "of "+name)
		if got := ids(t, log, ""); len(got) != 1 {
			t.Errorf("tenant %q sees %v", name, got)
		}
		for _, other := range names {
			_, err := s.Blobs(t, name).Get(t.Context(), thread.Hash([]byte("blob of "+other)))
			if (err == nil) != (name == other) {
				t.Errorf("tenant %q gets the blob of %q: %v", name, other, err)
			}
		}
	}
	if err := s.Log(t, "a").Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantSaid(t, s.Log(t, "b"), id, "of b")
}

func blobs(t *testing.T, s Store) {
	b := s.Blobs(t, tenant)
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	for _, content := range [][]byte{{}, []byte("hello"), large} {
		for range 2 {
			hash, err := b.Put(t.Context(), content)
			if err != nil || hash != thread.Hash(content) {
				t.Fatalf("put %d bytes: %s, %v", len(content), hash, err)
			}
			got, err := b.Get(t.Context(), hash)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("get %d bytes: %d, %v", len(content), len(got), err)
			}
		}
	}
	hash := thread.Hash(large)
	for _, c := range []struct {
		off  int64
		n    int
		want int
		eof  bool
	}{{0, 10, 10, false}, {1 << 20, 1 << 20, 1 << 20, false}, {3<<20 - 5, 10, 5, true}, {3 << 20, 10, 0, true}, {1 << 40, 10, 0, true}} {
		p := make([]byte, c.n)
		n, size, err := b.ReadAt(t.Context(), hash, p, c.off)
		if n != c.want || size != 3<<20 || errors.Is(err, io.EOF) != c.eof || err != nil && !c.eof {
			t.Errorf("read %d at %d: %d of %d, %v", c.n, c.off, n, size, err)
		}
		if n > 0 && !bytes.Equal(p[:n], large[c.off:c.off+int64(n)]) {
			t.Errorf("read %d at %d: other bytes", c.n, c.off)
		}
	}
	_, _, err := b.ReadAt(t.Context(), hash, make([]byte, 1), -1)
	wantClass(t, "read at -1", err, errs.Invalid)
	_, err = b.Get(t.Context(), strings.Repeat("0", 64))
	wantClass(t, "no such blob", err, errs.NotFound)
	for _, bad := range []string{"", "x", strings.Repeat("A", 64), strings.Repeat("0", 63) + "/", "../../" + strings.Repeat("0", 58), hash + "\n"} {
		_, err = b.Get(t.Context(), bad)
		wantClass(t, fmt.Sprintf("get %q", bad), err, errs.Invalid)
		_, _, err = b.ReadAt(t.Context(), bad, make([]byte, 1), 0)
		wantClass(t, fmt.Sprintf("read %q", bad), err, errs.Invalid)
	}
	_, err = b.Put(t.Context(), make([]byte, thread.BlobBytesMax+1))
	wantClass(t, "a byte over the bound", err, errs.Limit)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20 {
				content := fmt.Appendf(nil, "shared %d", i)
				hash, err := b.Put(t.Context(), content)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := b.Get(t.Context(), hash); err != nil || !bytes.Equal(got, content) {
					t.Errorf("get what was just put: %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

func cancelled(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	es := events("x")
	if _, err := log.Append(ctx, id, seq, es...); err == nil {
		t.Error("append with a cancelled context")
	} else {
		wantClass(t, "append with a cancelled context", err, errs.Unavailable)
	}
	if _, err := log.Append(t.Context(), id, seq, es...); err != nil {
		t.Errorf("the same append again: %v", err)
	}
	wantSaid(t, log, id, "x")
	if _, err := collect(log.Load(ctx, id, 1)); err == nil {
		t.Error("load with a cancelled context")
	}
	if _, err := s.Blobs(t, tenant).Put(ctx, []byte("y")); err == nil {
		t.Error("put with a cancelled context")
	}
}
