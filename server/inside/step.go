package inside

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/route"
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
	waitOnce = 10 * time.Minute
	waitPart = time.Second // between two tries to reach a guest that is away
	awayMax  = 30          // tries
)

// ends waits for the end of a command that goes on by itself, so that its step
// ends there. The sandbox does not count as used for that.
func ends(guest *wire.Client, key string) func(context.Context) {
	return func(ctx context.Context) {
		for away := 0; away < awayMax; {
			res, err := guest.Process.Wait(ctx, connect.NewRequest(&wire.WaitRequest{Key: key, WaitMs: waitOnce.Milliseconds()}))
			switch {
			case err == nil && res.Msg.GetProcess().GetState() == wire.ProcessState_PROCESS_STATE_RUNNING:
				away = 0
			case err == nil, !errs.Temporary(wire.Err(err)):
				return
			default:
				away++
				t := time.NewTimer(waitPart)
				select {
				case <-t.C:
				case <-ctx.Done():
					t.Stop()
					return
				}
			}
		}
	}
}

func named(verb, path string) string { return fmt.Sprintf("%s %q", verb, path) }

func pathName(verb, text string, bytes []byte) string { return named(verb, string(exact(text, bytes))) }

var (
	writeStep = route.Named(func(in *writeFileIn) string { return named("write", in.Path) })
	runStep   = route.Named(func(in *runCommandIn) string {
		return commandName(api.StartProcess{Argv: in.Body.Argv, Command: in.Body.Command, Code: in.Body.Code, Language: in.Body.Language})
	})
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
