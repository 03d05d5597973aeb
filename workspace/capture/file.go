package capture

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/chunk"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// listedFrom is the size from which a file is kept in parts.
const listedFrom = 8 << 20

// file takes over what is known of a file, or has it read.
func (s *scan) file(wg *sync.WaitGroup, parent *os.File, path string, st *unix.Stat_t, entry tree.Entry, before known, found *known) bool {
	if st.Size >= s.rules.HugeBytes {
		s.skip(path, "larger than can be kept")
		return false
	}
	if st.Nlink > 1 {
		s.skip(path, "a hard link: kept as a file of its own")
	}
	now := stampOf(st)
	if before.entry.Type == tree.File && before.stamp == now && !before.racy {
		*found = before
		return true
	}
	s.readers <- struct{}{}
	wg.Go(func() {
		defer func() { <-s.readers }()
		s.read(parent, path, entry, found)
	})
	return true
}

// read reads a file until it holds still.
func (s *scan) read(parent *os.File, path string, entry tree.Entry, found *known) {
	if s.over() != nil {
		return
	}
	fd, err := unix.Openat(int(parent.Fd()), entry.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			s.skip(path, "cannot be opened: "+err.Error())
		}
		return
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for try := 1; ; try++ {
		var before, after unix.Stat_t
		if err := unix.Fstat(fd, &before); err != nil || before.Mode&unix.S_IFMT != unix.S_IFREG || uint64(before.Dev) != s.dev {
			return // replaced by something else
		}
		hash, listed, err := s.content(f, before.Size)
		if err != nil {
			s.unreadable(path, err)
			return
		}
		if err := unix.Fstat(fd, &after); err != nil {
			return
		}
		torn := stampOf(&before) != stampOf(&after)
		if torn && try < readTries {
			continue
		}
		entry.Type, entry.Size, entry.Listed, entry.Hash = tree.File, before.Size, listed, hash
		entry.Mode, entry.UID, entry.GID = before.Mode&0o7777, before.Uid, before.Gid
		entry.Xattrs = s.xattrs(fd, path)
		*found = known{
			stamp: stampOf(&before), entry: entry,
			racy: torn || before.Ctim.Nano() >= s.began-racyWindow.Nanoseconds(),
		}
		s.mu.Lock()
		s.result.Read++
		if torn {
			s.result.Torn = append(s.result.Torn, path)
		}
		s.mu.Unlock()
		return
	}
}

// unreadable sorts what went wrong: a store that is full ends the scan, a file
// that the disk does not give is left out, and said.
func (s *scan) unreadable(path string, err error) {
	if _, ours := errors.AsType[*errs.Error](err); ours {
		s.fail(err)
		return
	}
	s.skip(path, "cannot be read: "+err.Error())
}

// content puts a file's bytes, whatever its size is by now: no more than size.
func (s *scan) content(f *os.File, size int64) (h object.Hash, listed bool, err error) {
	if size < listedFrom {
		data := make([]byte, size)
		n, err := f.ReadAt(data, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return h, false, err
		}
		if int64(n) < size {
			clear(data[n:]) // cut off meanwhile; the stamp tells
		}
		h, err = s.store.Put(object.Blob, data)
		return h, false, err
	}
	chunks, err := s.parts(f, size)
	if err != nil {
		return h, false, err
	}
	list, err := tree.EncodeList(chunks)
	if err != nil {
		return h, false, err
	}
	h, err = s.store.Put(object.List, list)
	return h, true, err
}

// parts puts what is no hole.
func (s *scan) parts(f *os.File, size int64) (chunks []tree.Chunk, err error) {
	buf := make([]byte, chunk.Max)
	for at := int64(0); at < size; {
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		for at = data; at < min(end, size); {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), min(end, size)-at)], at)
			if n == 0 {
				if errors.Is(err, io.EOF) {
					return chunks, nil
				}
				return nil, err
			}
			cut := chunk.Cut(buf[:n])
			h, err := s.store.Put(object.Blob, buf[:cut])
			if err != nil {
				return nil, err
			}
			chunks = append(chunks, tree.Chunk{Offset: at, Length: int64(cut), Hash: h})
			at += int64(cut)
		}
	}
	return chunks, nil
}

// xattrs returns the user's attributes.
func (s *scan) xattrs(fd int, path string) []tree.Xattr {
	var buf [4096]byte
	n, err := unix.Flistxattr(fd, buf[:])
	if err != nil || n <= 0 {
		if errors.Is(err, unix.ERANGE) {
			s.skip(path, "its attributes: too many")
		}
		return nil
	}
	var xs []tree.Xattr
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, tree.XattrBytesMax)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil || len(xs) >= tree.XattrsMax {
			s.skip(path, "its attribute "+name)
			continue
		}
		xs = append(xs, tree.Xattr{Name: name, Value: string(value[:n])})
	}
	slices.SortFunc(xs, func(a, b tree.Xattr) int { return strings.Compare(a.Name, b.Name) })
	return xs
}
