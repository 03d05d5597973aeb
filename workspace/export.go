package workspace

import (
	"context"
	"io"
)

// ExportGit writes all revisions as a stream for `git fast-import`; see package
// gitstream. Revisions are made, and gone back to, meanwhile.
func (w *Workspace) ExportGit(ctx context.Context, out io.Writer) error {
	revs, done, err := w.lookingAtAll()
	if err != nil {
		return err
	}
	defer done()
	return writeGit(ctx, out, w.objects, revs)
}
