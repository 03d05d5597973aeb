package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/skete-dev/skete/cmd/skete/internal/launch"
)

const (
	// stillAfter is how long a part of the start takes before people are told.
	stillAfter = time.Second
	tellEvery  = 2 * time.Second
)

// doing says what the start does now; "" = it has ended.
func (r *running) doing(what string) {
	if r.still != nil {
		r.still.Stop()
		r.still = nil
	}
	launch.SayStarting(r.c.Home, what)
	if what == "" {
		return
	}
	r.still = time.AfterFunc(stillAfter, func() { fmt.Fprintf(r.c.Say, "skete: still %s\n", what) })
}

// tellAttaching tells people how far the sandboxes are that the server has found.
func (r *running) tellAttaching(ctx context.Context) {
	done, total := r.manager.Attaching()
	if total == 0 {
		return
	}
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		_ = r.manager.Settled(ctx)
	}()
	for said := -1; done < total; done, _ = r.manager.Attaching() {
		if done != said {
			fmt.Fprintf(r.c.Say, "skete: attaching sandboxes, %d of %d done; a call waits for its own alone\n", done, total)
			said = done
		}
		select {
		case <-t.C:
		case <-settled:
		}
		if ctx.Err() != nil {
			<-settled
			return
		}
	}
	<-settled
	if ctx.Err() == nil {
		fmt.Fprintf(r.c.Say, "skete: all %d sandboxes that were there are in order\n", total)
	}
}
