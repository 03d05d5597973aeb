package template

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
)

// # Disk image
//
// A root file system is written as a read-only ext4 image.
//
//	err := writeDisk(ctx, tree, manifestFile, image)
//
// It needs no root, no loop device and no program: names, owners, modes and
// attributes are the manifest's, only the contents are the tree's, so the image
// of a tree that an ordinary user unpacked is the same as root's. The same
// manifest gives the same image, byte for byte.
//
// The image has no journal, no free blocks and the feature read-only: it is
// mounted read-only, below a writable layer, or not at all.

const (
	diskEntriesMax = 1_100_000 // an import's bound and what is added to it
	// diskSizeMax is far beyond what a tree may have; the writer reserves 32 bytes
	// for each 128 MiB of it.
	diskSizeMax = 256 << 30
	// lostAndFound is the directory that every ext4 has at its root.
	lostAndFound = "lost+found"
)

// writeDisk makes the image. Corrupt: the tree is not what the manifest says.
// After an error what stands in image is of no use.
func writeDisk(ctx context.Context, tree *os.Root, list io.Reader, image io.ReadWriteSeeker) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := tarTree(ctx, tree, list, w)
		_ = w.CloseWithError(err)
		done <- err
	}()
	err := tar2ext4.ConvertTarToExt4(r, image, tar2ext4.MaximumDiskSize(diskSizeMax))
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the end of the tar
	}
	_ = r.CloseWithError(errors.New("the image could not be written"))
	if tarErr := <-done; tarErr != nil && err != nil && !errors.Is(tarErr, io.ErrClosedPipe) {
		return firstFailure(tarErr, err)
	}
	return err
}

// firstFailure is the cause: the side that failed first told the other.
func firstFailure(tarErr, imageErr error) error {
	var own *errs.Error
	if errors.As(tarErr, &own) || errors.Is(imageErr, tarErr) {
		return tarErr
	}
	return fmt.Errorf("%w (%w)", imageErr, tarErr)
}

// tarTree writes the tree as a tar with all that the manifest says.
func tarTree(ctx context.Context, tree *os.Root, list io.Reader, w io.Writer) error {
	s := tarSender{tree: tree, w: tar.NewWriter(w), buf: make([]byte, 256<<10)}
	defer s.leave()
	err := readManifest(list, diskEntriesMax, func(e entry) error {
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

type tarSender struct {
	tree *os.Root
	w    *tar.Writer
	buf  []byte
	dir  *os.Root // the directory of the last file, kept open
	path string
}

func (s *tarSender) leave() {
	if s.dir != nil {
		_ = s.dir.Close()
		s.dir = nil
	}
}

func (s *tarSender) send(e entry) error {
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
	case entryDir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		if e.Path == "" {
			h.Name = "./"
		}
	case entrySymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case entryLink:
		*h = tar.Header{Typeflag: tar.TypeLink, Name: e.Path, Linkname: e.Target, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	case entryFile:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	if err := s.w.WriteHeader(h); err != nil {
		return fmt.Errorf("the entry %.80q: %w", e.Path, err)
	}
	if e.Kind == entryFile && e.Size > 0 {
		return s.content(e)
	}
	return nil
}

func (s *tarSender) content(e entry) error {
	f, err := s.open(e.Path)
	if err != nil {
		return changedError(err, e)
	}
	defer f.Close()
	h := blake3.New()
	n, err := io.CopyBuffer(io.MultiWriter(s.w, h), io.LimitReader(f, e.Size), s.buf)
	if err != nil {
		return err
	}
	if n < e.Size || contentSum(h.Sum(nil)) != e.Sum {
		return changedError(io.ErrUnexpectedEOF, e)
	}
	return nil
}

func changedError(err error, e entry) error {
	return errs.Wrap(errs.Corrupt, err, "the template's file %.80q is not what was imported", e.Path).WithHint("import the template again")
}

func (s *tarSender) open(name string) (*os.File, error) {
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
