package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

const (
	turnFirst = 2 * time.Second // before that a wait needs no reason
	turnEvery = 3 * time.Second
)

// TellTurns says on stderr, as it changes, what sandboxes that are being made or
// started wait for, until stop is called. It is for commands that wait for one.
func (a *App) TellTurns(ctx context.Context, c *client.Client) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() { a.tellTurns(ctx, c) })
	return func() {
		cancel()
		told.Wait()
	}
}

func (a *App) tellTurns(ctx context.Context, c *client.Client) {
	t := time.NewTimer(turnFirst)
	defer t.Stop()
	for said := ""; ; t.Reset(turnEvery) {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		var creating []api.Sandbox
		for s, err := range c.Sandboxes(ctx, client.SandboxFilter{State: "creating", PageSize: 1000}) {
			if err != nil {
				break // the command itself says what is wrong
			}
			creating = append(creating, s)
		}
		if now := turnText(creating); now != "" && now != said && ctx.Err() == nil {
			a.Note("%s", now)
			said = now
		}
	}
}

// turnText says what sandboxes wait for; "" = none waits. Which of them is the
// command's own is not known before it is made.
func turnText(creating []api.Sandbox) string {
	var waits []string
	for _, s := range creating {
		if s.Waiting != "" {
			waits = append(waits, s.Waiting)
		}
	}
	switch {
	case len(waits) == 0:
		return ""
	case len(creating) == 1:
		return "waiting for " + Printable(waits[0])
	}
	return fmt.Sprintf("%d of %d sandboxes that are being made wait for their turn to boot", len(waits), len(creating))
}
