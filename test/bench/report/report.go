// Package report writes what benchmarks measure as JSON lines.
//
//	r := report.New(os.Stdout)
//	p50 := r.Millis("exec round trip", durations, "p50 <= 1 ms", "")
//
// Every line names the machine, the commit and the sample. A Reporter belongs
// to one goroutine.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// line is one measured number. P50 and so on are in Unit; Value is for numbers
// that are no sample.
type line struct {
	Time    string   `json:"time"`
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Name    string   `json:"name"`
	Unit    string   `json:"unit"`
	N       int      `json:"n,omitempty"`
	P50     *float64 `json:"p50,omitempty"`
	P99     *float64 `json:"p99,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	Target  string   `json:"target,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// Reporter writes lines.
type Reporter struct {
	w               io.Writer
	commit, machine string
}

// New returns a Reporter that writes to w.
func New(w io.Writer) *Reporter { return &Reporter{w, Commit(), Machine()} }

func (r *Reporter) emit(l line) {
	l.Time, l.Commit, l.Machine = time.Now().UTC().Format(time.RFC3339), r.commit, r.machine
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a broken program
	}
	fmt.Fprintln(r.w, string(text))
}

// Millis writes a distribution in milliseconds and returns its median.
func (r *Reporter) Millis(name string, ds []time.Duration, target, note string) float64 {
	return r.sample(name, "ms", time.Millisecond, ds, target, note)
}

// Micros is Millis in microseconds.
func (r *Reporter) Micros(name string, ds []time.Duration, target, note string) float64 {
	return r.sample(name, "µs", time.Microsecond, ds, target, note)
}

func (r *Reporter) sample(name, unit string, of time.Duration, ds []time.Duration, target, note string) float64 {
	vs := make([]float64, len(ds))
	for i, d := range ds {
		vs[i] = float64(d) / float64(of)
	}
	slices.Sort(vs)
	p50, p99, top := quantile(vs, 0.5), quantile(vs, 0.99), vs[len(vs)-1]
	r.emit(line{Name: name, Unit: unit, N: len(ds), P50: round(p50), P99: round(p99), Max: round(top), Target: target, Note: note})
	return p50
}

// Value writes a number that is no sample.
func (r *Reporter) Value(name string, v float64, unit, target, note string) {
	r.emit(line{Name: name, Unit: unit, Value: round(v), Target: target, Note: note})
}

// Skipped writes that something could not be measured here, and why.
func (r *Reporter) Skipped(name, unit, why string) {
	r.emit(line{Name: name, Unit: unit, Note: "skipped: " + why})
}

// quantile of a sorted sample, the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1))]
}

func round(v float64) *float64 {
	r := math.Round(v*1000) / 1000
	return &r
}

// Commit names what is measured, "unknown" outside of a repository.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Machine describes the hardware without naming the host.
func Machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range bytes.Lines(info) {
			if name, v, ok := strings.Cut(string(l), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var u syscall.Utsname
	_ = syscall.Uname(&u)
	release := make([]byte, 0, len(u.Release))
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		release = append(release, byte(c))
	}
	major, _, _ := strings.Cut(string(release), "-")
	return fmt.Sprintf("%d x %s, linux %s, %s", runtime.NumCPU(), model, major, runtime.Version())
}
