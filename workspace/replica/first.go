package replica

import (
	"context"
	"time"

	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// beginEmpty begins the history of a machine that has made no revision yet with
// one of the empty workspace, whatever is in it by now: what changes first can
// be undone too. The machine takes it from us, so it need not be asked before
// its first command.
//
// Preconditions: the caller has the turn.
func (h *History) beginEmpty(ctx context.Context) error {
	rev, err := h.here.empty(*h.empty)
	if err != nil {
		return err
	}
	return h.push(ctx, object.Hash{}, true, rev)
}

// empty keeps revision 1, of a directory with nothing in it.
func (c *copied) empty(l workspace.Label) (workspace.Revision, error) {
	c.takeMu.Lock()
	defer c.takeMu.Unlock()
	data, err := tree.Encode(nil)
	if err != nil {
		return workspace.Revision{}, err
	}
	root, err := c.objects.Put(object.Tree, data)
	if err == nil {
		err = c.objects.Sync() // before a revision names it
	}
	if err != nil {
		return workspace.Revision{}, err
	}
	rev := workspace.Revision{N: 1, Root: root, Time: time.Now().UTC(), Actor: l.Actor, Label: l.Text}
	return rev, c.keep(rev)
}
