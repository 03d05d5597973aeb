package sandboxtest

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// Guest drives the guest of a machine in a test.
type Guest struct {
	t testing.TB
	*wire.Client
}

// NewGuest returns m's client of its guest.
func NewGuest(t testing.TB, m sandbox.Machine) Guest {
	t.Helper()
	t.Cleanup(m.Guest().Close)
	return Guest{t, m.Guest()}
}

// GuestOf drives the guest that c is a client of; who made c closes it.
func GuestOf(t testing.TB, c *wire.Client) Guest { return Guest{t, c} }

// Result of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
	Reason         string
}

// Run executes argv to its end and fails the test if that cannot be done.
func (g Guest) Run(argv ...string) Result {
	g.t.Helper()
	res, err := g.Exec(context.Background(), Start(argv...))
	if err != nil {
		g.t.Fatalf("run %q: %v", argv, err)
	}
	return res
}

// Shell runs a line of /bin/sh.
func (g Guest) Shell(line string) Result {
	g.t.Helper()
	return g.Run("/bin/sh", "-c", line)
}

// Start is the request for argv.
func Start(argv ...string) *wire.StartRequest {
	r := &wire.StartRequest{}
	for _, a := range argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	return r
}

// Exec runs r and collects its output.
func (g Guest) Exec(ctx context.Context, r *wire.StartRequest) (Result, error) {
	ctx, cancel := patience.Context(ctx, time.Minute)
	defer cancel()
	stream, err := g.Process.Exec(ctx, connect.NewRequest(r))
	if err != nil {
		return Result{}, wire.Err(err)
	}
	defer stream.Close()
	return collect(stream)
}

// AttachAll reads all output of a command from the start.
func (g Guest) AttachAll(ctx context.Context, key string) (Result, error) {
	ctx, cancel := patience.Context(ctx, time.Minute)
	defer cancel()
	stream, err := g.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{Key: key}))
	if err != nil {
		return Result{}, wire.Err(err)
	}
	defer stream.Close()
	return collect(stream)
}

func collect(stream *connect.ServerStreamForClient[wire.AttachEvent]) (Result, error) {
	var res Result
	var out, errOut bytes.Buffer
	res.Code = -1
	for stream.Receive() {
		switch e := stream.Msg().Event.(type) {
		case *wire.AttachEvent_Output:
			if e.Output.Stream == wire.Stream_STREAM_STDERR {
				errOut.Write(e.Output.Data)
			} else {
				out.Write(e.Output.Data)
			}
		case *wire.AttachEvent_Exited:
			if x := e.Exited.Exit; x != nil {
				res.Code, res.Reason = int(x.Code), x.Reason
			}
		}
	}
	res.Stdout, res.Stderr = out.String(), errOut.String()
	return res, wire.Err(stream.Err())
}

// Write makes a file with this content.
func (g Guest) Write(path string, mode uint32, data []byte) {
	g.t.Helper()
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	stream := g.File.Write(ctx)
	r := &wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte(path), Mode: mode}}
	for piece := range slices.Chunk(data, wire.ChunkBytes) {
		r.Data = piece
		if err := stream.Send(r); err != nil {
			break // the answer says why
		}
		r = &wire.WriteRequest{}
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		g.t.Fatalf("write %s: %v", path, wire.Err(err))
	}
}

// Background starts a command without waiting for its end.
func (g Guest) Background(key string, argv ...string) *wire.ProcessInfo {
	g.t.Helper()
	r := Start(argv...)
	r.Key, r.Background = key, true
	res, err := g.Process.Start(context.Background(), connect.NewRequest(r))
	if err != nil {
		g.t.Fatalf("start %q: %v", argv, wire.Err(err))
	}
	return res.Msg.Process
}

// Eventually calls f until it reports true.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	patience.Until(t, 30*time.Second, what, f)
}
