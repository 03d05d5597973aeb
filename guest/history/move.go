package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/transfer"
)

// Pull sends what came after a revision. Snapshots go on meanwhile.
func (s *Service) Pull(ctx context.Context, r *connect.Request[wire.PullRequest], st *connect.ServerStream[wire.PullResponse]) error {
	w, err := s.workspace()
	if err != nil {
		return wire.ToConnect(err)
	}
	out := bufio.NewWriterSize(pullWriter{st}, wire.ChunkBytes)
	err = w.Export(func(store *object.Store, revs []workspace.Revision) error {
		var base object.Hash
		if m := r.Msg.After; m != nil {
			i, err := find(revs, m)
			if err != nil {
				return err
			}
			if !r.Msg.Whole {
				base = revs[i].Root
			}
			revs = revs[i+1:]
		}
		return transfer.Send(ctx, out, store, base, revs)
	})
	if err != nil {
		return wire.ToConnect(err)
	}
	return out.Flush()
}

type pullWriter struct {
	st *connect.ServerStream[wire.PullResponse]
}

// Write sends p in messages of at most ChunkBytes.
func (w pullWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		k := min(len(p), wire.ChunkBytes)
		if err := w.st.Send(&wire.PullResponse{Data: p[:k]}); err != nil {
			return n, err
		}
		n, p = n+k, p[k:]
	}
	return n, nil
}

// Push takes revisions that this history does not have.
func (s *Service) Push(ctx context.Context, st *connect.ClientStream[wire.PushRequest]) (*connect.Response[wire.PushResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	if !st.Receive() {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "nothing was pushed"))
	}
	in := &pushReader{st: st, data: st.Msg().Data}
	fresh := st.Msg().Replace && s.isFresh(ctx, w)
	err = w.Import(st.Msg().Replace, func(store *object.Store) (revs []workspace.Revision, err error) {
		err = transfer.NewReceiver(store, transfer.Limits{}).Receive(ctx, in, object.Hash{},
			func(workspace.Revision) error { return nil },
			func(rev workspace.Revision) error {
				if n := len(revs); n > 0 && revs[n-1].N >= rev.N {
					return errs.New(errs.Invalid, "revision %d is out of order", rev.N)
				}
				revs = append(revs, rev)
				return nil
			})
		if err == nil && len(revs) == 0 {
			err = errs.New(errs.Invalid, "no revision was pushed")
		}
		return revs, err
	})
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	revs, err := w.Revisions(ctx)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	last := revs[len(revs)-1].N
	if fresh {
		err = s.fill(ctx, w, last)
	}
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.PushResponse{Last: last}), nil
}

// isFresh reports whether this is a new machine of a sandbox whose files went with the
// one before: nothing is here, and no revision.
func (s *Service) isFresh(ctx context.Context, w *workspace.Workspace) bool {
	if s.c.Files == "" { // a disk outlives its machines
		return false
	}
	revs, err := w.Revisions(ctx)
	entries, derr := os.ReadDir(s.files())
	return err == nil && derr == nil && len(revs) == 0 && len(entries) == 0
}

// fill brings the files of a revision back.
func (s *Service) fill(ctx context.Context, w *workspace.Workspace, n uint64) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p, err := w.PlanRestore(ctx, n, "")
	if err != nil || len(p.Ops) == 0 {
		return err
	}
	release := s.freeze()
	defer s.thaw(release)
	_, _, err = w.Apply(ctx, p.ID, workspace.Label{Actor: "skete", Text: fmt.Sprintf("the files of revision %d, in a new machine", n)})
	return err
}

// pushReader reads the data of a pushed stream.
type pushReader struct {
	st   *connect.ClientStream[wire.PushRequest]
	data []byte
}

// Read implements io.Reader.
func (r *pushReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if !r.st.Receive() {
			if err := r.st.Err(); err != nil && !errors.Is(err, io.EOF) {
				return 0, errs.Wrap(errs.Unavailable, err, "the host's stream broke")
			}
			return 0, io.EOF
		}
		r.data = r.st.Msg().Data
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
