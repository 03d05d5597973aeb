package threadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

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
