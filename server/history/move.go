package history

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/workspace"
)

// Mover is a Histories that can give the history of one sandbox to another.
type Mover interface {
	// Move gives to, which has no history yet, what is kept of from, which may
	// be gone, and makes its files what they were at revision n (0 = the last).
	// Exists: it has a history. NotFound: nothing is kept of the other one.
	Move(ctx context.Context, tenant string, from, to sandbox.ID, n uint64, l workspace.Label) (workspace.Revision, error)
}

type moveIn struct {
	SandboxPath
	Body api.MoveHistory
}

func (s *service) move(ctx context.Context, in *moveIn) (*snapshotOut, error) {
	to, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	named, err := s.sandboxOf(ctx, in.Body.From)
	if err != nil {
		return nil, err
	}
	from, err := sandbox.ParseID(named)
	if err != nil {
		return nil, err
	}
	m, ok := s.histories.(Mover)
	if !ok {
		return nil, errs.New(errs.Unsupported, "this server cannot move histories")
	}
	rev, err := m.Move(context.WithoutCancel(ctx), auth.From(ctx).Tenant, from, to, in.Body.N, workspace.Label{Actor: actor(ctx), Text: "moved from " + string(from)})
	if err != nil {
		return nil, err
	}
	return &snapshotOut{201, revisionView(rev, rev.N)}, nil
}
