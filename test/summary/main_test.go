package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a package said when its process died belongs to the test that ran then,
// which has no end of its own.
func TestTake_namesTheTestThatWasCutOff(t *testing.T) {
	quiet(t)
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

// What is said last of a failed test is what it wrote itself, and not much of it.
func TestSaid(t *testing.T) {
	lines := []string{"=== RUN   TestA\n", "    a_test.go:3: first\n", "        goes on\n"}
	for range 20 {
		lines = append(lines, "    a_test.go:7: "+strings.Repeat("é", 400)+"\n", "        time=now msg=request\n")
	}
	lines = append(lines, "--- FAIL: TestA (1s)\n")
	got := said(lines)
	if len(got) != saidMax {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	for _, l := range got {
		if len(l) > saidBytes+4 || !utf8.ValidString(l) || !strings.HasPrefix(l, "    a_test.go:7: é") {
			t.Errorf("a line is %q", l)
		}
	}
	if got := said(lines[:3]); !slices.Equal(got, lines[1:2]) {
		t.Errorf("it says %q", got)
	}
}

// A race detector that broke says nothing about the package, unless a test has failed
// before; and where it is not asked for, a package that died is a failure.
func TestTake_theDetectorBroke(t *testing.T) {
	quiet(t)
	const said = "ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 (tid=1)\n"
	for name, tt := range map[string]struct {
		forgives bool
		fails    bool // a test, before
		said     string
		again    int
		code     int
	}{
		"it broke":                 {true, false, said, 1, 0},
		"not asked for":            {false, false, said, 0, 1},
		"after a failure":          {true, true, said, 0, 1},
		"after a race":             {true, false, "WARNING: DATA RACE\n" + said, 0, 1},
		"a race":                   {true, false, "WARNING: DATA RACE\n", 0, 1},
		"a panic that is the code": {true, false, "panic: oh\n", 0, 1},
	} {
		r := run{output: map[string][]string{}, cut: map[string]bool{}, forgives: tt.forgives, passed: 1}
		if tt.fails {
			r.take(event{Action: "fail", Package: "p", Test: "TestA"})
		}
		r.take(event{Action: "output", Package: "p", Test: "TestB", Output: tt.said})
		r.take(event{Action: "fail", Package: "p"})
		if code := r.close(); len(r.detector) != tt.again || code != tt.code {
			t.Errorf("%s: again %q, status %d", name, r.detector, code)
		}
	}
}

// quiet throws away what is printed in a test.
func quiet(t *testing.T) {
	t.Helper()
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
}
