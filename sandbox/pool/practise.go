package pool

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// What a new machine does once before anybody waits for it.
const (
	practiceKey     = "pool.practice"
	practiceTimeout = 20 * time.Second
)

// practise does with a machine what its sandbox will do first: it adopts it,
// under its own name, and runs a command. The second time is faster by
// milliseconds, because the guest's code and the command's files have been
// touched. A guest that cannot be adopted is an error: no sandbox could have it.
// One that comes from a snapshot stands still (thaw): it goes on when name, clock
// and randomness are its own.
//
// Nothing stays of the command. Not every template has it; then there is less
// to gain.
func practise(ctx context.Context, c *wire.Client, boot wire.Boot, now func() time.Time, thaw bool) error {
	if err := snapshot.Adopt(ctx, c, boot, now); err != nil {
		return err
	}
	if thaw {
		if err := snapshot.Thaw(ctx, c); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, practiceTimeout)
	defer cancel()
	run, err := c.Process.Exec(ctx, connect.NewRequest(&wire.StartRequest{
		Key: practiceKey, Argv: [][]byte{[]byte("true")}, TimeoutMs: (practiceTimeout / 2).Milliseconds(),
	}))
	if err != nil {
		return ctx.Err()
	}
	for run.Receive() {
	}
	ran := run.Err() == nil
	_ = run.Close()
	if !ran {
		return ctx.Err()
	}
	if _, err := c.Process.Forget(ctx, connect.NewRequest(&wire.ForgetRequest{Key: practiceKey})); err != nil {
		return wire.Err(err)
	}
	return nil
}
