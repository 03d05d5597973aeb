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
	"github.com/skete-dev/skete/template/oci"
)

// Import makes a template of an archive: the tar of a root file system, what
// `docker save` writes, an OCI layout as tar, or a bundle; plain, or packed by
// gzip, bzip2 or zstd. A template of the same name is replaced, for sandboxes
// that start from then on. "" as name: the one that a bundle has.
//
// The archive is not trusted: nothing appears outside of its tree, devices are
// left out, bytes, entries, depth and the ratio of packing bounded.
func (s *Store) Import(ctx context.Context, name string, r io.Reader) (Info, error) {
	return s.ImportFor(ctx, name, "", r)
}

// ImportFor is Import that chooses an image by its platform; "" = this machine's.
func (s *Store) ImportFor(ctx context.Context, name, platform string, r io.Reader) (Info, error) {
	if name != "" {
		if err := checkNewName(name); err != nil {
			return Info{}, err
		}
	}
	info, err := s.importArchive(ctx, name, platform, r)
	if err != nil {
		return Info{}, fmt.Errorf("import %s: %w", name, importError(err))
	}
	return info, nil
}

// ImportOver makes a template of the tar of a root file system that was made of
// the template over. Files that have stayed as they were are kept once.
func (s *Store) ImportOver(ctx context.Context, name, over string, r io.Reader) (Info, error) {
	if err := checkNewName(name); err != nil {
		return Info{}, err
	}
	info, err := s.importOver(ctx, name, over, r)
	if err != nil {
		return Info{}, fmt.Errorf("import %s: %w", name, importError(err))
	}
	return info, nil
}

func (s *Store) importOver(ctx context.Context, name, over string, r io.Reader) (Info, error) {
	was, err := s.record(over)
	if err != nil {
		return Info{}, err
	}
	tree, err := os.OpenRoot(s.Path(treesDir, was.Hash))
	if err != nil {
		return Info{}, gone(err)
	}
	defer tree.Close()
	list, err := os.Open(s.listPath(was.Hash))
	if err != nil {
		return Info{}, gone(err)
	}
	defer list.Close()
	limits := s.bounds()
	tar, done, err := oci.UnpackArchive(r, oci.ArchiveLimits{Bytes: 2*limits.Bytes + 1<<20, Ratio: limits.Ratio})
	if err != nil {
		return Info{}, err
	}
	defer done()
	return s.make(ctx, name, record{}, func(t *layerTree) error {
		if err := t.Share(tree, list); err != nil {
			return err
		}
		return applyWhole(ctx, t, tar, plainLayer)
	})
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

func (s *Store) importArchive(ctx context.Context, name, platform string, r io.Reader) (Info, error) {
	limits := s.bounds()
	a, err := oci.OpenArchive(r, oci.ArchiveLimits{Bytes: 2*limits.Bytes + 1<<20, Ratio: limits.Ratio})
	if err != nil {
		return Info{}, err
	}
	defer a.Close()
	if name == "" && a.Kind != oci.ArchiveBundle {
		return Info{}, errs.New(errs.Invalid, "the template needs a name")
	}
	if a.Kind == oci.ArchiveImage {
		return s.importImage(ctx, name, platform, a)
	}
	if a.Kind == oci.ArchiveBundle {
		return s.importBundle(ctx, name, a)
	}
	return s.make(ctx, name, record{}, func(t *layerTree) error { return applyWhole(ctx, t, a, plainLayer) })
}

// importImage keeps the archive in a file while it reads the image from it.
func (s *Store) importImage(ctx context.Context, name, platform string, a *oci.Archive) (Info, error) {
	t, err := s.Temp()
	if err != nil {
		return Info{}, err
	}
	defer t.Close()
	files, err := a.Spool(ctx, t.Dir)
	if err != nil {
		return Info{}, err
	}
	defer files.Close()
	img, err := oci.FromFiles(files, oci.Options{Platform: platform})
	if err != nil {
		return Info{}, err
	}
	return s.fromImage(ctx, name, img, nil, func(Progress) {})
}

// applyWhole lays down a tar and reads its stream to the end: what unpacks it
// checks its sums there.
func applyWhole(ctx context.Context, t *layerTree, r io.Reader, kind layerKind) error {
	if err := t.Apply(ctx, r, kind); err != nil {
		return err
	}
	if t.Stats().Entries == 0 && kind == plainLayer {
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
func (s *Store) make(ctx context.Context, name string, rec record, fill func(*layerTree) error) (Info, error) {
	temp, err := s.Temp()
	if err != nil {
		return Info{}, err
	}
	defer temp.Close()
	stats, err := s.build(ctx, temp.Dir, &rec, fill)
	if err != nil {
		return Info{}, err
	}
	rec.Bytes, rec.Skipped, rec.CreatedAt = stats.Bytes, stats.Skipped, time.Now().UTC()
	if err := syncDir(temp.Dir); err != nil {
		return Info{}, err
	}
	err = s.alone(func() error {
		if err := s.Publish(filepath.Join(temp.Dir, "list"), s.listPath(rec.Hash)); err != nil {
			return err
		}
		if err := s.Publish(filepath.Join(temp.Dir, "root"), s.Path(treesDir, rec.Hash)); err != nil {
			return err
		}
		return s.writeRecord(name, rec) // a record never names what is not there
	})
	return rec.info(name), err
}

// build makes the tree and its manifest in dir.
func (s *Store) build(ctx context.Context, dir string, rec *record, fill func(*layerTree) error) (treeStats, error) {
	tree := filepath.Join(dir, "root")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return treeStats{}, err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return treeStats{}, err
	}
	defer root.Close()
	limits := s.bounds()
	t := newLayerTree(root, layerLimits{Bytes: limits.Bytes, Entries: limits.Entries})
	if err := fill(t); err != nil {
		return treeStats{}, err
	}
	if err := finish(t); err != nil {
		return treeStats{}, err
	}
	if rec.Hash, err = seal(ctx, t, filepath.Join(dir, "list")); err != nil {
		return treeStats{}, err
	}
	if rec.Want != "" && rec.Want != rec.Hash {
		return treeStats{}, errs.New(errs.Corrupt, "the root file system is not the one that was announced")
	}
	rec.Languages = languagesIn(Rootfs{Dir: tree, Env: rec.environment(rootView{Dir: tree})})
	return t.Stats(), nil
}

// alone runs what publishes or deletes, one at a time between all processes.
func (s *Store) alone(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.Lock(context.Background(), sweepKey)
	if err != nil {
		return err
	}
	defer unlock()
	return do()
}

func seal(ctx context.Context, t *layerTree, path string) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash, err := t.Seal(ctx, f)
	return hash, errors.Join(err, f.Close())
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
	switch err = oci.ArchiveFault(err); {
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
func finish(t *layerTree) error {
	points := mountPoints()
	for _, name := range points.paths() {
		n := points[name]
		a := Attr{Mode: uint32(n.mode.Perm())}
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
