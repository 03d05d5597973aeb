// Command bench measures what docs/spec.md promises, beside peers in the same
// run, and prints one JSON line per number.
//
//	make bench            # or: go run ./test/bench -skete bin/skete [-only exec|brain] [-quick]
//
// Every line names the machine, the commit and the sample; times are whole
// milliseconds as floats. Ratios to a peer stand beside absolute numbers,
// because machines differ and shared machines drift. Nothing here asserts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/test/bench/report"
	"github.com/skete-dev/skete/test/bench/revision"
)

type bench struct {
	*report.Reporter
	skete, runsc string
	peers        string
	quick        bool
	ctx          context.Context
}

func main() {
	b := &bench{Reporter: report.New(os.Stdout)}
	flag.StringVar(&b.skete, "skete", "bin/skete", "the program to measure")
	flag.StringVar(&b.peers, "peers", ".build/peers", "where scripts/peers put what the brain is compared with")
	flag.StringVar(&b.runsc, "runsc", ".build/skete-runsc", "the program that machines run, for the peer; missing: skete plays it")
	only := flag.String("only", "", "run only the measurement of this name, or those that begin with it and a dash")
	child := flag.String("child", "", "run once in this process and tell how it went; the bench starts itself so")
	flag.BoolVar(&b.quick, "quick", false, "a tenth of the samples")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	err := error(nil)
	if to, ok := strings.CutPrefix(*child, "proxies,"); ok {
		err = proxies(to)
	} else if *child != "" {
		err = Child(ctx, *child)
	} else {
		err = b.run(*only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func (b *bench) run(only string) error {
	all := []measurement{
		{"command", b.commands},
		{"create", b.with(b.create)},
		{"exec", b.with(b.exec)},
		{"stat", b.with(b.stat)},
		{"stdout", b.with(b.stdout)},
		{"disconnects", b.with(b.disconnects)},
		{"burst", b.with(b.burst)},
		{"fork", b.with(b.forks)},
		{"start", b.with(b.starts)},
		{"tenants", b.with(b.neighbours)},
		{"oci", b.oci},
		{"network-proxy", b.network},
		{"network-gateway", b.firstToken},
		{"bridge", b.with(b.bridge)},
		{"mcp", b.with(b.mcp)},
		{"mcpclient", b.mcpClient},
		{"skills", b.with(b.skills)},
		{"interpreter", b.with(b.interpreter)},
		{"network-create", b.with(b.networks)},
		{"ui", b.ui},
		{"workspace-machine", b.histories},
		{"pool-claim", b.warmed(fmt.Sprintf("size=%d,memory_mb=512", poolSize), b.claim)},
		{"pool-burst", b.warmed(fmt.Sprintf("size=%d,memory_mb=256,disk_mb=256,cpus=0.5", b.count(100)), b.claims(b.count(100)))},
	}
	for _, m := range All(Config{Report: b.Reporter, Quick: b.quick, Peers: b.peers}) {
		all = append(all, measurement{"brain-" + m.Name, func() error { return m.Do(b.ctx) }})
	}
	for _, m := range Workflows(Config{Report: b.Reporter, Quick: b.quick}) {
		all = append(all, measurement{"workflow-" + m.Name, func() error { return m.Do(b.ctx) }})
	}
	for _, m := range revision.All(revision.Config{Report: b.Reporter, Quick: b.quick}) {
		all = append(all, measurement{"workspace-" + m.Name, func() error { return m.Do(b.ctx) }})
	}
	var failed []error
	for _, m := range all {
		if only != "" && m.name != only && !strings.HasPrefix(m.name, only+"-") {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", m.name)
		if err := m.do(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return errors.Join(failed...)
}

type measurement struct {
	name string
	do   func() error
}

// with gives each measurement a server of its own, so that none inherits
// another's garbage.
func (b *bench) with(do func(*server) error) func() error {
	return func() error {
		s, err := b.start()
		if err != nil {
			return err
		}
		return errors.Join(do(s), s.stop())
	}
}

// count is the size of a sample.
func (b *bench) count(n int) int {
	if b.quick {
		return max(n/10, 3)
	}
	return n
}

// timed runs f and returns how long it took.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
