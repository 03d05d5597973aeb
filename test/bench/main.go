// Command bench measures what docs/spec.md promises, beside peers in the same
// run, and prints one JSON line per number.
//
//	make bench            # or: go run ./test/bench -skete bin/skete [-only exec] [-quick]
//
// Every line names the machine, the commit and the sample; times are whole
// milliseconds as floats. Ratios to a peer stand beside absolute numbers,
// because machines differ and shared machines drift. Nothing here asserts.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// line is one measured number. P50 and so on are in Unit; Value is for
// numbers that are no sample.
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

type bench struct {
	skete        string
	commit, host string
	quick        bool
	ctx          context.Context
}

func main() {
	b := &bench{commit: commit(), host: machine()}
	flag.StringVar(&b.skete, "skete", "bin/skete", "the program to measure")
	only := flag.String("only", "", "run only the measurement of this name")
	flag.BoolVar(&b.quick, "quick", false, "a tenth of the samples")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	if err := b.run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func (b *bench) run(only string) error {
	all := []struct {
		name string
		do   func(*server) error
	}{
		{"create", b.create},
		{"exec", b.exec},
		{"stat", b.stat},
		{"stdout", b.stdout},
		{"disconnects", b.disconnects},
		{"burst", b.burst},
	}
	var failed []error
	for _, m := range all {
		if only != "" && m.name != only {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", m.name)
		if err := b.with(m.do); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return errors.Join(failed...)
}

// with gives each measurement a server of its own, so that none inherits
// another's garbage.
func (b *bench) with(do func(*server) error) error {
	s, err := b.start()
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.stop())
}

// count is the size of a sample.
func (b *bench) count(n int) int {
	if b.quick {
		return max(n/10, 3)
	}
	return n
}

func (b *bench) emit(l line) {
	l.Time, l.Commit, l.Machine = time.Now().UTC().Format(time.RFC3339), b.commit, b.host
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a broken program
	}
	fmt.Println(string(text))
}

// sample emits a distribution of durations in milliseconds and returns its median.
func (b *bench) sample(name string, ds []time.Duration, target, note string) float64 {
	ms := make([]float64, len(ds))
	for i, d := range ds {
		ms[i] = float64(d) / float64(time.Millisecond)
	}
	slices.Sort(ms)
	p50, p99, top := quantile(ms, 0.5), quantile(ms, 0.99), ms[len(ms)-1]
	b.emit(line{Name: name, Unit: "ms", N: len(ms), P50: round(p50), P99: round(p99), Max: round(top), Target: target, Note: note})
	return p50
}

func (b *bench) value(name string, v float64, unit, target, note string) {
	b.emit(line{Name: name, Unit: unit, Value: round(v), Target: target, Note: note})
}

// quantile of a sorted sample, the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func round(v float64) *float64 {
	r := math.Round(v*1000) / 1000
	return &r
}

// timed runs f and returns how long it took.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// machine describes the hardware without naming the host.
func machine() string {
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
