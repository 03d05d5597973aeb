// Command summary reads `go test -json` and prints what a person wants to
// know: a line per package, the output of what failed, the slowest tests, every
// skipped test with its reason, and the counts. Its exit status is 1 when
// anything failed or nothing ran.
//
//	go test -json ./... | go run ./test/summary
//	go test -race -json ./... | go run ./test/summary -again FILE
//
// With -again, a package in which the race detector itself broke, which says nothing
// about the package, is no failure: its name is written to FILE, to be run again.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
)

type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type run struct {
	output                  map[string][]string // by package/test
	failed, skipped         []string
	cut                     map[string]bool // of the failed, those that their process did not live to end
	detector                []string        // packages in which the race detector broke
	forgives                bool            // which is no failure then
	slow                    []timed
	passed, broken, ignored int
}

type timed struct {
	id      string
	seconds float64
}

// Of the tests that took slowFrom seconds, so many are named.
const (
	slowFrom = 20
	slowMax  = 15
)

// So many lines of a failed test are said again at the end: the last ones, or,
// of one that was cut off, the first, which say where it stood.
const linesAgain = 40

// And behind all that so many lines of its own, each of at most so many bytes.
const (
	saidMax   = 8
	saidBytes = 300
)

// What the race detector says when a check of its own fails, and of a race.
const (
	saysBroken = "ThreadSanitizer: CHECK failed"
	saysRace   = "WARNING: DATA RACE"
)

func main() {
	again := flag.String("again", "", "write the packages in which the race detector itself broke to this `FILE`")
	flag.Parse()
	r := run{output: map[string][]string{}, cut: map[string]bool{}, forgives: *again != ""}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // build errors of an older go
			continue
		}
		r.take(e)
	}
	code := r.close()
	if r.forgives {
		if err := os.WriteFile(*again, []byte(strings.Join(r.detector, "\n")), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func (r *run) take(e event) {
	id := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[id] = append(r.output[id], e.Output)
	case "build-output":
		fmt.Print(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
			return
		}
		r.endTest(e, id)
	}
}

func (r *run) endPackage(e event) {
	if e.Action == "fail" && r.forgives && r.detectorBroke(e.Package) {
		r.detector = append(r.detector, e.Package)
		fmt.Printf("again %7.1fs  %s: the race detector itself broke\n", e.Elapsed, e.Package)
		return
	}
	if e.Action == "fail" {
		r.cutOff(e.Package)
	}
	if e.Action == "fail" && !r.failedIn(e.Package) {
		r.broken++ // it did not build, or died outside a test
		fmt.Print(strings.Join(r.output[e.Package+" "], ""))
	}
	if e.Action != "skip" { // no test files
		fmt.Printf("%-5s %7.1fs  %s\n", e.Action, e.Elapsed, e.Package)
	}
}

// detectorBroke reports whether that, and nothing else, ended a package.
func (r *run) detectorBroke(pkg string) bool {
	if r.failedIn(pkg) {
		return false
	}
	broke := false
	for id, lines := range r.output {
		if !strings.HasPrefix(id, pkg+" ") {
			continue
		}
		for _, l := range lines {
			if strings.Contains(l, saysRace) {
				return false
			}
			broke = broke || strings.Contains(l, saysBroken)
		}
	}
	return broke
}

// cutOff finds the tests of a package that never ended: its process has died, by
// the time limit or a panic, and what it said then is in their output.
func (r *run) cutOff(pkg string) {
	for _, id := range slices.Sorted(maps.Keys(r.output)) {
		test, ok := strings.CutPrefix(id, pkg+" ")
		if !ok || test == "" || slices.Contains(r.failed, id) {
			continue
		}
		r.failed, r.cut[id] = append(r.failed, id), true
		fmt.Printf("--- CUT OFF %s\n%s", id, strings.Join(r.output[id], ""))
	}
}

func (r *run) failedIn(pkg string) bool {
	for _, id := range r.failed {
		if strings.HasPrefix(id, pkg+" ") {
			return true
		}
	}
	return false
}

func (r *run) endTest(e event, id string) {
	if e.Elapsed >= slowFrom && !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, timed{id, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		r.passed++
		delete(r.output, id)
	case "fail":
		r.failed = append(r.failed, id)
		fmt.Printf("--- FAIL %s\n%s", id, strings.Join(r.output[id], ""))
	case "skip":
		r.ignored++
		r.skipped = append(r.skipped, fmt.Sprintf("skipped: %s: %s", id, reason(r.output[id])))
		delete(r.output, id)
	}
}

// reason is what the test said when it skipped.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		line := strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok = strings.Cut(text, ": "); ok {
				return text
			}
		}
		return line
	}
	return "no reason given"
}

// again says at the end what failed: of a long run, often only that is kept.
func (r *run) again() {
	for _, id := range r.failed {
		lines := r.output[id]
		switch more := len(lines) - linesAgain; {
		case more > 0 && r.cut[id]:
			lines = append(slices.Clip(lines[:linesAgain]), fmt.Sprintf("    (%d lines after)\n", more))
		case more > 0:
			lines = append([]string{fmt.Sprintf("    (%d lines before)\n", more)}, lines[more:]...)
		}
		fmt.Printf("failed: %s\n%s", id, strings.Join(lines, ""))
	}
	for _, id := range r.failed {
		fmt.Printf("failed: %s\n%s", id, strings.Join(said(r.output[id]), ""))
	}
}

// said are the last lines that a test itself wrote, without what its servers logged.
func said(lines []string) []string {
	var own []string
	for _, l := range lines {
		if len(l) > saidBytes {
			l = strings.ToValidUTF8(l[:saidBytes], "") + "…\n"
		}
		if ofTest.MatchString(l) {
			own = append(own, l)
		}
	}
	return own[max(0, len(own)-saidMax):]
}

// ofTest is what t.Log and t.Error write.
var ofTest = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

func (r *run) close() int {
	slices.SortFunc(r.slow, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range r.slow[:min(slowMax, len(r.slow))] {
		fmt.Printf("slow  %7.1fs  %s\n", t.seconds, t.id)
	}
	sort.Strings(r.skipped)
	for _, line := range r.skipped {
		fmt.Println(line)
	}
	r.again()
	bad := len(r.failed) + r.broken
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.passed, bad, r.ignored)
	if bad > 0 || r.passed == 0 {
		return 1
	}
	return 0
}
