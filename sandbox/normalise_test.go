package sandbox_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

var limits = sandbox.Limits{CPUsMax: 4, MemoryMBMax: 4096, DiskMBMax: 10000, PidsMax: 1000, TTLMax: time.Hour, IdleTimeoutMax: time.Hour}

func many(n int, value string) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("K%d", i)] = value
	}
	return m
}

func TestNormalise_refuses(t *testing.T) {
	for field, specs := range map[string][]sandbox.Spec{
		"cpus":         {{CPUs: math.NaN()}, {CPUs: math.Inf(1)}, {CPUs: math.Inf(-1)}, {CPUs: -1}, {CPUs: 0.01}, {CPUs: 4.1}},
		"memory":       {{MemoryMB: -1}, {MemoryMB: 1}, {MemoryMB: 4097}, {MemoryMB: math.MaxInt}, {MemoryMB: math.MinInt}},
		"disk":         {{DiskMB: -1}, {DiskMB: 10001}, {DiskMB: math.MaxInt}},
		"pids":         {{PidsMax: -1}, {PidsMax: 1}, {PidsMax: 1001}},
		"ttl":          {{TTL: -1}, {TTL: time.Millisecond}, {TTL: time.Hour + 1}, {TTL: math.MaxInt64}},
		"idle timeout": {{IdleTimeout: -1}, {IdleTimeout: 2 * time.Hour}},
		"name": {
			{Name: "a\nb"},
			{Name: "a\x00b"},
			{Name: ".."},
			{Name: "."},
			{Name: "../etc"},
			{Name: "/etc"},
			{Name: "\xff\xfe"},
			{Name: strings.Repeat("n", 255)},
			{Name: strings.Repeat("n", 65)},
			{Name: "\x1b[31m"},
			{Name: "a\u202eb"},
		},
		"template":                        {{Template: "../x"}, {Template: "A"}, {Template: "a..b"}, {Template: "a/b"}, {Template: strings.Repeat("t", 65)}, {Template: "a\n"}},
		"ephemeral":                       {{Persist: true, Ephemeral: true}},
		"provider":                        {{Provider: "GVISOR"}, {Provider: "a b"}},
		"language":                        {{Language: "cobol"}, {Language: "Python"}},
		"require":                         {{Require: "vm"}, {Require: "MICROVM"}},
		"network":                         {{Network: "host"}, {Network: "bridge"}},
		"megabytes a second of the disk":  {{DiskMBps: -1}, {DiskMBps: 100_001}},
		"operations a second of the disk": {{DiskIOPS: -1}, {DiskIOPS: 10_000_001}},
		"workdir":                         {{Workdir: "relative"}, {Workdir: "/a\nb"}, {Workdir: "/" + strings.Repeat("d", 5000)}, {Workdir: "/\xff"}},
		"env": {
			{Env: map[string]string{"": "x"}},
			{Env: map[string]string{"1A": "x"}},
			{Env: map[string]string{"A=B": "x"}},
			{Env: map[string]string{"A": "\x00"}},
			{Env: map[string]string{"A": "\xff"}},
			{Env: many(257, "")},
			{Env: many(10, strings.Repeat("x", 3000))},
			{Env: map[string]string{strings.Repeat("A", 200): ""}},
		},
		"metadata": {
			{Metadata: map[string]string{"": "x"}},
			{Metadata: map[string]string{"a\nb": "x"}},
			{Metadata: map[string]string{"a": "\xff"}},
			{Metadata: many(65, "")},
			{Metadata: many(10, strings.Repeat("x", 1000))},
			{Metadata: map[string]string{strings.Repeat("a", 65): ""}},
			{Metadata: map[string]string{sandbox.OwnPrefix + "plugin": "x"}},
		},
	} {
		for _, s := range specs {
			_, err := sandbox.Normalise(s, limits, sandbox.Defaults{})
			if !errs.Is(err, errs.Invalid) || !strings.HasPrefix(errs.Public(err), field) {
				t.Errorf("%s: %+.100v: %v", field, s, err)
			}
			if len(errs.Public(err)) > 4000 {
				t.Errorf("%s: the text has %d bytes", field, len(errs.Public(err)))
			}
		}
	}
	_, err := sandbox.Normalise(sandbox.Spec{CPUs: -1, MemoryMB: -1}, limits, sandbox.Defaults{})
	if p := errs.Public(err); !strings.Contains(p, "cpus: ") || !strings.Contains(p, "memory: ") {
		t.Errorf("%q does not name both fields", p)
	}
}

func TestNormalise_fillsIn(t *testing.T) {
	in := sandbox.Spec{CPUs: 2.5, Workdir: "/workspace/../srv/", Metadata: map[string]string{"a": "line\nline"}}
	got, err := sandbox.Normalise(in, limits, sandbox.Defaults{MemoryMB: 100, IdleTimeout: time.Minute})
	want := sandbox.Spec{
		Provider: "auto", CPUs: 2.5, MemoryMB: 100, DiskMB: 2048, PidsMax: 512,
		Workdir: "/srv", TTL: time.Hour, IdleTimeout: time.Minute, Metadata: map[string]string{"a": "line\nline"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	got.Metadata["a"] = "changed"
	if in.Metadata["a"] == "changed" {
		t.Error("the result shares a map with what came in")
	}
	again, err := sandbox.Normalise(want, limits, sandbox.Defaults{})
	if d := cmp.Diff(want, again); d != "" || err != nil {
		t.Errorf("normalising twice: %v\n%s", err, d)
	}
	// A small host: the defaults bow to the limits.
	small, err := sandbox.Normalise(sandbox.Spec{}, sandbox.Limits{CPUsMax: 0.5, MemoryMBMax: 64, DiskMBMax: 10, PidsMax: 20}, sandbox.Defaults{})
	if err != nil || small.CPUs != 0.5 || small.MemoryMB != 64 || small.DiskMB != 10 || small.PidsMax != 20 {
		t.Errorf("%+v, %v", small, err)
	}
}
