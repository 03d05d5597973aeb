package guest

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
)

// A machine with a kernel of its own loses what its kernel has not written yet
// when it is killed, while the server's log says that it was done. So there,
// what was acknowledged is on the workspace's disk: each change of a file, and
// what a command did until its end.

// workspaceDisk is where machines with their own kernel mount the workspace.
const workspaceDisk = "/workspace"

// syncWait bounds how long an answer waits for the disk; the writing goes on.
const syncWait = 10 * time.Second

// syncWorkspace brings the workspace to its disk.
func syncWorkspace() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fd, err := unix.Open(workspaceDisk, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		_ = unix.Syncfs(fd)
	}()
	select {
	case <-done:
	case <-time.After(syncWait):
	}
}

// changing are the calls after which the workspace is not what it was.
var changing = []string{
	wire.FileWriteProcedure, wire.FileMakeDirProcedure, wire.FileMoveProcedure, wire.FileCopyProcedure,
	wire.FileRemoveProcedure, wire.FileChmodProcedure, wire.FileSymlinkProcedure, wire.FileUploadProcedure,
}

// durable answers a change only when it is on disk.
type durable struct{}

// WrapUnary implements connect.Interceptor.
func (durable) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, r)
		if err == nil && slices.Contains(changing, r.Spec().Procedure) {
			syncWorkspace()
		}
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (durable) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor: a streamed change sends
// its one answer at its end.
func (durable) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if !slices.Contains(changing, conn.Spec().Procedure) {
			return next(ctx, conn)
		}
		return next(ctx, syncedConn{conn})
	}
}

type syncedConn struct{ connect.StreamingHandlerConn }

// Send sends the answer when the change is on disk.
func (c syncedConn) Send(m any) error {
	syncWorkspace()
	return c.StreamingHandlerConn.Send(m)
}
