package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/sleep"
)

// What a server knows when it is killed.
const (
	startSandboxes = 30
	startRuns      = 500
)

// starts measures how long after its kill -9 a server answers again, and has
// every sandbox back.
func (b *bench) starts(s *server) error {
	if err := b.populate(s); err != nil {
		return err
	}
	var answers, attached []time.Duration
	for range b.count(10) {
		s.kill()
		began := time.Now()
		if err := s.serve(b.skete); err != nil {
			return err
		}
		answered, err := b.comesBack(s, began)
		if err != nil {
			return err
		}
		answers, attached = append(answers, answered), append(attached, time.Since(began))
	}
	with := fmt.Sprintf("%d sandboxes that run, %d runs", b.count(startSandboxes), b.count(startRuns))
	b.Millis("start after kill -9: to the first answer", answers, "", with)
	b.Millis("start after kill -9: until every sandbox is attached", attached, "<= 2000 ms", with)
	return nil
}

// populate makes sandboxes, and runs that are over.
func (b *bench) populate(s *server) error {
	var shared api.Sandbox // else each run makes one of its own
	for range b.count(startSandboxes) {
		var err error
		if shared, err = s.c.CreateSandbox(b.ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 64, DiskMB: 64}); err != nil {
			return err
		}
	}
	script := filepath.Join(s.home, "bench-script.yaml")
	if err := os.WriteFile(script, []byte("else: {text: done}\n"), 0o600); err != nil {
		return err
	}
	for range b.count(startRuns) {
		if _, err := s.c.StartRun(b.ctx, api.StartRun{Task: "Nothing.", Model: "script/" + script, Sandbox: shared.ID}); err != nil {
			return err
		}
	}
	for {
		going := 0
		for _, err := range s.c.Runs(b.ctx, client.RunFilter{State: "pending,running"}) {
			if err != nil {
				return err
			}
			going++
		}
		if going == 0 {
			return nil
		}
		if err := sleep.For(b.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// comesBack waits until the server answers and has attached all sandboxes. It
// returns how long the first answer took.
func (b *bench) comesBack(s *server, began time.Time) (answered time.Duration, err error) {
	for {
		info, err := s.c.Info(b.ctx)
		if err == nil && answered == 0 {
			answered = time.Since(began)
		}
		if err == nil && info.Attaching == nil {
			return answered, nil
		}
		if time.Since(began) > time.Minute {
			return 0, fmt.Errorf("the server does not come back: %w", err)
		}
		if err := sleep.For(b.ctx, 2*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
