package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// commandName says in the history what was run.
func commandName(req api.StartProcess) string {
	line := cmp.Or(req.Command, strings.Join(req.Argv, " "))
	if req.Code != "" {
		line = strings.TrimSpace(req.Language + " code: " + req.Code)
	}
	if req.Terminal != nil {
		return "terminal " + line
	}
	return "exec " + line
}

// Times of a command that no client waits for.
const (
	waitOnce = 30 * time.Second
	waitPart = time.Second // between two tries to reach a guest that is away, or is held still
	awayMax  = 30          // tries
)

// ends waits for the end of a command that goes on by itself, so that its step
// ends there; it also does where the guest is gone, or silent though its machine
// runs. The sandbox does not count as used for that.
func (s *service) ends(g guest, key string) func(context.Context) {
	return Ends(g.Client, key, func(ctx context.Context) bool { return s.paused(ctx, g) })
}

// Ends returns what waits for the end of a command of a guest; paused reports
// whether its machine cannot answer now, and may later.
func Ends(guest *wire.Client, key string, paused func(context.Context) bool) func(context.Context) {
	return func(ctx context.Context) {
		for away := 0; away < awayMax; {
			if !paused(ctx) { // a call to one that is would wait inside
				asked := time.Now()
				running, err := waited(ctx, guest, key)
				switch {
				case running && time.Since(asked) >= waitOnce, errors.Is(err, stream.ErrSilent) && paused(ctx):
					away = 0
					continue
				case running: // too soon to ask again at once
				case !errs.Temporary(err):
					return
				default:
					away++
				}
			}
			if sleep.For(ctx, waitPart) != nil {
				return
			}
		}
	}
}

// waited reports whether a command still runs after a while. ErrSilent: the
// guest has not said so.
func waited(ctx context.Context, guest *wire.Client, key string) (running bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitOnce+stream.SilenceMax, stream.ErrSilent)
	defer cancel()
	res, err := guest.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: key, WaitMs: waitOnce.Milliseconds()}))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return false, cause
	}
	if err != nil {
		return false, wire.Err(err)
	}
	return res.Msg.GetProcess().GetState() == wire.ProcessState_PROCESS_STATE_RUNNING, nil
}

// paused reports whether the machine cannot answer now, and may later.
func (s *service) paused(ctx context.Context, g guest) bool {
	info, err := s.sandboxes.Get(ctx, g.tenant, g.id)
	return err == nil && info.State == sandbox.Paused
}

func named(verb, path string) string { return fmt.Sprintf("%s %q", verb, path) }

func pathName(verb, text string, bytes []byte) string { return named(verb, string(exact(text, bytes))) }

var (
	writeStep   = route.Named(func(in *writeFileIn) string { return named("write", in.Path) })
	uploadStep  = route.Named(func(in *treeIn) string { return named("unpack into", in.Path) })
	removeStep  = route.Named(func(in *removeFileIn) string { return named("remove", in.Path) })
	mkdirStep   = route.Named(func(in *fileIn[api.MakeDir]) string { return pathName("mkdir", in.Body.Path, in.Body.PathBytes) })
	chmodStep   = route.Named(func(in *fileIn[api.ChmodFile]) string { return pathName("chmod", in.Body.Path, in.Body.PathBytes) })
	symlinkStep = route.Named(func(in *fileIn[api.SymlinkFile]) string { return pathName("symlink", in.Body.Path, in.Body.PathBytes) })
	moveStep    = route.Named(func(in *fileIn[api.MoveFile]) string {
		return pathName("move", in.Body.Source, in.Body.SourceBytes) + fmt.Sprintf(" to %q", exact(in.Body.Destination, in.Body.DestinationBytes))
	})
	copyStep = route.Named(func(in *fileIn[api.CopyFile]) string {
		return pathName("copy", in.Body.Source, in.Body.SourceBytes) + fmt.Sprintf(" to %q", exact(in.Body.Destination, in.Body.DestinationBytes))
	})
)
