package initd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sampleSpawn() *Spawn {
	return &Spawn{
		Key: "k", Path: "/bin/sh", Argv: []string{"sh", "-c", ""}, Env: []string{"A=b"}, Dir: "/", Switch: true, UID: 1000, GID: 1001,
		Pty: true, Cols: 80, Rows: 24, Stdin: true, Rlimits: []Rlimit{{7, 1, 2}}, Info: "note",
	}
}

func sampleEntry() Entry {
	return Entry{
		ID: 9, Key: "k", Auto: true, PID: 77, Argv: []string{"a", "b"}, Dir: "/d", Info: "i", Pty: true, State: Exited, StartedUnixNs: 1, StartedMonoNs: 2,
		EndedUnixNs: 3, Status: 0x100, Cause: CauseTimeout, CauseSignal: 15, Evicted: true, OutSize: 4, ErrSize: 5, FeedBase: 6, FeedEnded: true,
	}
}

func TestMessages_comeBackAsTheyWere(t *testing.T) {
	e := newEncoder(kindSpawn, 3)
	e.spawn(sampleSpawn())
	k, request, d, err := decodeHeader(e.b)
	if err != nil || k != kindSpawn || request != 3 {
		t.Fatal(k, request, err)
	}
	s, err := d.spawn()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleSpawn(), s); diff != "" {
		t.Error(diff)
	}
	e = newEncoder(kindEntry, 0)
	in := sampleEntry()
	e.entry(&in, fdStdout|fdFeed)
	_, _, d, _ = decodeHeader(e.b)
	out, mask, err := d.entry()
	if diff := cmp.Diff(in, out); diff != "" || err != nil || mask != fdStdout|fdFeed {
		t.Error(diff, err, mask)
	}
}

func TestMessages_refuseWhatIsNotWhole(t *testing.T) {
	e := newEncoder(kindSpawn, 3)
	e.spawn(sampleSpawn())
	for n := range e.b {
		if _, _, d, err := decodeHeader(e.b[:n]); err == nil {
			if _, err := d.spawn(); err == nil {
				t.Errorf("the first %d of %d bytes pass", n, len(e.b))
			}
		}
	}
	_, _, d, _ := decodeHeader(append(e.b, 0))
	if _, err := d.spawn(); err == nil {
		t.Error("a byte behind the message passes")
	}
	huge := &encoder{}
	huge.u32(1 << 31)
	if list := (&decoder{b: huge.b}).strs(); list != nil {
		t.Error("a list longer than its message passes")
	}
	for name, change := range map[string]func(*Spawn){
		"no key": func(s *Spawn) { s.Key = "" }, "long key": func(s *Spawn) { s.Key = strings.Repeat("k", 129) }, "no path": func(s *Spawn) { s.Path = "" },
		"no argv": func(s *Spawn) { s.Argv = nil }, "long info": func(s *Spawn) { s.Info = strings.Repeat("i", infoBytesMax+1) },
	} {
		s := sampleSpawn()
		change(s)
		e := newEncoder(kindSpawn, 1)
		e.spawn(s)
		_, _, d, _ := decodeHeader(e.b)
		if _, err := d.spawn(); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// FuzzMessages: init must survive every message, and supervise too.
func FuzzMessages(f *testing.F) {
	e := newEncoder(kindSpawn, 3)
	e.spawn(sampleSpawn())
	f.Add(e.b)
	e = newEncoder(kindEntry, 0)
	in := sampleEntry()
	e.entry(&in, 1)
	f.Add(e.b)
	for k := kindAdopt; k <= kindShutdown; k++ {
		e := newEncoder(k, 1)
		change(1, 2, 3)(e)
		f.Add(e.b)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		k, _, dec, err := decodeHeader(msg)
		if err != nil {
			return
		}
		if k != kindSpawn && k != kindShutdown { // those act on the world; their decoding is below
			d := &daemon{log: &logger{}, byKey: map[string]*record{}, byID: map[uint64]*record{}, byPID: map[int]*record{}}
			d.insert(&record{Entry: Entry{Key: "k", Auto: true, State: Exited}, fds: noFDs})
			c := &conn{d: d, closed: true}
			_ = c.handle(msg, nil)
		}
		rest := dec.b
		_, _ = (&decoder{b: rest}).spawn()
		_, _, _ = (&decoder{b: rest}).entry()
		_, _ = (&decoder{b: rest}).exit()
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
		if j, lost, err = openJournal(path); err != nil {
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
			if k == "" || len(k) > keyBytesMax || seen[k] {
				t.Fatalf("%q", k)
			}
			seen[k] = true
		}
	})
}
