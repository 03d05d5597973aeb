package history

import (
	"context"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

// PlanRestore plans a restore.
func (s *Service) PlanRestore(ctx context.Context, r *connect.Request[wire.PlanRestoreRequest], st *connect.ServerStream[wire.PlanPart]) error {
	w, err := s.workspace()
	if err != nil {
		return wire.ToConnect(err)
	}
	p, err := w.PlanRestore(ctx, r.Msg.N, string(r.Msg.Path))
	return wire.ToConnect(sendPlan(p, err, st.Send))
}

// PlanRevert plans to take one revision back.
func (s *Service) PlanRevert(ctx context.Context, r *connect.Request[wire.PlanRevertRequest], st *connect.ServerStream[wire.PlanPart]) error {
	w, err := s.workspace()
	if err != nil {
		return wire.ToConnect(err)
	}
	choices := map[string]workspace.Choice{}
	for _, c := range r.Msg.Choices {
		choices[string(c.Path)] = workspace.Choice(c.Choice)
	}
	p, err := w.PlanRevert(ctx, r.Msg.N, choices)
	return wire.ToConnect(sendPlan(p, err, st.Send))
}

// Bounds of one part of a plan.
const (
	partBytesMax  = wire.MessageBytesMax / 4
	xattrBytesMax = 64 << 10 // of an entry; a plan goes without larger ones
)

// sendPlan sends a plan in parts.
func sendPlan(p workspace.Plan, err error, send func(*wire.PlanPart) error) error {
	if err != nil {
		return err
	}
	part := &wire.PlanPart{Id: p.ID, Target: p.Target, Now: p.Now[:]}
	bytes := 0
	grown := func(n int) error {
		if bytes += n + 64; bytes < partBytesMax {
			return nil
		}
		err := send(part)
		part, bytes = &wire.PlanPart{}, 0
		return err
	}
	for _, o := range p.Ops {
		op := &wire.PlanOp{Action: string(o.Action), Path: o.Path}
		if op.Before, err = entry(o.Before); err != nil {
			return err
		}
		if op.After, err = entry(o.After); err != nil {
			return err
		}
		part.Ops = append(part.Ops, op)
		if err := grown(len(op.Path) + len(op.Before) + len(op.After)); err != nil {
			return err
		}
	}
	for _, c := range p.Conflicts {
		part.Conflicts = append(part.Conflicts, &wire.PlanConflict{Path: []byte(c.Path), Why: c.Why, Text: c.Text})
		if err := grown(len(c.Path) + len(c.Why)); err != nil {
			return err
		}
	}
	for _, l := range p.Left {
		part.Left = append(part.Left, &wire.PlanLeft{Path: []byte(l.Path), Why: l.Why})
		if err := grown(len(l.Path) + len(l.Why)); err != nil {
			return err
		}
	}
	part.Last = true
	return send(part)
}

// entry is nothing for the zero Entry.
func entry(e tree.Entry) ([]byte, error) {
	if e.Type == 0 {
		return nil, nil
	}
	n := 0
	for _, x := range e.Xattrs {
		n += len(x.Name) + len(x.Value)
	}
	if n > xattrBytesMax {
		e.Xattrs = nil
	}
	return tree.Encode([]tree.Entry{e})
}
