package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/volume/layout"
)

// Bounds of one volume's size.
const (
	BytesMin = 16 << 20 // below it ext4 has no room for a journal
	bytesMax = 8 << 40
)

// Methods.
const (
	MethodImage   = "image"   // a mounted file: enforced by the host's kernel
	MethodWatched = "watched" // a plain directory
)

// Volume is a directory of bounded size.
type Volume struct {
	Path string
	// Disk is the directory that Path lies in, on the same file system, of
	// which no machine sees anything else (package layout); "" = not mounted.
	Disk string
	// Enforced: the host refuses bytes beyond the size at once. Else the caller
	// must look at Usage from time to time.
	Enforced bool
	Method   string
}

// Store keeps volumes in a directory.
type Store struct {
	dir string

	making sync.Mutex // held while a blank is made: one at a time

	mu     sync.Mutex // guards reason; held for a moment only
	reason error      // why images cannot be made here; nil = they can

	copies sync.Mutex     // guards copied; held for a moment only
	copied map[string]int // mount points that are frozen for a copy, perhaps
}

// Names in a volume's directory.
const (
	imageName = "image" // there once the image is whole
	dataName  = "data"  // the mount point, or the plain directory
	blankDir  = ".blank"
)

// Open makes the directory if need be. It holds no resources.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open volumes: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as the kernel lists mounts
		return nil, fmt.Errorf("open volumes: %w", err)
	}
	s := &Store{dir: dir, copied: map[string]int{}}
	s.reason = findImages()
	return s, nil
}

// findImages looks for what images need; a look, not a trial.
func findImages() error {
	if os.Geteuid() != 0 {
		return errs.New(errs.Unsupported, "only root can mount images")
	}
	if _, err := os.Stat(loopControl); err != nil {
		return errs.Wrap(errs.Unsupported, err, "no loop devices").WithHint("modprobe loop")
	}
	_, err := ext4.Look()
	return err
}

// Weakness says why volumes are not enforced here; nil when they are.
func (s *Store) Weakness() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

var idForm = pattern.Lazy(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// at returns the directory of an id.
func (s *Store) at(id string) (string, error) {
	if !idForm().MatchString(id) {
		return "", errs.New(errs.Invalid, "%.80q is not a volume id", id)
	}
	return filepath.Join(s.dir, id), nil
}

// Create makes and attaches a volume. Whatever there is of the same id is
// removed first: it was left half-made.
func (s *Store) Create(ctx context.Context, id string, bytes int64) (Volume, error) {
	return s.make(ctx, id, bytes, s.Attach)
}

// CreateDisk is Create for one who mounts the image by himself: see AttachDisk.
func (s *Store) CreateDisk(ctx context.Context, id string, bytes int64) (Volume, error) {
	return s.make(ctx, id, bytes, s.AttachDisk)
}

type attach func(ctx context.Context, id string) (Volume, error)

func (s *Store) make(ctx context.Context, id string, bytes int64, show attach) (Volume, error) {
	dir, err := s.at(id)
	if err != nil {
		return Volume{}, err
	}
	if bytes < BytesMin || bytes > bytesMax {
		return Volume{}, errs.New(errs.Invalid, "a volume has %d to %d bytes", int64(BytesMin), int64(bytesMax))
	}
	bytes = bytes &^ 4095
	if err := s.Remove(ctx, id); err != nil {
		return Volume{}, err
	}
	err = s.create(ctx, dir, bytes)
	var v Volume
	if err == nil {
		v, err = show(ctx, id)
	}
	if err != nil {
		return Volume{}, errors.Join(fmt.Errorf("create volume %s: %w", id, err), s.Remove(context.WithoutCancel(ctx), id))
	}
	return v, nil
}

func (s *Store) create(ctx context.Context, dir string, bytes int64) error {
	blank, err := s.blank(ctx, bytes)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if blank != nil {
		defer blank.Close()
		if err := copyImage(dir, blank); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(dir, dataName), 0o755)
}

// copyImage makes the image of the volume in dir: whole or not there.
func copyImage(dir string, from *os.File) error {
	temp := filepath.Join(dir, imageName+".new")
	if err := copySparse(temp, from); err != nil {
		return limit(err)
	}
	return os.Rename(temp, filepath.Join(dir, imageName))
}

// limit gives a full host disk its class.
func limit(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Wrap(errs.Unavailable, err, "the server's disk is full: there is no room for a workspace").
			WithHint("free some space where the server keeps its volumes")
	}
	return err
}

// Attach makes the volume's path usable. It is no error when it is already.
func (s *Store) Attach(ctx context.Context, id string) (Volume, error) {
	dir, err := s.at(id)
	if err != nil {
		return Volume{}, err
	}
	if err := ctx.Err(); err != nil {
		return Volume{}, err
	}
	data, image := filepath.Join(dir, dataName), filepath.Join(dir, imageName)
	if _, err := os.Lstat(data); errors.Is(err, fs.ErrNotExist) {
		return Volume{}, errs.New(errs.NotFound, "no volume %s", id)
	} else if err != nil {
		return Volume{}, err
	}
	v := Volume{Path: filepath.Join(data, layout.Files), Disk: data, Method: MethodWatched}
	if _, err := os.Lstat(image); err == nil {
		v.Enforced, v.Method = true, MethodImage
		on, err := mounted(data)
		if err != nil {
			return v, err
		}
		if err := s.mount(ctx, id, dir, on); err != nil {
			return Volume{}, fmt.Errorf("attach volume %s: %w", id, err)
		}
	}
	err = layout.Arrange(data)
	if v.Method == MethodImage && refused(err) != nil && s.release(ctx, dir) == nil { // what held it has just ended
		if err = s.mount(ctx, id, dir, false); err == nil {
			err = layout.Arrange(data)
		}
	}
	if err != nil {
		return Volume{}, cmp.Or(s.full(err), refused(err), err)
	}
	return v, nil
}

// refused says what a file system is about that the kernel has given up and that
// cannot be checked yet, since something holds it; nil = it is something else.
func refused(err error) error {
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EROFS) {
		return nil
	}
	return errHeld(err)
}

func errHeld(cause error) error {
	return errs.Wrap(errs.Unavailable, cause, "the workspace takes no writes any more, since the server's disk was full or has failed, and it cannot be checked while something holds it").
		WithHint("stop the sandbox, see to room on the server's disk, and start it again; should that say the same, the server's log says which image `e2fsck -f` must check")
}

// mount mounts an image, or sees to it that one that is mounted can be written.
// One that the kernel made read-only is checked first, if no machine has it.
func (s *Store) mount(ctx context.Context, id, dir string, on bool) error {
	image, data := filepath.Join(dir, imageName), filepath.Join(dir, dataName)
	if !on {
		held, err := inUse(image)
		if err == nil && !held {
			err = s.mend(ctx, image)
		}
		if err == nil {
			err = s.show(image, data)
		}
		if err != nil || !held {
			return err
		}
	}
	// It is the file system that there was, held here or in another namespace.
	if ro, err := s.readOnly(id); err != nil || !ro {
		if err == nil && !s.copying(data) {
			thaw(data)
		}
		return err
	}
	if err := s.release(ctx, dir); err != nil {
		return err
	}
	return s.show(image, data)
}

func (s *Store) show(image, data string) error {
	err := mountImage(image, data)
	if err == nil {
		return nil
	}
	return cmp.Or(s.full(err), err)
}

// AttachDisk leaves the volume to a virtual machine: Path is the image, an ext4
// file system that nothing on the host has mounted from then on. Unsupported:
// it is a plain directory.
func (s *Store) AttachDisk(ctx context.Context, id string) (Volume, error) {
	dir, err := s.at(id)
	if err != nil {
		return Volume{}, err
	}
	image := filepath.Join(dir, imageName)
	if _, err := os.Lstat(image); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(dir, dataName)); err != nil {
			return Volume{}, errs.New(errs.NotFound, "no volume %s", id)
		}
		return Volume{}, errs.Wrap(errs.Unsupported, s.Weakness(), "volume %s is a directory of the host, not a disk", id).
			WithHint("disks need root, loop devices and mkfs.ext4; `skete doctor` says which is missing")
	}
	if err := s.Detach(ctx, id); err != nil {
		return Volume{}, err
	}
	return Volume{Path: image, Enforced: true, Method: MethodImage}, nil
}

// Copy makes a volume that holds what another one holds now, and is not
// attached. The caller sees to it that no process writes to the source; a mounted
// one is frozen all the same, so that the copy is a file system as after a
// clean unmount. Blocks are shared where the host's file system can.
func (s *Store) Copy(ctx context.Context, from, to string) error {
	source, err := s.at(from)
	if err != nil {
		return err
	}
	dir, err := s.at(to)
	if err != nil {
		return err
	}
	if err := s.Remove(ctx, to); err != nil {
		return err
	}
	if err := s.copy(source, dir); err != nil {
		return errors.Join(fmt.Errorf("copy volume %s: %w", from, err), s.Remove(context.WithoutCancel(ctx), to))
	}
	return nil
}

func (s *Store) copy(source, dir string) error {
	data, image := filepath.Join(source, dataName), filepath.Join(source, imageName)
	if _, err := os.Lstat(data); err != nil {
		return errs.Wrap(errs.NotFound, err, "no such volume")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(image); errors.Is(err, fs.ErrNotExist) {
		return copyTree(data, filepath.Join(dir, dataName))
	}
	s.copies.Lock()
	s.copied[data]++
	s.copies.Unlock()
	defer func() {
		s.copies.Lock()
		defer s.copies.Unlock()
		if s.copied[data]--; s.copied[data] == 0 {
			delete(s.copied, data)
		}
	}()
	thaw, err := freeze(data)
	if err != nil {
		return err
	}
	defer thaw()
	from, err := os.Open(image)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := copyImage(dir, from); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(dir, dataName), 0o755)
}

// copying tells whether a volume may be frozen because we copy it.
func (s *Store) copying(data string) bool {
	s.copies.Lock()
	defer s.copies.Unlock()
	return s.copied[data] > 0
}

// Detach unmounts; the bytes stay. It may be repeated.
func (s *Store) Detach(ctx context.Context, id string) error {
	dir, err := s.at(id)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, dataName)
	if on, err := mounted(data); err != nil || !on {
		return ignoreMissing(err)
	}
	thaw(data)
	flush(data)
	return unmount(ctx, data)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove deletes a volume, attached or not. It is no error if there is none.
func (s *Store) Remove(ctx context.Context, id string) error {
	dir, err := s.at(id)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, dataName)
	for range mountsMax { // one upon the other, should that ever be
		on, err := mounted(data)
		if err != nil || !on {
			if err := ignoreMissing(err); err != nil {
				return err
			}
			break
		}
		thaw(data)
		if err := unmount(ctx, data); err != nil {
			return fmt.Errorf("remove volume %s: %w", id, err)
		}
	}
	// A mount that is still there must not be emptied as a directory. The
	// mount point of an image is empty: Remove refuses anything else.
	if _, err := os.Lstat(filepath.Join(dir, imageName)); err == nil {
		if err := ignoreMissing(os.Remove(data)); err != nil {
			return fmt.Errorf("remove volume %s: %w", id, err)
		}
	}
	return os.RemoveAll(dir)
}

// List names all volumes, half-made ones included.
func (s *Store) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if idForm().MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Usage says how many bytes the volume holds.
func (s *Store) Usage(ctx context.Context, id string) (int64, error) {
	dir, err := s.at(id)
	if err != nil {
		return 0, err
	}
	data := filepath.Join(dir, dataName)
	on, err := mounted(data)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errs.New(errs.NotFound, "no volume %s", id)
	}
	if err != nil {
		return 0, err
	}
	if on {
		var st unix.Statfs_t
		if err := unix.Statfs(data, &st); err != nil {
			return 0, err
		}
		return int64(st.Blocks-st.Bfree) * st.Bsize, nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, imageName), &st); err == nil {
		return st.Blocks * 512, nil
	}
	return treeBytes(ctx, data)
}

// treeBytes adds up a plain directory. The guest may change it meanwhile;
// os.Root keeps us inside whatever it does.
func treeBytes(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || d == nil {
			return nil // gone meanwhile
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				total += st.Blocks * 512
			}
		}
		return nil
	})
	return total, err
}
