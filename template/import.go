package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/archive"
	"github.com/skete-dev/skete/template/layer"
)

// Import makes a template of an archive: the tar of a root file system, what
// `docker save` writes, an OCI layout as tar, or a bundle; plain, or packed by
// gzip, bzip2 or zstd. A template of the same name is replaced, for sandboxes
// that start from then on. "" as name: the one that a bundle has.
//
// The archive is not trusted: nothing appears outside of its tree, devices are
// left out, bytes, entries, depth and the ratio of packing bounded.
func (s *Store) Import(ctx context.Context, name string, r io.Reader) (Info, error) {
	if name != "" {
		if err := checkNewName(name); err != nil {
			return Info{}, err
		}
	}
	info, err := s.importArchive(ctx, name, r)
	if err != nil {
		return Info{}, fmt.Errorf("import %s: %w", name, importError(err))
	}
	return info, nil
}

func checkNewName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if name == HostName {
		return errs.New(errs.Invalid, "the name host is taken by the built-in template")
	}
	return nil
}

func (s *Store) importArchive(ctx context.Context, name string, r io.Reader) (Info, error) {
	limits := s.bounds()
	a, err := archive.Open(r, archive.Limits{Bytes: 2*limits.Bytes + 1<<20, Ratio: limits.Ratio})
	if err != nil {
		return Info{}, err
	}
	defer a.Close()
	if name == "" && a.Kind != archive.Bundle {
		return Info{}, errs.New(errs.Invalid, "the template needs a name")
	}
	switch a.Kind {
	case archive.Rootfs:
		return s.make(ctx, name, record{}, func(t *layer.Tree) error { return applyWhole(ctx, t, a, layer.Plain) })
	}
	return Info{}, errs.New(errs.Invalid, "this is the archive of an image with layers, not of a root file system").
		WithHint("`docker export` of a container writes a root file system")
}

// applyWhole lays down a tar and reads its stream to the end: what unpacks it
// checks its sums there.
func applyWhole(ctx context.Context, t *layer.Tree, r io.Reader, kind layer.Kind) error {
	if err := t.Apply(ctx, r, kind); err != nil {
		return err
	}
	if t.Stats().Entries == 0 && kind == layer.Plain {
		return errs.New(errs.Invalid, "the archive is empty")
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

func (s *Store) bounds() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// make builds a tree aside, makes it fit for sandboxes and gives it its name.
func (s *Store) make(ctx context.Context, name string, rec record, fill func(*layer.Tree) error) (Info, error) {
	temp, err := s.Temp()
	if err != nil {
		return Info{}, err
	}
	defer temp.Close()
	dir := filepath.Join(temp.Dir, "root")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return Info{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Info{}, err
	}
	defer root.Close()
	limits := s.bounds()
	t, err := layer.New(root, layer.Limits{Bytes: limits.Bytes, Entries: limits.Entries})
	if err != nil {
		return Info{}, err
	}
	if err := fill(t); err != nil {
		return Info{}, err
	}
	if err := finish(t); err != nil {
		return Info{}, err
	}
	if rec.Hash, err = seal(ctx, t, filepath.Join(temp.Dir, "list")); err != nil {
		return Info{}, err
	}
	rec.Bytes, rec.Skipped, rec.CreatedAt = t.Stats().Bytes, t.Stats().Skipped, time.Now().UTC()
	rec.Languages = languagesIn(Rootfs{Dir: dir, Env: environment(view{dir: dir})})
	if err := s.name(temp.Dir, name, rec); err != nil {
		return Info{}, err
	}
	return rec.info(name), nil
}

func seal(ctx context.Context, t *layer.Tree, path string) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash, err := t.Seal(ctx, f)
	return hash, errors.Join(err, f.Close())
}

// name publishes the tree and then its record: a record never names what is
// not there. The lock keeps a sweep from coming between.
func (s *Store) name(temp, name string, rec record) error {
	if err := syncDir(temp); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.Lock(context.Background(), sweepKey)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.Publish(filepath.Join(temp, "list"), s.listPath(rec.Hash)); err != nil {
		return err
	}
	if err := s.Publish(filepath.Join(temp, "root"), s.Path(treesDir, rec.Hash)); err != nil {
		return err
	}
	return s.writeRecord(name, rec)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// importError gives the file system's errors a class; whatever an archive can
// provoke is the archive's fault.
func importError(err error) error {
	var own *errs.Error
	var errno unix.Errno
	switch err = archive.Fault(err); {
	case errors.As(err, &own), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errs.Wrap(errs.Limit, err, "no space left on the host")
	case errors.As(err, &errno) && errno != unix.EIO:
		return errs.Wrap(errs.Invalid, err, "the archive holds what cannot be unpacked: %s", errno.Error())
	}
	return err
}

// finish makes a tree fit for a sandbox: mount points that are real
// directories, the user, a name server file of its own.
func finish(t *layer.Tree) error {
	points := mountPoints()
	for _, name := range points.paths() {
		n := points[name]
		a := layer.Attr{Mode: uint32(n.mode.Perm())}
		if n.mode&fs.ModeSticky != 0 {
			a.Mode |= unix.S_ISVTX
		}
		if n.user {
			a.UID, a.GID = userID, userID
		}
		if err := t.Dir(name, a, !n.user && n.mode&fs.ModeSticky == 0); err != nil {
			return err
		}
	}
	// Every ext4 has one of its own.
	if err := t.Remove(lostFound); err != nil {
		return err
	}
	return finishEtc(t)
}
