package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Ways to bound a volume.
const (
	MethodImage   = "image"   // ext4 on a loop device
	MethodWatched = "watched" // not bounded: somebody must look
)

// BytesMin is the least size of a volume: below it ext4 has no room for a journal.
const BytesMin = 16 << 20

const (
	imageSuffix = ".img"
	inner       = "w" // the volume's own directory, beside ext4's lost+found
	blankDir    = ".blank"
	probeID     = "probe"
)

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_]{0,63}$`)

// Volume is one directory.
type Volume struct {
	Path     string
	Enforced bool
	Method   string
}

// Store keeps volumes beneath one directory.
type Store struct {
	dir  string
	weak error // why images cannot be had; nil = they can
}

// Open opens or makes a store. It really makes a small image once to learn
// whether this machine can; Weakness says why not.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, blankDir), 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	s.weak = s.probe()
	return s, nil
}

// Weakness is nil where sizes are enforced, else the reason why they are not.
func (s *Store) Weakness() error { return s.weak }

func (s *Store) probe() error {
	if os.Geteuid() != 0 {
		return errs.New(errs.Unsupported, "only root can mount a volume of bounded size")
	}
	if _, err := mkfsPath(); err != nil {
		return err
	}
	ctx := context.Background()
	_, err := s.createImage(ctx, probeID, BytesMin)
	return errors.Join(err, s.Remove(ctx, probeID))
}

func (s *Store) image(id string) string { return filepath.Join(s.dir, id+imageSuffix) }
func (s *Store) mount(id string) string { return filepath.Join(s.dir, id) }
func (s *Store) path(id string) string  { return filepath.Join(s.dir, id, inner) }

func check(id string) error {
	if !idForm.MatchString(id) {
		return errs.New(errs.Invalid, "%.40q is no volume id", id)
	}
	return nil
}

// Create makes and mounts a volume of so many bytes, empty. One of the same id
// is removed before. Limit: the host's disk is full.
func (s *Store) Create(ctx context.Context, id string, bytes int64) (Volume, error) {
	if err := check(id); err != nil {
		return Volume{}, err
	}
	if bytes < BytesMin {
		return Volume{}, errs.New(errs.Invalid, "a volume has at least %d MiB", BytesMin>>20)
	}
	if err := s.Remove(ctx, id); err != nil {
		return Volume{}, err
	}
	make := s.createImage
	if s.weak != nil {
		make = s.createPlain
	}
	v, err := make(ctx, id, bytes)
	if err != nil {
		err = errors.Join(err, s.Remove(context.WithoutCancel(ctx), id))
		if errors.Is(err, syscall.ENOSPC) {
			return Volume{}, errs.Wrap(errs.Limit, err, "the host's disk is full")
		}
		return Volume{}, err
	}
	return v, nil
}

func (s *Store) createPlain(_ context.Context, id string, _ int64) (Volume, error) {
	return s.volume(id, false), os.MkdirAll(s.path(id), 0o700)
}

func (s *Store) createImage(ctx context.Context, id string, bytes int64) (Volume, error) {
	blank, err := s.blank(ctx, bytes)
	if err != nil {
		return Volume{}, err
	}
	if err := copySparse(s.image(id), blank); err != nil {
		return Volume{}, fmt.Errorf("copy a blank image: %w", err)
	}
	if err := s.attachImage(id); err != nil {
		return Volume{}, err
	}
	return s.volume(id, true), os.Mkdir(s.path(id), 0o700)
}

func (s *Store) volume(id string, image bool) Volume {
	if image {
		return Volume{Path: s.path(id), Enforced: true, Method: MethodImage}
	}
	return Volume{Path: s.path(id), Method: MethodWatched}
}

// Attach mounts a volume again after Detach or a reboot; it is no error when
// it is mounted. NotFound: there is none.
func (s *Store) Attach(_ context.Context, id string) (Volume, error) {
	if err := check(id); err != nil {
		return Volume{}, err
	}
	_, err := os.Stat(s.image(id))
	image := err == nil
	if image {
		err = s.attachImage(id)
	} else {
		_, err = os.Stat(s.path(id))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Volume{}, errs.Wrap(errs.NotFound, err, "volume %s is not there", id)
	}
	if err != nil {
		return Volume{}, fmt.Errorf("attach volume %s: %w", id, err)
	}
	return s.volume(id, image), nil
}

func (s *Store) attachImage(id string) error {
	if err := os.MkdirAll(s.mount(id), 0o700); err != nil {
		return err
	}
	if mounted, err := isMount(s.mount(id)); err != nil || mounted {
		return err
	}
	return mountImage(s.image(id), s.mount(id))
}

// Detach unmounts; what is in the volume stays. May be repeated.
func (s *Store) Detach(ctx context.Context, id string) error {
	if err := check(id); err != nil {
		return err
	}
	mounted, err := isMount(s.mount(id))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
		return nil
	}
	if err != nil {
		return err
	}
	return unmount(ctx, s.mount(id))
}

// Remove deletes a volume, mounted or not, whole or half made. It is no error
// if there is none.
func (s *Store) Remove(ctx context.Context, id string) error {
	if err := s.Detach(ctx, id); err != nil {
		return err
	}
	if err := os.Remove(s.image(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(s.mount(id))
}

// List names all volumes, half-made ones included.
func (s *Store) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries { // sorted: ID and ID.img are neighbours
		id := strings.TrimSuffix(e.Name(), imageSuffix)
		if check(id) == nil && (len(ids) == 0 || ids[len(ids)-1] != id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Usage returns how many bytes the volume's content takes on disk. Files that
// vanish meanwhile do not count.
func (s *Store) Usage(ctx context.Context, id string) (int64, error) {
	if err := check(id); err != nil {
		return 0, err
	}
	if mounted, err := isMount(s.mount(id)); err == nil && mounted {
		var st unix.Statfs_t
		if err := unix.Statfs(s.mount(id), &st); err != nil {
			return 0, err
		}
		return int64(st.Blocks-st.Bfree) * st.Bsize, nil
	}
	root, err := os.OpenRoot(s.path(id)) // the guest may swap directories for links under our feet
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errs.Wrap(errs.NotFound, err, "volume %s is not there", id)
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	return usage(ctx, root)
}

func usage(ctx context.Context, root *os.Root) (sum int64, err error) {
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // it vanished
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err
}
