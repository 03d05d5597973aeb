package replica

import (
	"strings"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/tree"
)

// Limits of a plan that a machine has made.
const (
	planOpsMax   = 1 << 20
	planBytesMax = 256 << 20
	planIDMax    = 128
	pathBytesMax = 64 << 10
	whyBytesMax  = 200
)

type planStream = *connect.ServerStreamForClient[wire.PlanPart]

// readPlan reads a plan to its end.
func readPlan(st planStream, err error) (p workspace.Plan, _ error) {
	if err != nil {
		return p, wire.Err(err)
	}
	defer st.Close()
	size := 0
	for first := true; st.Receive(); first = false {
		part := st.Msg()
		if first {
			if p, err = planOf(part); err != nil {
				return p, err
			}
		}
		if size, err = addPart(&p, part, size); err != nil {
			return p, err
		}
		if part.Last {
			return p, nil
		}
	}
	if err := wire.Err(st.Err()); err != nil {
		return p, err
	}
	return p, errs.New(errs.Corrupt, "the machine's plan has no end")
}

func planOf(part *wire.PlanPart) (workspace.Plan, error) {
	p := workspace.Plan{ID: part.Id, Target: part.Target}
	if copy(p.Now[:], part.Now) != len(p.Now) || part.Id == "" || len(part.Id) > planIDMax ||
		strings.Trim(part.Id, "0123456789abcdef") != "" {
		return p, errs.New(errs.Corrupt, "the machine's plan has no head")
	}
	return p, nil
}

// addPart appends a part and returns how large the plan is then.
func addPart(p *workspace.Plan, part *wire.PlanPart, size int) (int, error) {
	for _, o := range part.Ops {
		op, err := opOf(o)
		if err != nil {
			return size, err
		}
		p.Ops = append(p.Ops, op)
		size += len(o.Path) + len(o.Before) + len(o.After)
	}
	for _, c := range part.Conflicts {
		if err := checkPath(c.Path); err != nil {
			return size, err
		}
		p.Conflicts = append(p.Conflicts, workspace.Conflict{Path: string(c.Path), Why: clip.Text(c.Why, whyBytesMax), Text: c.Text})
		size += len(c.Path) + len(c.Why)
	}
	for _, l := range part.Left {
		if err := checkPath(l.Path); err != nil {
			return size, err
		}
		p.Left = append(p.Left, apply.Left{Path: string(l.Path), Why: clip.Text(l.Why, whyBytesMax)})
		size += len(l.Path) + len(l.Why)
	}
	if len(p.Ops)+len(p.Conflicts)+len(p.Left) > planOpsMax || size > planBytesMax {
		return size, errs.New(errs.Limit, "the plan is too large to be shown")
	}
	return size, nil
}

func opOf(o *wire.PlanOp) (op apply.Op, err error) {
	op = apply.Op{Action: apply.Action(o.Action), Path: o.Path}
	switch op.Action {
	case apply.Remove, apply.Write, apply.Mkdir, apply.Attrs:
	default:
		return op, errs.New(errs.Corrupt, "the machine's plan has an unknown action")
	}
	if err := checkPath(o.Path); err != nil {
		return op, err
	}
	if op.Before, err = entryOf(o.Before); err != nil {
		return op, err
	}
	op.After, err = entryOf(o.After)
	return op, err
}

// entryOf reads one entry; nothing is the zero Entry.
func entryOf(data []byte) (tree.Entry, error) {
	if len(data) == 0 {
		return tree.Entry{}, nil
	}
	entries, err := tree.Decode(data)
	if err != nil || len(entries) != 1 {
		return tree.Entry{}, errs.Wrap(errs.Corrupt, err, "the machine's plan has an entry that cannot be read")
	}
	return entries[0], nil
}

func checkPath(path []byte) error {
	if len(path) > pathBytesMax {
		return errs.New(errs.Corrupt, "the machine's plan has a path of %d bytes", len(path))
	}
	for name := range strings.SplitSeq(string(path), "/") {
		if err := tree.CheckName(name); err != nil {
			return errs.Wrap(errs.Corrupt, err, "the machine's plan has a path that cannot be")
		}
	}
	return nil
}
