package capture

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// listedFrom is the size from which a file is kept in parts.
const listedFrom = 8 << 20

// file takes over what is known of a file, or has it read.
func (s *scan) file(v *visit, name string, st *unix.Stat_t, before known, unchanged bool, found *known) {
	if st.Blocks*512 >= s.rules.huge || st.Size/sparseMax >= s.rules.huge {
		s.note(v, note{name: name, why: "larger than can be kept", class: Huge})
		return
	}
	s.named(v, name, st, before)
	if unchanged && before.entry.Type == tree.File {
		*found = before
		return
	}
	s.readers <- struct{}{}
	v.wg.Go(func() {
		defer func() { <-s.readers }()
		s.read(v, name, found)
	})
}

// named looks whether something has more names than this one.
func (s *scan) named(v *visit, name string, st *unix.Stat_t, before known) {
	if st.Nlink < 2 {
		return
	}
	s.note(v, note{name: name, linked: true})
	if before.stamp.ino != st.Ino || before.stamp.nlink != uint64(st.Nlink) {
		s.mu.Lock()
		s.linked = true
		s.mu.Unlock()
	}
}

// read reads a file until it holds still.
func (s *scan) read(v *visit, name string, found *known) {
	if s.over() != nil {
		return
	}
	fd, err := unix.Openat(v.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			s.lost(v, name, "cannot be opened: "+err.Error())
		}
		return
	}
	defer unix.Close(fd)
	for try := 1; ; try++ {
		var before, after unix.Stat_t
		if err := unix.Fstat(fd, &before); err != nil || before.Mode&unix.S_IFMT != unix.S_IFREG || before.Dev != s.dev {
			s.lost(v, name, "replaced while it was looked at")
			return
		}
		hash, listed, err := s.content(fd, before.Size)
		if err != nil {
			s.unreadable(v, name, err)
			return
		}
		if err := unix.Fstat(fd, &after); err != nil {
			s.unreadable(v, name, err)
			return
		}
		torn := stampOf(&before) != stampOf(&after)
		if torn && try < readTries {
			continue
		}
		k := known{stamp: stampOf(&before), entry: entryOf(name, &before)}
		k.entry.Type, k.entry.Size, k.entry.Listed, k.entry.Hash = tree.File, before.Size, listed, hash
		k.entry.Xattrs = s.xattrs(v, name, fd)
		k.racy = torn || s.lately(k.stamp)
		*found = k
		s.mu.Lock()
		s.result.Read++
		if torn && len(s.result.Torn) < skippedMax {
			s.result.Torn = append(s.result.Torn, join(v.path, name))
		}
		s.mu.Unlock()
		return
	}
}

// unreadable sorts what went wrong: a store that is full ends the scan, a file
// that the disk does not give is left out, and said.
func (s *scan) unreadable(v *visit, name string, err error) {
	if _, ours := errors.AsType[*errs.Error](err); ours {
		s.fail(err)
		return
	}
	if s.ctx.Err() == nil {
		s.lost(v, name, "cannot be read: "+err.Error())
	}
}

// content puts a file's bytes, whatever its size is by now: no more than size.
func (s *scan) content(fd int, size int64) (h object.Hash, listed bool, err error) {
	if size < listedFrom {
		data := make([]byte, size)
		if _, err := readAt(fd, data, 0); err != nil {
			return h, false, err
		}
		h, err = s.store.Put(object.Blob, data)
		return h, false, err
	}
	chunks, err := s.parts(fd, size)
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
func (s *scan) parts(fd int, size int64) (chunks []tree.Chunk, err error) {
	buf := make([]byte, chunkMax)
	for at := int64(0); at < size; {
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		for at = data; at < min(end, size); {
			n, err := readAt(fd, buf[:min(int64(len(buf)), min(end, size)-at)], at)
			if err != nil || n == 0 { // cut off meanwhile; the stamp tells
				return chunks, err
			}
			cut := cutChunk(buf[:n])
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

// readAt fills b, with zeros from the end of the file on.
func readAt(fd int, b []byte, at int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pread(fd, b[n:], at+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			clear(b[n:])
			return n, nil
		}
		n += m
	}
	return n, nil
}

// xattrs returns the user's attributes.
func (s *scan) xattrs(v *visit, name string, fd int) []tree.Xattr {
	var buf [4096]byte
	n, err := unix.Flistxattr(fd, buf[:])
	if err != nil || n <= 0 {
		if errors.Is(err, unix.ERANGE) {
			s.note(v, note{name: name, why: "its attributes: too many"})
		}
		return nil
	}
	var xs []tree.Xattr
	for attr := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(attr, "user.") {
			continue
		}
		value := make([]byte, tree.XattrBytesMax)
		n, err := unix.Fgetxattr(fd, attr, value)
		if err != nil || len(xs) >= tree.XattrsMax {
			s.note(v, note{name: name, why: "its attribute " + attr})
			continue
		}
		xs = append(xs, tree.Xattr{Name: attr, Value: string(value[:n])})
	}
	slices.SortFunc(xs, func(a, b tree.Xattr) int { return strings.Compare(a.Name, b.Name) })
	return xs
}
