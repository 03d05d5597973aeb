package pair

import (
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
	e := NewEncoder(KindSpawn, 3)
	e.Spawn(sampleSpawn())
	k, request, d, err := DecodeHeader(e.b)
	if err != nil || k != KindSpawn || request != 3 {
		t.Fatal(k, request, err)
	}
	s, err := d.Spawn()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleSpawn(), s); diff != "" {
		t.Error(diff)
	}
	e = NewEncoder(KindEntry, 0)
	in := sampleEntry()
	e.Entry(&in, fdStdout|fdFeed)
	_, _, d, _ = DecodeHeader(e.b)
	out, mask, err := d.Entry()
	if diff := cmp.Diff(in, out); diff != "" || err != nil || mask != fdStdout|fdFeed {
		t.Error(diff, err, mask)
	}
}

func TestMessages_refuseWhatIsNotWhole(t *testing.T) {
	e := NewEncoder(KindSpawn, 3)
	e.Spawn(sampleSpawn())
	for n := range e.b {
		if _, _, d, err := DecodeHeader(e.b[:n]); err == nil {
			if _, err := d.Spawn(); err == nil {
				t.Errorf("the first %d of %d bytes pass", n, len(e.b))
			}
		}
	}
	_, _, d, _ := DecodeHeader(append(e.b, 0))
	if _, err := d.Spawn(); err == nil {
		t.Error("a byte behind the message passes")
	}
	huge := &Encoder{}
	huge.U32(1 << 31)
	if list := (&Decoder{b: huge.b}).Strs(); list != nil {
		t.Error("a list longer than its message passes")
	}
	for name, change := range map[string]func(*Spawn){
		"no key": func(s *Spawn) { s.Key = "" }, "long key": func(s *Spawn) { s.Key = strings.Repeat("k", 129) }, "no path": func(s *Spawn) { s.Path = "" },
		"no argv": func(s *Spawn) { s.Argv = nil }, "long info": func(s *Spawn) { s.Info = strings.Repeat("i", infoBytesMax+1) },
	} {
		s := sampleSpawn()
		change(s)
		e := NewEncoder(KindSpawn, 1)
		e.Spawn(s)
		_, _, d, _ := DecodeHeader(e.b)
		if _, err := d.Spawn(); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// FuzzDecoders: neither side may trip over a message.
func FuzzDecoders(f *testing.F) {
	e := NewEncoder(KindSpawn, 3)
	e.Spawn(sampleSpawn())
	f.Add(e.Bytes())
	e = NewEncoder(KindEntry, 0)
	in := sampleEntry()
	e.Entry(&in, 1)
	f.Add(e.Bytes())
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, _, dec, err := DecodeHeader(msg)
		if err != nil {
			return
		}
		rest := dec.b
		if s, err := (&Decoder{b: rest}).Spawn(); err == nil && (s.Key == "" || len(s.Argv) == 0) {
			t.Fatalf("%+v", s)
		}
		_, _, _ = (&Decoder{b: rest}).Entry()
		_, _ = (&Decoder{b: rest}).Exit()
	})
}
