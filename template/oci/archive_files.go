package oci

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
)

const (
	filesMax = 10_000 // of an image's archive
	linksMax = 8
)

// Files are the files of an archive or directory, by name.
type Files interface {
	// Open opens a file. fs.ErrNotExist: there is none.
	Open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// Spool keeps the archive in a file in dir and finds its files there. It reads
// the archive to its end.
func (a *Archive) Spool(ctx context.Context, dir string) (Files, error) {
	f, err := os.OpenFile(filepath.Join(dir, "archive.tar"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	s := &spooled{f: f, at: map[string]span{}, links: map[string]string{}}
	if err := s.read(ctx, a.r); err != nil {
		_ = f.Close()
		return nil, ArchiveFault(err)
	}
	return s, nil
}

type span struct{ from, size int64 }

// spooled is a tar in a file with an index.
type spooled struct {
	f     *os.File
	at    map[string]span
	links map[string]string // `docker save` once wrote links from layer to layer
}

func (s *spooled) read(ctx context.Context, r io.Reader) error {
	w := &counter{r: &writeThrough{ctx, r, s.f}}
	tr := tar.NewReader(w)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, w)
			return err
		}
		if err != nil {
			return err
		}
		if len(s.at)+len(s.links) >= filesMax {
			return errs.New(errs.Limit, "the image's archive has more than %d files", filesMax)
		}
		name := path.Clean("/" + hdr.Name)[1:]
		switch hdr.Typeflag {
		case tar.TypeReg:
			s.at[name] = span{w.n, hdr.Size}
		case tar.TypeSymlink:
			s.links[name] = path.Join("/", path.Dir(name), hdr.Linkname)[1:]
		case tar.TypeLink:
			s.links[name] = path.Clean("/" + hdr.Linkname)[1:]
		}
	}
}

// writeThrough writes what is read.
type writeThrough struct {
	ctx context.Context
	r   io.Reader
	w   io.Writer
}

func (t *writeThrough) Read(b []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := t.r.Read(b)
	if n > 0 {
		if _, err := t.w.Write(b[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Open opens a file of the archive; links are followed within it.
func (s *spooled) Open(name string) (io.ReadCloser, int64, error) {
	for range linksMax {
		if at, ok := s.at[name]; ok {
			return io.NopCloser(io.NewSectionReader(s.f, at.from, at.size)), at.size, nil
		}
		next, ok := s.links[name]
		if !ok {
			break
		}
		name = next
	}
	return nil, 0, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
}

func (s *spooled) Close() error { return s.f.Close() }

// Directory returns the files of a directory; no name leads out of it.
func Directory(dir string) (Files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return directory{root}, nil
}

type directory struct{ root *os.Root }

func (d directory) Open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.Open(strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errs.New(errs.Invalid, "%.80q is no file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (d directory) Close() error { return d.root.Close() }
