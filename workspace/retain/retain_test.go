package retain_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/retain"
	"github.com/skete-dev/skete/workspace/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const day = 24 * time.Hour

const now = 1000 * day // by the history's clock

func rev(n uint64, age time.Duration, actor, label string) retain.Revision {
	return retain.Revision{N: n, Clock: (now - age).Microseconds(), Actor: actor, Label: label}
}

func TestOrder(t *testing.T) {
	revs := []retain.Revision{
		rev(1, 90*day, "user:anna", "before the talk"),
		rev(2, 80*day, "user", ""),
		rev(3, 60*day, "agent", "a label of the agent"),
		rev(4, 20*day, "user:anna", ""),
		rev(5, 20*day, "agent", ""),
		{N: 6, Clock: (now - 60*day).Microseconds(), Actor: "user", Label: "undo of revision 5", Undoes: 4},
		rev(7, 10*day, "userland", ""),
		rev(8, time.Hour, "outside", ""),
		rev(9, time.Hour, "agent", ""),
		rev(10, -time.Hour, "agent", ""), // ahead of the history's own clock
	}
	for name, c := range map[string]struct {
		p    retain.Policy
		must []uint64
		want []uint64
	}{
		"defaults":     {retain.Policy{}, nil, []uint64{10, 1, 9, 8, 4}},
		"must":         {retain.Policy{}, []uint64{5, 3}, []uint64{10, 5, 3, 1, 9, 8, 4}},
		"keep":         {retain.Policy{Keep: func(r retain.Revision) bool { return r.N == 2 }}, nil, []uint64{10, 2, 1, 9, 8, 4}},
		"short times":  {retain.Policy{All: time.Minute, Borders: day}, nil, []uint64{10, 1}},
		"longer times": {retain.Policy{All: 15 * day, Borders: 100 * day}, nil, []uint64{10, 1, 9, 8, 7, 6, 4, 2}},
	} {
		var got []uint64
		for _, x := range retain.Order(revs, c.p, now, c.must...) {
			got = append(got, x.N)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := retain.Order(nil, retain.Policy{}, now); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestPolicy_bytes(t *testing.T) {
	for workspace, want := range map[int64]int64{0: 256 << 20, 1 << 30: 2 << 30, 10 << 30: 5 << 30} {
		if got := (retain.Policy{}).Bytes(workspace); got != want {
			t.Errorf("%d: %d, want %d", workspace, got, want)
		}
	}
	if got := (retain.Policy{BytesMax: 7}).Bytes(1 << 30); got != 7 {
		t.Error(got)
	}
}

// The budget takes the oldest without a name first, and what must stay never;
// what no kept revision needs is not marked.
func TestChoose(t *testing.T) {
	store, err := object.Open(t.TempDir(), object.Config{})
	must(t, err)
	defer store.Close()
	put := func(n byte) (root, blob object.Hash) {
		data := make([]byte, 10_000)
		random := rand.NewChaCha8([32]byte{n})
		_, _ = random.Read(data)
		blob, err := store.Put(object.Blob, data)
		must(t, err)
		text, err := tree.Encode([]tree.Entry{{Name: "f", Type: tree.File, Size: int64(len(data)), Hash: blob}})
		must(t, err)
		root, err = store.Put(object.Tree, text)
		must(t, err)
		return root, blob
	}
	var revs []retain.Revision
	blobs := map[uint64]object.Hash{}
	var each int64
	for n := uint64(1); n <= 6; n++ {
		r := rev(n, time.Hour, "agent", "")
		if n == 2 {
			r = rev(n, time.Hour, "user", "named")
		}
		r.Root, blobs[n] = put(byte(n))
		revs = append(revs, r)
		each = max(each, store.Length(r.Root)+store.Length(blobs[n]))
	}
	for name, c := range map[string]struct {
		budget int64
		must   uint64
		want   []uint64
	}{
		"no bound":           {0, 0, []uint64{1, 2, 3, 4, 5, 6}},
		"room for three":     {3*each + 10, 0, []uint64{2, 5, 6}},
		"for the newest":     {1, 0, []uint64{6}},
		"and what must stay": {1, 3, []uint64{3, 6}},
	} {
		m := retain.NewMarker(store)
		kept, err := retain.Choose(t.Context(), m, retain.Order(revs, retain.Policy{}, now, c.must), c.budget, nil)
		must(t, err)
		var got []uint64
		for _, r := range kept {
			got = append(got, r.N)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for n, h := range blobs {
			if m.Has(h) != slices.Contains(c.want, n) {
				t.Errorf("%s: revision %d marked: %v", name, n, m.Has(h))
			}
		}
	}
	if _, err := retain.NewMarker(store).Tree(t.Context(), object.Hash{1}, 0, true); err == nil {
		t.Error("a tree that is not there was marked")
	}
}

// The clock of a history goes on between processes, by no more than can be
// believed, and never back.
func TestClock(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := retain.Revision{N: 3, Time: at, Clock: (5 * time.Hour).Microseconds()}
	for name, c := range map[string]struct {
		last retain.Revision
		now  time.Time
		want time.Duration
	}{
		"the first":        {retain.Revision{}, at, 0},
		"a minute later":   {last, at.Add(time.Minute), 5*time.Hour + time.Minute},
		"a night later":    {last, at.Add(9 * time.Hour), 5 * time.Hour},
		"moved a year on":  {last, at.AddDate(1, 0, 0), 5 * time.Hour},
		"moved back":       {last, at.AddDate(-1, 0, 0), 5 * time.Hour},
		"no clock to know": {last, time.Time{}, 5 * time.Hour},
	} {
		elapsed := 7 * time.Minute
		clock := retain.NewClock(func() time.Duration { return elapsed }, c.last, c.now)
		if got := clock.Now(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		elapsed += 48 * time.Hour
		if got := clock.Stamp(c.last); got != (c.want + 48*time.Hour).Microseconds() {
			t.Errorf("%s, 48 hours later: %d", name, got)
		}
		if got := clock.Stamp(retain.Revision{Clock: 1 << 50}); got != 1<<50 {
			t.Errorf("%s: it goes back to %d", name, got)
		}
	}
}
