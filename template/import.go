package template

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/untar"
)

const (
	importDepthMax   = 128
	zstdMemoryMax    = 256 << 20
	ratioFrom        = 64 << 20 // bytes unpacked before the ratio counts
	accountsBytesMax = 1 << 20  // of an imported passwd or group file
	// importForm is a part of the hash: it changes when the same archive is
	// made into another tree.
	importForm = "import-1\n"
)

// Import unpacks the tar of a root file system (plain, or packed by gzip,
// bzip2 or zstd) and gives it a name; one of the same name is replaced, for
// sandboxes that start from then on. The archive is not trusted: nothing
// appears outside of its tree, devices are left out, set-id bits dropped,
// bytes, entries, depth and the ratio of packing bounded.
func (s *Store) Import(ctx context.Context, name string, r io.Reader) (Info, error) {
	if err := checkName(name); err != nil {
		return Info{}, err
	}
	if name == HostName {
		return Info{}, errs.New(errs.Invalid, "the name host is taken by the built-in template")
	}
	t, err := s.newTemp()
	if err != nil {
		return Info{}, err
	}
	defer t.close()
	hash, bytes, err := s.unpack(ctx, t, r)
	if err != nil {
		return Info{}, fmt.Errorf("import %s: %w", name, importError(err))
	}
	if err := finishImport(t.tree()); err != nil {
		return Info{}, fmt.Errorf("import %s: %w", name, importError(err))
	}
	rec := record{Hash: hash, Bytes: bytes, CreatedAt: time.Now().UTC()}
	rec.Languages = languagesIn(Rootfs{Dir: t.tree(), Env: environment(view{dir: t.tree()})})
	if err := s.name(t, name, rec); err != nil {
		return Info{}, err
	}
	return Info{Name: name, Kind: "import", Hash: hash, Bytes: bytes, Languages: rec.Languages}, nil
}

// name publishes the tree and then its record: a record never names what is
// not there. The lock keeps a sweep from coming between.
func (s *Store) name(t *temp, name string, rec record) error {
	if err := syncTree(t.tree()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.publish(t, rec.Hash); err != nil {
		return err
	}
	return s.writeRecord(name, rec)
}

func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

func (s *Store) unpack(ctx context.Context, t *temp, r io.Reader) (hash string, size int64, err error) {
	s.mu.Lock()
	limits := s.limits
	s.mu.Unlock()
	if err := os.Mkdir(t.tree(), 0o755); err != nil {
		return "", 0, err
	}
	root, err := os.OpenRoot(t.tree())
	if err != nil {
		return "", 0, err
	}
	defer root.Close()
	packed := &counter{r: r}
	plain, closePlain, err := unpacked(packed)
	if err != nil {
		return "", 0, err
	}
	defer closePlain()
	h := blake3.New()
	_, _ = io.WriteString(h, importForm)
	stream := io.TeeReader(&ratioReader{r: plain, packed: packed, max: limits.Ratio, bytesMax: 2*limits.Bytes + 1<<20}, h)
	res, err := untar.Unpack(ctx, root, stream, untar.Options{
		BytesMax: limits.Bytes, EntriesMax: limits.Entries, DepthMax: importDepthMax,
		Absolute: true, FollowLinks: true, SkipSpecial: true, Owner: os.Geteuid() == 0,
	})
	if err == nil {
		// The rest is padding; it must be read, since the hash is of the whole.
		_, err = io.Copy(io.Discard, stream)
	}
	if err == nil && res.Entries == 0 {
		err = errs.New(errs.Invalid, "the archive is empty")
	}
	if err == nil {
		err = refuseImage(root)
	}
	return hex.EncodeToString(h.Sum(nil)), res.Bytes, err
}

// refuseImage recognises archives of images, which are not root file systems.
func refuseImage(root *os.Root) error {
	if _, err := root.Lstat("usr"); err == nil {
		return nil
	}
	for _, name := range []string{"manifest.json", "oci-layout"} {
		if _, err := root.Lstat(name); err == nil {
			return errs.New(errs.Invalid, "this is the archive of an image with layers, not of a root file system").
				WithHint("`docker export` of a container writes a root file system")
		}
	}
	return nil
}

// unpacked recognises how a stream is packed.
func unpacked(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(6)
	if len(magic) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errs.New(errs.Invalid, "the archive is empty")
		}
		return nil, nil, err
	}
	nothing := func() {}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, nothing, err
	case bytes.HasPrefix(magic, []byte("BZh")):
		return bzip2.NewReader(b), nothing, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxMemory(zstdMemoryMax), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, nil, errs.New(errs.Invalid, "xz archives cannot be read").WithHint("unxz it first, or pack it with gzip or zstd")
	}
	return b, nothing, nil
}

// counter counts what was read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// ratioReader ends an archive that explodes.
type ratioReader struct {
	r        io.Reader
	packed   *counter
	n        int64
	max      int64
	bytesMax int64 // of the stream, headers and padding included
}

func (x *ratioReader) Read(b []byte) (int, error) {
	n, err := x.r.Read(b)
	x.n += int64(n)
	if x.n > ratioFrom && x.n/x.max > x.packed.n {
		return n, errs.New(errs.Limit, "the archive unpacks to more than %d times its size", x.max)
	}
	if x.n > x.bytesMax {
		return n, errs.New(errs.Limit, "the archive is too large")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		var own *errs.Error
		if !errors.As(err, &own) && x.r != io.Reader(x.packed) {
			err = unpackError(err)
		}
	}
	return n, err
}

// unpackError tells a damaged archive from a reader that failed.
func unpackError(err error) error {
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Wrap(errs.Invalid, err, "the archive is damaged or cut off")
	}
	return err
}

// importError gives the file system's errors a class; whatever an archive can
// provoke is the archive's fault.
func importError(err error) error {
	var own *errs.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &own), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errs.Wrap(errs.Limit, err, "no space left on the host")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Wrap(errs.Invalid, err, "the archive is damaged or cut off")
	case errors.As(err, &errno) && errno != unix.EIO:
		return errs.Wrap(errs.Invalid, err, "the archive holds what cannot be unpacked: %s", errno.Error())
	}
	return err
}

// finishImport makes a tree fit for a sandbox: mount points that are real
// directories, the user, a name server file of its own.
func finishImport(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	points := mountPoints()
	for _, name := range points.paths() {
		if err := ensureDir(root, name, points[name]); err != nil {
			return err
		}
	}
	if err := ensureAccount(root, "etc/passwd", passwdText, passwdUser); err != nil {
		return err
	}
	if err := ensureAccount(root, "etc/group", groupText, groupUser); err != nil {
		return err
	}
	for name, text := range map[string]string{"etc/resolv.conf": "", "etc/hosts": hostsText, "etc/hostname": "sandbox\n"} {
		if err := replaceFile(root, name, text); err != nil {
			return err
		}
	}
	return nil
}

// ensureDir replaces whatever is no directory: a link in the place of a mount
// point would lead the mount elsewhere.
func ensureDir(root *os.Root, name string, n node) error {
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() && !n.user && n.mode&fs.ModeSticky == 0 {
		return nil
	}
	if err == nil && !info.IsDir() {
		if err := root.Remove(name); err != nil {
			return err
		}
		info = nil
	}
	if info == nil || err != nil {
		if err := root.Mkdir(name, 0o700); err != nil {
			return err
		}
	}
	mode := n.mode & (fs.ModePerm | fs.ModeSticky)
	if n.user {
		if os.Geteuid() == 0 {
			if err := root.Lchown(name, userID, userID); err != nil {
				return err
			}
		} else {
			mode |= 0o777
		}
	}
	return root.Chmod(name, mode)
}

func replaceFile(root *os.Root, name, text string) error {
	if _, err := root.Lstat(name); err == nil {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return root.WriteFile(name, []byte(text), 0o644)
}

// ensureAccount adds the sandbox's user to passwd or group unless its number
// is taken there; then that one is the user.
func ensureAccount(root *os.Root, name, otherwise, line string) error {
	text := otherwise
	if f, err := root.Open(name); err == nil {
		data, err := io.ReadAll(io.LimitReader(f, accountsBytesMax+1))
		_ = f.Close()
		if err == nil && len(data) <= accountsBytesMax && len(data) > 0 && bytes.IndexByte(data, 0) < 0 {
			text = string(data)
		}
	}
	if !hasNumber(text, userID) {
		if hasName(text, "user") {
			line = "sandbox" + strings.TrimPrefix(line, "user")
		}
		text = strings.TrimRight(text, "\n") + "\n" + line
	}
	return replaceFile(root, name, text)
}

func hasNumber(text string, id int) bool {
	for line := range strings.Lines(text) {
		if f := strings.Split(line, ":"); len(f) > 2 && strings.TrimSpace(f[2]) == strconv.Itoa(id) {
			return true
		}
	}
	return false
}

func hasName(text, name string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}
