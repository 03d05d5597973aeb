package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

const lostFound = lostAndFound

func (s *Store) listPath(hash string) string  { return s.Path(listsDir, hash+".list") }
func (s *Store) imagePath(hash string) string { return s.Path(imagesDir, hash+".ext4") }

// Image returns the path of a root file system as a read-only ext4 image. It
// is made at the first call, once, however many ask, in other processes too.
// Unsupported: the template host has none, since it shows the host's files.
func (s *Store) Image(ctx context.Context, root Rootfs) (string, error) {
	if root.Name == HostName || !hashForm().MatchString(root.Hash) || root.Dir == s.Path(treesDir, hostPrefix+root.Hash) {
		return "", errs.New(errs.Unsupported, "the template host shows this host's own files; a machine with a kernel of its own cannot start from it").
			WithHint("`skete template list` shows others, `skete template pull debian` or `skete template import NAME FILE` adds one")
	}
	path := s.imagePath(root.Hash)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := s.Lock(ctx, "image-"+root.Hash)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := s.makeImage(ctx, root.Hash, path); err != nil {
		return "", fmt.Errorf("image of template %s: %w", root.Name, err)
	}
	return path, nil
}

func (s *Store) makeImage(ctx context.Context, hash, path string) error {
	tree, err := os.OpenRoot(s.Path(treesDir, hash))
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	list, err := os.Open(s.listPath(hash))
	if err != nil {
		return gone(err)
	}
	defer list.Close()
	t, err := s.Temp()
	if err != nil {
		return err
	}
	defer t.Close()
	f, err := os.OpenFile(filepath.Join(t.Dir, "image"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = writeDisk(ctx, tree, list, f)
	if err = errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close()); err != nil {
		return spaceError(err)
	}
	return s.Publish(f.Name(), path)
}

func gone(err error) error {
	return errs.Wrap(errs.Corrupt, err, "the template's files are gone, or are of an older form").WithHint("import the template again")
}

func spaceError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Wrap(errs.Limit, err, "no space left on the host")
	}
	return err
}
