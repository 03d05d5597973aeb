package initd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/guest/initd/pair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzRequests: init survives every request of a supervise that has gone mad.
func FuzzRequests(f *testing.F) {
	for k := pair.KindAdopt; k <= pair.KindShutdown; k++ {
		e := pair.NewEncoder(k, 1)
		e.U64(1)
		e.I64(2)
		e.I64(3)
		f.Add(e.Bytes())
	}
	e := pair.NewEncoder(pair.KindSignal, 1)
	e.U64(1)
	e.U8(0)
	e.U8(1)
	e.U8(1)
	f.Add(e.Bytes())
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > 0 && (pair.Kind(msg[0]) == pair.KindSpawn || pair.Kind(msg[0]) == pair.KindShutdown) {
			return // those act on the world; their decoding has a fuzz target of its own
		}
		d := &daemon{log: &logger{}, byKey: map[string]*record{}, byID: map[uint64]*record{}, byPID: map[int]*record{}}
		d.insert(&record{Entry: pair.Entry{Key: "k", Auto: true, State: pair.Exited}, fds: noFDs})
		c := &conn{d: d, closed: true}
		_ = c.handle(msg, nil)
		if len(d.byKey) != len(d.byID) {
			t.Fatalf("%d keys, %d entries", len(d.byKey), len(d.byID))
		}
	})
}

func TestJournal_namesTheKeysOfEarlierBoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	j, lost, err := openJournal(path)
	if err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	for _, k := range []string{"a", "b", "c"} {
		if err := j.add(k); err != nil {
			t.Fatal(err)
		}
	}
	j.drop("b")
	if _, err := j.f.WriteString("+torn"); err != nil { // a crash in the middle of a line
		t.Fatal(err)
	}
	for range 2 {
		if _, lost, err = openJournal(path); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "c"}, lost); diff != "" {
			t.Error(diff)
		}
	}
	if data, _ := os.ReadFile(path); string(data) != "+a\n+c\n" {
		t.Errorf("rewritten as %q", data)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("+a\n-a\n+b\n"))
	f.Add([]byte("+a\n+a\n\n-\nx\n+torn"))
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := map[string]bool{}
		for _, k := range parseJournal(data) {
			if k == "" || len(k) > pair.KeyBytesMax || seen[k] {
				t.Fatalf("%q", k)
			}
			seen[k] = true
		}
	})
}
