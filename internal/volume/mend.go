package volume

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/confine"
)

const (
	// mendFreeMin must be free where the images are before one is checked or its
	// journal is played back: both write, and half of it would be worse than none.
	mendFreeMin  = 8 << 20
	checkTimeout = 10 * time.Minute
)

// errFull is what a caller sees while the images' file system has no room.
func errFull(cause error, free int64) error {
	return errs.Wrap(errs.Unavailable, cause, "the server's disk is full: the file system of its volumes has %d MB left, and %d are needed", free>>20, mendFreeMin>>20).
		WithHint("free some space there; nothing that was synced is lost")
}

// Dir is the directory of all volumes.
func (s *Store) Dir() string { return s.dir }

// Space is how many bytes the file system of a directory has, and has left.
func Space(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// full returns errFull if there is no room, else nil.
func (s *Store) full(cause error) error {
	if _, free, err := Space(s.dir); err == nil && free < mendFreeMin {
		return errFull(cause, free)
	}
	return nil
}

// ReadOnly names the volumes that are mounted and take no writes any more: the
// host could not write to their image, and the kernel gave up.
func (s *Store) ReadOnly() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ids []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if id := s.refuses(lines.Text()); id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// refuses returns which volume's mount, one that takes no writes, a line of
// mountinfo is; "" = none. Before Linux 6.15 the kernel turns such a file system
// to ro; since then it says emergency_ro.
func (s *Store) refuses(line string) string {
	front, back, _ := strings.Cut(line, " - ")
	fields, super := strings.Fields(front), strings.Fields(back)
	if len(fields) < 6 || len(super) < 3 || super[0] != "ext4" {
		return ""
	}
	below, ok := strings.CutPrefix(unescape.Replace(fields[4]), s.dir+"/")
	id, found := strings.CutSuffix(below, "/"+dataName)
	if !ok || !found || strings.Contains(id, "/") {
		return ""
	}
	for option := range strings.SplitSeq(super[2], ",") {
		if option == "ro" || option == "emergency_ro" || option == "shutdown" {
			return id
		}
	}
	return ""
}

func (s *Store) readOnly(id string) (bool, error) {
	ids, err := s.ReadOnly()
	return slices.Contains(ids, id), err
}

// Broken says why nothing can be written to a volume that is attached; nil = it
// can be.
func (s *Store) Broken(id string) error {
	if ro, err := s.readOnly(id); err != nil || !ro {
		return err
	}
	return errs.New(errs.Unavailable, "the workspace takes no writes any more, since the server's disk was full or has failed").
		WithHint("it is checked and writable again after a stop and a start, as soon as there is room")
}

// Mend checks a volume's file system if errors were found in it, so that it can be
// mounted and written again. It is mounted nowhere, here or in a machine. Nothing
// happens to one that is whole.
//
// Unavailable: there is no room to do it, or it is still in use. Corrupt: a person
// must look.
func (s *Store) Mend(ctx context.Context, id string) error {
	dir, err := s.at(id)
	if err != nil {
		return err
	}
	if ro, err := s.readOnly(id); err != nil || ro {
		return errors.Join(err, s.release(ctx, dir))
	}
	return s.mend(ctx, filepath.Join(dir, imageName))
}

// release lets go of a file system that takes no writes any more, and checks it.
func (s *Store) release(ctx context.Context, dir string) error {
	image, data := filepath.Join(dir, imageName), filepath.Join(dir, dataName)
	if err := s.full(nil); err != nil {
		return err
	}
	thaw(data)
	if err := unmount(ctx, data); err != nil {
		return err
	}
	for range unmountTries { // the kernel frees the device a moment later
		if held, err := inUse(image); err != nil || !held {
			return errors.Join(err, s.mend(ctx, image))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unmountPause):
		}
	}
	return errHeld(unix.EROFS)
}

// inUse reports whether a loop device is still over an image.
func inUse(image string) (bool, error) {
	file, err := os.OpenFile(image, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	loop := presentLoop(file)
	if loop == nil {
		return false, nil
	}
	return true, loop.Close()
}

// Of ext4's superblock.
const (
	superblockAt   = 1024
	superblockSize = 0x100
	magicAt        = 0x38
	stateAt        = 0x3a
	incompatAt     = 0x60
	magic          = 0xef53
	stateErrors    = 0x2
	needsRecovery  = 0x4
)

// mend checks an image that is not mounted, if the kernel found errors in it.
func (s *Store) mend(ctx context.Context, image string) error {
	errored, replay, err := condition(image)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a plain directory
	}
	if err != nil || !errored && !replay {
		return err
	}
	if err := s.full(nil); err != nil || !errored {
		return err // the kernel plays a journal back by itself
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "e2fsck", "-p", image)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	out, err := confine.CombinedOutput(cmd, confine.Rights{Write: []string{image}}) // what is in it, a sandbox wrote
	const corrected = 1                                                             // e2fsck's exit status, a sum; those above it say what is left
	if err == nil || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == corrected {
		return nil
	}
	err = fmt.Errorf("e2fsck %s: %w: %.500q", image, err, out)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return errs.Wrap(errs.Unsupported, err, "the workspace's file system must be checked, and e2fsck is not installed").WithHint("apt install e2fsprogs")
	}
	if full := s.full(err); full != nil {
		return full
	}
	return errs.Wrap(errs.Corrupt, err, "the workspace's file system is damaged").
		WithHint("the operator can run `e2fsck -f` over its image; the server's log says which")
}

// condition reads what an image says of itself: the kernel found errors in it;
// its journal must be played back.
func condition(image string) (errored, replay bool, err error) {
	f, err := os.Open(image)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	block := make([]byte, superblockSize)
	if _, err := f.ReadAt(block, superblockAt); err != nil {
		if errors.Is(err, io.EOF) {
			err = errs.Wrap(errs.Corrupt, err, "the workspace's image is cut off")
		}
		return false, false, err
	}
	if binary.LittleEndian.Uint16(block[magicAt:]) != magic {
		return false, false, errs.New(errs.Corrupt, "the workspace's image is no file system")
	}
	errored = binary.LittleEndian.Uint16(block[stateAt:])&stateErrors != 0
	replay = binary.LittleEndian.Uint32(block[incompatAt:])&needsRecovery != 0
	return errored, replay, nil
}

// Held says how many bytes of the host a volume has, and how many more are in the
// kernel's memory on their way there.
func (s *Store) Held(id string) (held, pending int64, err error) {
	dir, err := s.at(id)
	if err != nil {
		return 0, 0, err
	}
	var image unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, imageName), &image); err != nil {
		return 0, 0, ignoreMissing(err) // a plain directory: Usage is for those
	}
	held = image.Blocks * 512
	data := filepath.Join(dir, dataName)
	var st unix.Statfs_t
	if on, err := mounted(data); err != nil || !on || unix.Statfs(data, &st) != nil {
		return held, 0, ignoreMissing(err)
	}
	return held, max(int64(st.Blocks-st.Bfree)*st.Bsize-held, 0), nil
}

// Pending says how many bytes the host's memory holds for all volumes together.
func (s *Store) Pending() (sum int64) {
	ids, _ := s.List(context.Background())
	for _, id := range ids {
		if _, pending, err := s.Held(id); err == nil {
			sum += pending
		}
	}
	return sum
}
