package serve

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// homeEvery is how often a server looks whether its data directory is there.
const homeEvery = 2 * time.Second

// errHomeless ends a server whose data directory was removed, moved or
// replaced: no client finds it any more, and only a kill would end it.
var errHomeless = errs.New(errs.Unavailable, "the data directory is gone: it was removed, moved or replaced").
	WithHint("stop the server before its data directory is moved: `skete stop`")

// whileAtHome ends the context when the data directory is not ours any more.
func (r *running) whileAtHome(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	lock := r.in("store/lock")
	ours, err := os.Stat(lock)
	if err != nil {
		return ctx, func() { cancel(nil) } // an external store has none
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(homeEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			now, err := os.Stat(lock)
			if os.IsNotExist(err) || err == nil && !os.SameFile(ours, now) {
				r.c.Log.Error("the data directory is gone; this server ends", "home", r.c.Home)
				cancel(errHomeless)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wg.Wait()
	}
}

// notify tells systemd how far we are, if it has asked (sd_notify(3)).
func (r *running) notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		r.c.Log.Warn("systemd could not be told", "state", state, "error", err)
	}
}
