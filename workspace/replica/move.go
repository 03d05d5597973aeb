package replica

import (
	"bufio"
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/transfer"
)

func markOf(r workspace.Revision) *wire.RevisionMark {
	if r.N == 0 {
		return nil
	}
	return &wire.RevisionMark{N: r.N, Root: r.Root[:], TimeUnixNs: r.Time.UnixNano()}
}

// agreeing does something with a machine whose history goes on from ours. One
// that went another way (its disk is new, is older than the copy, or was
// tampered with) is given ours, and f is called again.
//
// Preconditions: the caller has the turn.
func (h *History) agreeing(ctx context.Context, f func() error) error {
	for again := false; ; again = true {
		if err := h.agree(ctx); err != nil {
			return err
		}
		err := f()
		if again || !errors.Is(err, errDiverged) {
			return err
		}
		h.setAgreed(false)
	}
}

var errDiverged = errs.New(errs.Conflict, "the machine's history is another one")

func (h *History) setAgreed(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agreed = yes
}

// agree makes sure, once, that the machine knows our last revision.
func (h *History) agree(ctx context.Context) error {
	h.mu.Lock()
	agreed := h.agreed
	h.mu.Unlock()
	if agreed {
		return nil
	}
	last := h.here.last()
	status, err := h.status(ctx, last)
	if err != nil {
		return err
	}
	switch {
	case h.empty != nil && last.N == 0 && status.Last == 0:
		if err := h.beginEmpty(ctx); err != nil {
			return err
		}
	case !status.Known:
		base := object.Hash{}
		if r, ok := h.here.revision(status.Last); ok { // it may only be behind
			if s, err := h.status(ctx, r); err == nil && s.Known {
				base = r.Root
			}
		}
		if err := h.push(ctx, base, true, last); err != nil {
			return err
		}
		h.mu.Lock()
		h.local = nil
		h.mu.Unlock()
	}
	h.setAgreed(true)
	return nil
}

func (h *History) status(ctx context.Context, r workspace.Revision) (*wire.HistoryStatusResponse, error) {
	res, err := h.guest.History.Status(ctx, connect.NewRequest(&wire.HistoryStatusRequest{Mark: markOf(r)}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return res.Msg, nil
}

// release gives revisions to the machine that it has dropped; false: that is
// not what it misses.
func (h *History) release(ctx context.Context, numbers []uint64) bool {
	var revs []workspace.Revision
	for _, n := range numbers {
		if r, ok := h.here.revision(n); ok {
			revs = append(revs, r)
		}
	}
	return len(revs) > 0 && h.push(ctx, h.here.last().Root, false, revs...) == nil
}

// push gives revisions to the machine, which has all of base.
func (h *History) push(ctx context.Context, base object.Hash, replace bool, revs ...workspace.Revision) error {
	ctx, cancel := context.WithTimeout(ctx, pullMax)
	defer cancel()
	st := h.guest.History.Push(ctx)
	err := st.Send(&wire.PushRequest{Replace: replace})
	if err == nil {
		out := bufio.NewWriterSize(pushWriter{st}, wire.ChunkBytes)
		if err = transfer.Send(ctx, out, h.here.objects, base, revs); err == nil {
			err = out.Flush()
		}
	}
	_, closeErr := st.CloseAndReceive()
	if closeErr != nil && (err == nil || errors.Is(err, io.EOF)) {
		err = wire.Err(closeErr) // why the machine did not take it
	}
	return err
}

type pushWriter struct {
	st *connect.ClientStreamForClient[wire.PushRequest, wire.PushResponse]
}

// Write sends p in messages of at most ChunkBytes.
func (w pushWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		k := min(len(p), wire.ChunkBytes)
		if err := w.st.Send(&wire.PushRequest{Data: p[:k]}); err != nil {
			return n, err
		}
		n, p = n+k, p[k:]
	}
	return n, nil
}

// pull takes what the machine has and we do not, and tells it.
//
// Preconditions: the caller has the turn.
func (h *History) pull(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullMax)
	defer cancel()
	before := h.here.last()
	err := h.pullOnce(ctx, false)
	if errs.Is(err, errs.Limit) && h.here.prune(ctx) == nil {
		err = h.pullOnce(ctx, false)
	}
	if errs.Is(err, errs.NotFound) { // it was mistaken in what we have
		err = h.pullOnce(ctx, true)
	}
	if err == nil {
		err = h.here.pruneIfLarge(ctx)
	}
	if err != nil && !errs.Is(err, errs.Limit) {
		return err
	}
	h.mu.Lock()
	if err == nil {
		h.local, h.behind = nil, nil
	}
	h.mu.Unlock()
	if last := h.here.last(); last.N != before.N {
		if _, ackErr := h.guest.History.Ack(ctx, connect.NewRequest(&wire.AckRequest{Mark: markOf(last)})); ackErr != nil && err == nil {
			err = wire.Err(ackErr)
		}
	}
	return err
}

func (h *History) pullOnce(ctx context.Context, whole bool) error {
	st, err := h.guest.History.Pull(ctx, connect.NewRequest(&wire.PullRequest{After: markOf(h.here.last()), Whole: whole}))
	if err != nil {
		return wire.Err(err)
	}
	defer st.Close()
	in := &pullReader{st: st}
	err = h.here.take(ctx, in)
	if errs.Is(in.err, errs.Conflict) {
		return errDiverged
	}
	return err
}

// pullReader reads the data of a pulled stream.
type pullReader struct {
	st   *connect.ServerStreamForClient[wire.PullResponse]
	data []byte
	err  error // of the machine
}

// Read implements io.Reader.
func (r *pullReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if !r.st.Receive() {
			if r.err = wire.Err(r.st.Err()); r.err != nil {
				return 0, r.err
			}
			return 0, io.EOF
		}
		r.data = r.st.Msg().Data
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
