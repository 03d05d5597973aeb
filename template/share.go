package template

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// linkedBytesMin is the size from which a file may be a hard link to another
// tree's. Programs see how many names a file has, and some (cron, for what it
// is to run) refuse one that has more than they expect; such files are small.
const linkedBytesMin = 16 << 10

// parentOf is a sealed tree whose files ours may share.
type parentOf struct {
	root  *os.Root
	files map[string]Attr // by path; of a file with several names only the first
	// noClones: the file system said that it has none.
	noClones bool
}

// Share lets files that are as they are in a sealed tree, at the same path, take
// no room of their own, so that trees made of each other cost what differs: they
// are clones where the file system has such, else hard links if they are large.
// list is the other tree's manifest. No process may ever write into either. root
// stays the caller's and must stay open until the tree is sealed.
//
// What is shared is compared byte by byte with what is really there, and what
// cannot be shared is written as ever.
func (t *layerTree) Share(root *os.Root, list io.Reader) error {
	p := &parentOf{root: root, files: map[string]Attr{}}
	err := readManifest(list, t.limits.Entries, func(e entry) error {
		if e.Kind == entryFile {
			p.files[e.Path] = Attr{Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime, Xattrs: e.Xattrs}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.parent = p
	return nil
}

func (a Attr) equal(b Attr) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.MTime.Equal(b.MTime) && maps.Equal(a.Xattrs, b.Xattrs)
}

// like opens the parent's file of this name if it has these attributes, in the
// manifest and on the disk; nil = there is none.
func (t *layerTree) like(p place, a Attr) *os.File {
	if t.parent == nil {
		return nil
	}
	was, ok := t.parent.files[p.full()]
	if !ok || !was.equal(a) {
		return nil
	}
	f, err := t.parent.root.OpenFile(p.full(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || !t.onDisk(&st, a) {
		_ = f.Close()
		return nil
	}
	return f
}

// onDisk reports whether a file is as we would make it. One that a process with
// other rights made is not.
func (t *layerTree) onDisk(st *unix.Stat_t, a Attr) bool {
	mode, uid, gid := a.Mode, a.UID, a.GID
	if !t.owner {
		mode, uid, gid = mode&0o777|0o600, uint32(os.Geteuid()), st.Gid
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o7777 == mode && st.Uid == uid && st.Gid == gid &&
		st.Mtim.Nano() == a.MTime.UnixNano()
}

// cloneParent makes a file of our own, in an empty place, that shares the
// blocks of the parent's. Most file systems cannot.
func (t *layerTree) cloneParent(p place, was *os.File, a Attr) bool {
	if t.parent.noClones {
		return false
	}
	fd, err := t.enter(p.path)
	if err != nil {
		return false
	}
	raw, err := unix.Openat(fd, p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(raw), p.name)
	defer f.Close()
	if err = unix.IoctlFileClone(raw, int(was.Fd())); err == nil {
		if err = t.setFile(f, a); err == nil {
			err = unix.UtimesNanoAt(fd, p.name, stamps(a.MTime), unix.AT_SYMLINK_NOFOLLOW)
		}
	} else {
		t.parent.noClones = true
	}
	if err != nil {
		_ = unix.Unlinkat(fd, p.name, 0)
	}
	return err == nil
}

// linkParent gives the parent's open file one more name, in an empty place.
func (t *layerTree) linkParent(p place, f *os.File) bool {
	dir, base := path.Split(p.full())
	from, err := t.parent.root.Open(cleanOr(strings.TrimSuffix(dir, "/")))
	if err != nil {
		return false
	}
	defer from.Close()
	fd, err := t.enter(p.path)
	if err != nil || unix.Linkat(int(from.Fd()), base, fd, p.name, 0) != nil {
		return false
	}
	var was, is unix.Stat_t
	if unix.Fstat(int(f.Fd()), &was) == nil && unix.Fstatat(fd, p.name, &is, unix.AT_SYMLINK_NOFOLLOW) == nil && was.Ino == is.Ino && was.Dev == is.Dev {
		return true
	}
	_ = unix.Unlinkat(fd, p.name, 0) // the parent was changed meanwhile
	return false
}

// shared reads a file's content and shares the parent's file if it is the same.
// Otherwise done is false, and rest reads the content as if nothing had been
// read.
func (t *layerTree) shared(ctx context.Context, p place, a Attr, r io.Reader) (n *treeNode, rest io.Reader, err error) {
	was := t.like(p, a)
	if was == nil {
		return nil, r, nil
	}
	same, size, sum, tail, err := t.compare(ctx, was, r)
	if err != nil {
		_ = was.Close()
		return nil, nil, err
	}
	if same && (t.cloneParent(p, was, a) || size >= linkedBytesMin && t.linkParent(p, was)) {
		_ = was.Close()
		t.stats.Shared += size
		return &treeNode{kind: entryFile, Attr: a, size: size, sum: sum, names: 1, layer: t.layer}, nil, nil
	}
	if _, err := was.Seek(0, io.SeekStart); err != nil {
		_ = was.Close()
		return nil, nil, err
	}
	return nil, &begunShare{file: was, Reader: io.MultiReader(io.LimitReader(was, size), bytes.NewReader(tail), r)}, nil
}

// begunShare reads first what is equal in the parent's file, then the stream.
type begunShare struct {
	io.Reader
	file *os.File
}

// compare reads r for as long as it is what f holds: size bytes are equal, and
// tail was read of r beyond them.
func (t *layerTree) compare(ctx context.Context, f *os.File, r io.Reader) (same bool, size int64, sum contentSum, tail []byte, err error) {
	h := blake3.New()
	if t.there == nil {
		t.there = make([]byte, len(t.buf))
	}
	there := t.there
	for {
		if err := ctx.Err(); err != nil {
			return false, size, sum, nil, err
		}
		n, readErr := r.Read(t.buf)
		if n > 0 {
			m, err := io.ReadFull(f, there[:n])
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, size, sum, nil, err
			}
			if !bytes.Equal(there[:m], t.buf[:n]) {
				return false, size, sum, bytes.Clone(t.buf[:n]), nil
			}
			_, _ = h.Write(t.buf[:n])
			size += int64(n)
		}
		if errors.Is(readErr, io.EOF) {
			copy(sum[:], h.Sum(nil))
			m, _ := f.Read(there[:1])
			return m == 0, size, sum, nil, nil
		}
		if readErr != nil {
			return false, size, sum, nil, streamError(readErr)
		}
	}
}
