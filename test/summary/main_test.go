package main

import (
	"os"
	"slices"
	"testing"
)

// What a package said when its process died belongs to the test that ran then,
// which has no end of its own.
func TestTake_namesTheTestThatWasCutOff(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = null
	t.Cleanup(func() {
		os.Stdout = stdout
		null.Close()
	})
	r := run{output: map[string][]string{}, cut: map[string]bool{}}
	for _, e := range []event{
		{Action: "output", Package: "p", Test: "TestA", Output: "a\n"},
		{Action: "pass", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestS", Output: "s_test.go:1: not here\n"},
		{Action: "skip", Package: "p", Test: "TestS"},
		{Action: "output", Package: "p", Test: "TestB", Output: "goroutine 1 [chan receive]:\n"},
		{Action: "output", Package: "p", Output: "FAIL p 3s\n"},
		{Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	if !slices.Equal(r.failed, []string{"p TestB"}) || !r.cut["p TestB"] || r.broken != 0 {
		t.Errorf("failed %q, cut off %v, %d packages broken", r.failed, r.cut, r.broken)
	}
	if r.close() != 1 {
		t.Error("a package that died is no success")
	}
}
