// Package diskimage writes a root file system as a read-only ext4 image.
//
//	err := diskimage.Write(ctx, tree, manifestFile, image)
//
// It needs no root, no loop device and no program: names, owners, modes and
// attributes are the manifest's, only the contents are the tree's, so the image
// of a tree that an ordinary user unpacked is the same as root's. The same
// manifest gives the same image, byte for byte.
//
// The image has no journal, no free blocks and the feature read-only: it is
// mounted read-only, below a writable layer, or not at all.
package diskimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"
	"github.com/zeebo/blake3"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/manifest"
)

const (
	entriesMax = 1_100_000 // an import's bound and what is added to it
	// sizeMax is far beyond what a tree may have; the writer reserves 32 bytes
	// for each 128 MiB of it.
	sizeMax = 256 << 30
	// LostFound is the directory that every ext4 has at its root.
	LostFound = "lost+found"
)

// Write makes the image. Corrupt: the tree is not what the manifest says.
// After an error what stands in image is of no use.
func Write(ctx context.Context, tree *os.Root, list io.Reader, image io.ReadWriteSeeker) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Tar(ctx, tree, list, w)
		_ = w.CloseWithError(err)
		done <- err
	}()
	err := tar2ext4.ConvertTarToExt4(r, image, tar2ext4.MaximumDiskSize(sizeMax))
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the end of the tar
	}
	_ = r.CloseWithError(errors.New("the image could not be written"))
	if tarErr := <-done; tarErr != nil && err != nil && !errors.Is(tarErr, io.ErrClosedPipe) {
		return preferred(tarErr, err)
	}
	return err
}

// preferred is the cause: the side that failed first told the other.
func preferred(tarErr, imageErr error) error {
	var own *errs.Error
	if errors.As(tarErr, &own) || errors.Is(imageErr, tarErr) {
		return tarErr
	}
	return fmt.Errorf("%w (%w)", imageErr, tarErr)
}

// Tar writes the tree as a tar with all that the manifest says.
func Tar(ctx context.Context, tree *os.Root, list io.Reader, w io.Writer) error {
	s := sender{tree: tree, w: tar.NewWriter(w), buf: make([]byte, 256<<10)}
	defer s.leave()
	err := manifest.Read(list, entriesMax, func(e manifest.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.send(e)
	})
	if err != nil {
		return err
	}
	return s.w.Close()
}

type sender struct {
	tree *os.Root
	w    *tar.Writer
	buf  []byte
	dir  *os.Root // the directory of the last file, kept open
	path string
}

func (s *sender) leave() {
	if s.dir != nil {
		_ = s.dir.Close()
		s.dir = nil
	}
}

func (s *sender) send(e manifest.Entry) error {
	h := &tar.Header{
		Name: e.Path, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID),
		ModTime: e.MTime, AccessTime: e.MTime, ChangeTime: e.MTime, Format: tar.FormatPAX,
	}
	if len(e.Xattrs) > 0 {
		h.PAXRecords = map[string]string{}
		for k, v := range e.Xattrs {
			h.PAXRecords["SCHILY.xattr."+k] = v
		}
	}
	switch e.Kind {
	case manifest.Dir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		if e.Path == "" {
			h.Name = "./"
		}
	case manifest.Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case manifest.Link:
		*h = tar.Header{Typeflag: tar.TypeLink, Name: e.Path, Linkname: e.Target, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	case manifest.File:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	if err := s.w.WriteHeader(h); err != nil {
		return fmt.Errorf("the entry %.80q: %w", e.Path, err)
	}
	if e.Kind == manifest.File && e.Size > 0 {
		return s.content(e)
	}
	return nil
}

func (s *sender) content(e manifest.Entry) error {
	f, err := s.open(e.Path)
	if err != nil {
		return changed(err, e)
	}
	defer f.Close()
	h := blake3.New()
	n, err := io.CopyBuffer(io.MultiWriter(s.w, h), io.LimitReader(f, e.Size), s.buf)
	if err != nil {
		return err
	}
	if n < e.Size || manifest.Sum(h.Sum(nil)) != e.Sum {
		return changed(io.ErrUnexpectedEOF, e)
	}
	return nil
}

func changed(err error, e manifest.Entry) error {
	return errs.Wrap(errs.Corrupt, err, "the template's file %.80q is not what was imported", e.Path).WithHint("import the template again")
}

func (s *sender) open(name string) (*os.File, error) {
	dir, base := path.Split(name)
	if dir = strings.TrimSuffix(dir, "/"); dir == "" {
		dir = "."
	}
	if s.dir == nil || s.path != dir {
		s.leave()
		d, err := s.tree.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		s.dir, s.path = d, dir
	}
	f, err := s.dir.Open(base)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(err, errors.New("no regular file"))
	}
	return f, nil
}
