package workspace

import (
	"archive/tar"
	"context"
	"io"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/tree"
)

// archivedMax bounds the paths of one archive.
const archivedMax = 1 << 20

// Archive returns what writes the directory at path, "" = all, of revision n as a
// tar, with names beneath it. Pipes between programs that are gone are not in it.
// NotFound: there is no such revision or path. Invalid: it is no directory.
// Unsupported: it has more than a million paths.
func Archive(ctx context.Context, h History, n uint64, path string) (write func(io.Writer) error, err error) {
	if path != "" {
		e, err := h.Entry(ctx, n, path)
		if err != nil {
			return nil, err
		}
		if e.Type != tree.Dir {
			return nil, errs.New(errs.Invalid, "%.200q is no directory in revision %d", path, n)
		}
	}
	d, err := h.Diff(ctx, 0, n, DiffOptions{Path: path, FilesMax: archivedMax})
	if err == nil && d.Cut {
		err = errs.New(errs.Unsupported, "revision %d has more than %d paths there", n, archivedMax)
	}
	if err != nil {
		return nil, err
	}
	return func(out io.Writer) error {
		t := tar.NewWriter(out)
		for _, f := range d.Files {
			if name := strings.TrimPrefix(strings.TrimPrefix(f.Path, path), "/"); name != "" {
				if err := archive(ctx, h, n, f, name, t); err != nil {
					return err
				}
			}
		}
		return t.Close()
	}, nil
}

// archive adds what a revision has at a path by another name.
func archive(ctx context.Context, h History, n uint64, f FileDiff, name string, t *tar.Writer) error {
	e := f.After
	head := &tar.Header{Name: name, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID), Format: tar.FormatPAX}
	switch e.Type {
	case tree.Dir:
		head.Typeflag, head.Name = tar.TypeDir, name+"/"
	case tree.Link:
		head.Typeflag, head.Linkname = tar.TypeSymlink, e.Target
	case tree.File:
		head.Typeflag, head.Size = tar.TypeReg, e.Size
	default:
		return nil
	}
	if err := t.WriteHeader(head); err != nil || e.Type != tree.File {
		return err
	}
	return h.Content(ctx, n, f.Path, t)
}
