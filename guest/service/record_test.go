package service

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/guest/wire"
)

func TestFailures_backOffAndCrashLoop(t *testing.T) {
	var f failures
	now := time.Unix(1_800_000_000, 0)
	for i, want := range []time.Duration{100, 200, 400, 800} {
		wait, loop := f.add(now, time.Millisecond)
		if wait != want*time.Millisecond || loop {
			t.Errorf("end %d: %s, %v", i, wait, loop)
		}
		now = now.Add(time.Second)
	}
	for range 3 { // the fifth, and those of the slow tries
		if wait, loop := f.add(now, time.Millisecond); wait != loopRetry || !loop {
			t.Errorf("%s, %v", wait, loop)
		}
		now = now.Add(loopRetry)
	}
	now = now.Add(time.Hour)
	if wait, loop := f.add(now, steadyAfter); wait != backoffMin || loop {
		t.Errorf("after a good run: %s, %v", wait, loop)
	}
}

// An exit with 0 is an empty message; it is one, for who comes after.
func TestRecord_anExitWithZeroIsKept(t *testing.T) {
	r, err := newRecord(&wire.ServiceDeclaration{Name: "once", Command: []byte("true")}, "boot")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, exit := range []*wire.Exit{nil, {}, {Code: 3}} {
		if r.LastExit = nil; exit != nil {
			if r.LastExit, err = proto.Marshal(exit); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.save(dir, "once"); err != nil {
			t.Fatal(err)
		}
		got, _, err := readRecord(recordFile(dir, "once"))
		if err != nil {
			t.Fatal(err)
		}
		if (got.LastExit != nil) != (exit != nil) || endedWell(got) != (exit != nil && exit.Code == 0) {
			t.Errorf("%v came back as %v", exit, got.LastExit)
		}
	}
}

func FuzzRecord(f *testing.F) {
	r, err := newRecord(&wire.ServiceDeclaration{Name: "web", Command: []byte("true")}, "boot")
	if err != nil {
		f.Fatal(err)
	}
	r.Next, r.Runs = 2, []span{{0, 0, 5}, {1, 5, -1}}
	good, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"id":"0011223344556677","runs":[{"base":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, d, err := parseRecord(data, "web")
		if err != nil {
			return
		}
		if d.Name != "web" || r.logEnd() < 0 {
			t.Fatalf("%+v", r)
		}
		r.prune()
	})
}
