package template

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/untar"
)

// This file lays the tars of an image's layers over each other, as a tree
// on disk with a manifest beside it.
//
// The tars are not trusted. What each name means is decided in memory, where
// links lead beneath the root and nowhere else; the disk, behind an *os.Root,
// only follows. Names, depth, entries, bytes and attributes are bounded.
// Devices, fifos and sockets are left out and counted.
//
// Files that are as in another tree can be shared with it (Share), as one file
// with two names: sealed trees must never be written into.
//
// Without root the tree's owners, some modes and attributes cannot be set on
// disk; the manifest has them all the same.
//
// A Tree is not safe for concurrent use. After an error it is of no use.

// layerKind is how a tar is meant.
type layerKind int

const (
	// plainLayer is the tar of a whole root file system: a directory in the place
	// of a link to one is the one that the link leads to ("lib/" where lib is
	// a link to usr/lib), and no name means that another goes away.
	plainLayer layerKind = iota
	// ociLayer is the tar of a layer: ".wh.x" takes x of the layers below away,
	// ".wh..wh..opq" all that they have in a directory.
	ociLayer
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	special  = ".wh..wh." // other names of AUFS's own
)

// Apply lays a tar over what is there, and reads it to its end. Invalid and
// Limit: it is the archive's fault; errors of the reader are passed on.
func (t *layerTree) Apply(ctx context.Context, r io.Reader, kind layerKind) error {
	t.layer++
	a := layerApplier{t, ctx, kind}
	defer t.leave()
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return streamError(err)
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if t.stats.Entries++; t.stats.Entries > t.limits.Entries {
			return errs.New(errs.Limit, "the archive has more than %d entries", t.limits.Entries)
		}
		if err := a.entry(hdr, tr); err != nil {
			return err
		}
	}
}

// streamError keeps a class that the reader gave; all else is a bad archive.
func streamError(err error) error {
	var own *errs.Error
	if errors.As(err, &own) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Wrap(errs.Invalid, err, "the archive is cut off")
	}
	return errs.Wrap(errs.Invalid, err, "this is not a tar archive, or a damaged one")
}

type layerApplier struct {
	*layerTree
	ctx  context.Context
	kind layerKind
}

func (a layerApplier) entry(hdr *tar.Header, r io.Reader) error {
	name, err := untar.Clean(hdr.Name, true)
	if err != nil {
		return err
	}
	if strings.Count(name, "/") >= depthMax {
		return errs.New(errs.Limit, "the archive's entry %.80q is deeper than %d levels", hdr.Name, depthMax)
	}
	attr, err := a.attr(hdr)
	if err != nil {
		return err
	}
	if name == "" {
		if hdr.Typeflag == tar.TypeDir {
			a.top.Attr = attr
		}
		return nil
	}
	if a.kind == ociLayer && strings.HasPrefix(path.Base(name), whiteout) {
		return a.whiteout(name)
	}
	switch hdr.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		a.stats.Skipped++
		return a.skipped(name)
	default:
		return errs.New(errs.Invalid, "the archive's entry %.80q has the unknown type %q", hdr.Name, hdr.Typeflag)
	}
	p, err := a.find(name)
	if err != nil {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		return a.dir(p, attr)
	case tar.TypeSymlink:
		if target := hdr.Linkname; target == "" || len(target) > targetBytesMax || strings.IndexByte(target, 0) >= 0 {
			return errs.New(errs.Invalid, "the archive's link %.80q has a bad target", hdr.Name)
		}
		return errors.Join(a.remove(p), a.symlink(p, hdr.Linkname, attr))
	case tar.TypeLink:
		return a.hardLink(p, hdr)
	}
	return a.file(p, attr, hdr.Size, r)
}

// skipped: a device in the place of what a lower layer has still hides it.
func (a layerApplier) skipped(name string) error {
	dir, full, err := a.walk(strings.TrimSuffix(path.Dir("/"+name), "/"), false)
	if err != nil {
		return nil
	}
	return a.remove(place{dir, full, path.Base(name)})
}

func (a layerApplier) attr(hdr *tar.Header) (Attr, error) {
	if hdr.Uid < 0 || hdr.Gid < 0 || int64(hdr.Uid) >= 1<<32-1 || int64(hdr.Gid) >= 1<<32-1 {
		return Attr{}, errs.New(errs.Invalid, "the archive's entry %.80q has an owner that is none", hdr.Name)
	}
	attr := Attr{Mode: uint32(hdr.Mode) & 0o7777, UID: uint32(hdr.Uid), GID: uint32(hdr.Gid), MTime: hdr.ModTime.UTC()}
	if attr.MTime.Before(epoch) || attr.MTime.Year() > 2400 {
		attr.MTime = epoch // beyond what all file systems keep
	}
	const prefix = "SCHILY.xattr."
	total := 0
	for k, v := range hdr.PAXRecords {
		k, ok := strings.CutPrefix(k, prefix)
		if !ok {
			continue
		}
		if k != "security.capability" && !strings.HasPrefix(k, "user.") || hdr.Typeflag == tar.TypeSymlink {
			a.stats.Skipped++ // labels and lists of another host's
			continue
		}
		if attr.Xattrs == nil {
			attr.Xattrs = map[string]string{}
		}
		attr.Xattrs[k] = v
		total += len(k) + len(v)
		if len(k) > nameBytesMax || len(k) <= len("user.") || strings.IndexByte(k, 0) >= 0 {
			return Attr{}, errs.New(errs.Invalid, "the archive's entry %.80q has an attribute with a bad name", hdr.Name)
		}
	}
	if a.xattrs += int64(total); a.xattrs > xattrsMax || total > entryXattrBytesMax || len(attr.Xattrs) > entryXattrsMax {
		return Attr{}, errs.New(errs.Limit, "the archive's entry %.80q has too many extended attributes", hdr.Name)
	}
	return attr, nil
}

func (a layerApplier) dir(p place, attr Attr) error {
	n := p.node()
	if n != nil && n.kind == entrySymlink && a.kind == plainLayer {
		if there, _, err := a.walk(p.full(), false); err == nil && there.kind == entryDir {
			return nil
		}
		if _, err := a.find(p.full() + "/x"); err == nil {
			return nil // the link's target is a directory from now on
		}
	}
	if n != nil && n.kind == entryDir {
		n.Attr, n.layer = attr, a.layer
		return nil
	}
	if err := a.remove(p); err != nil {
		return err
	}
	_, err := a.mkdir(p, attr)
	return err
}

func (a layerApplier) hardLink(p place, hdr *tar.Header) error {
	old, err := untar.Clean(hdr.Linkname, true)
	if err != nil {
		return err
	}
	dir, full, err := a.walk(strings.TrimSuffix(path.Dir("/"+old), "/"), false)
	var n *treeNode
	if err == nil {
		n = dir.children[path.Base(old)]
	}
	if n == nil || n.kind == entryDir {
		return errs.New(errs.Invalid, "the archive's hard link %.80q points to no file of the archive's", hdr.Name)
	}
	if p.node() == n {
		return nil
	}
	if err := a.remove(p); err != nil {
		return err
	}
	return a.link(p, n, path.Join(full, path.Base(old)))
}

func (a layerApplier) file(p place, attr Attr, size int64, r io.Reader) error {
	if size < 0 || size > a.limits.Bytes-a.stats.Bytes {
		return errs.New(errs.Limit, "the archive holds more than %d bytes", a.limits.Bytes)
	}
	if err := a.remove(p); err != nil {
		return err
	}
	return a.write(a.ctx, p, attr, r)
}

// write makes a file in an empty place.
func (t *layerTree) write(ctx context.Context, p place, attr Attr, r io.Reader) error {
	n, r, err := t.shared(ctx, p, attr, r)
	if b, ok := r.(*begunShare); ok {
		defer b.file.Close()
	}
	if err != nil {
		return err
	}
	if n != nil {
		t.stats.Bytes += n.size
		p.dir.children[p.name] = n
		return nil
	}
	fd, err := t.enter(p.path)
	if err != nil {
		return err
	}
	raw, err := unix.Openat(fd, p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return diskError(err, "create", p)
	}
	f := os.NewFile(uintptr(raw), p.name)
	defer f.Close()
	n = &treeNode{kind: entryFile, Attr: attr, names: 1, layer: t.layer}
	if n.size, n.sum, err = t.copy(ctx, f, r); err != nil {
		return err
	}
	t.stats.Bytes += n.size
	err = t.setFile(f, attr)
	if err == nil {
		err = unix.UtimesNanoAt(fd, p.name, stamps(attr.MTime), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return diskError(err, "set", p)
	}
	if err := f.Close(); err != nil {
		return err
	}
	p.dir.children[p.name] = n
	return nil
}

// copy separates the stream's errors from the disk's.
func (t *layerTree) copy(ctx context.Context, f *os.File, r io.Reader) (size int64, sum contentSum, err error) {
	h := blake3.New()
	for {
		if err := ctx.Err(); err != nil {
			return size, sum, err
		}
		n, readErr := r.Read(t.buf)
		if n > 0 {
			if _, err := f.Write(t.buf[:n]); err != nil {
				return size, sum, err
			}
			_, _ = h.Write(t.buf[:n])
			size += int64(n)
		}
		if errors.Is(readErr, io.EOF) {
			copy(sum[:], h.Sum(nil))
			return size, sum, nil
		}
		if readErr != nil {
			return size, sum, streamError(readErr)
		}
	}
}

// whiteout takes away what lower layers have; what this layer brings itself
// stays, before and after.
func (a layerApplier) whiteout(name string) error {
	dir, full, err := a.walk(strings.TrimSuffix(path.Dir("/"+name), "/"), false)
	if err != nil {
		return nil // there is nothing to take away
	}
	base := path.Base(name)
	if base == opaque {
		return a.prune(dir, full)
	}
	hidden := strings.TrimPrefix(base, whiteout)
	if hidden == "" || hidden == "." || hidden == ".." {
		return errs.New(errs.Invalid, "the archive's whiteout %.80q names nothing", name)
	}
	if strings.HasPrefix(base, special) {
		return nil
	}
	return a.pruneName(place{dir, full, hidden})
}

// prune removes what the layers below have in a directory.
func (a layerApplier) prune(dir *treeNode, full string) error {
	if dir.pruned == a.layer {
		return nil // all that is there now is this layer's
	}
	dir.pruned = a.layer
	for name := range maps.Clone(dir.children) {
		if err := a.pruneName(place{dir, full, name}); err != nil {
			return err
		}
	}
	return nil
}

func (a layerApplier) pruneName(p place) error {
	n := p.node()
	switch {
	case n == nil:
		return nil
	case n.kind == entryDir && n.holds(a.layer):
		return a.prune(n, p.full())
	case n.kind != entryDir && n.layer == a.layer:
		return nil
	}
	return a.remove(p)
}

// holds reports whether a layer brought the directory or anything in it.
func (n *treeNode) holds(layer int) bool {
	if n.layer == layer {
		return true
	}
	for _, c := range n.children {
		if c.layer == layer || c.kind == entryDir && c.holds(layer) {
			return true
		}
	}
	return false
}

// Dir makes sure that a name is a directory with these attributes, whatever
// was there; one that is there keeps what is in it, and its attributes if
// keep is set.
func (t *layerTree) Dir(name string, attr Attr, keep bool) error {
	p, err := t.own(name)
	if err != nil {
		return err
	}
	defer t.leave()
	if n := p.node(); n != nil && n.kind == entryDir {
		if !keep {
			n.Attr = attr.stamped()
		}
		return nil
	}
	if err := t.remove(p); err != nil {
		return err
	}
	_, err = t.mkdir(p, attr.stamped())
	return err
}

// File replaces whatever has a name by a file.
func (t *layerTree) File(name, content string, attr Attr) error {
	p, err := t.own(name)
	if err != nil {
		return err
	}
	defer t.leave()
	if err := t.remove(p); err != nil {
		return err
	}
	return t.write(context.Background(), p, attr.stamped(), strings.NewReader(content))
}

// Remove takes a name away, with all below it.
func (t *layerTree) Remove(name string) error {
	p, err := t.own(name)
	if err != nil {
		return err
	}
	defer t.leave()
	return t.remove(p)
}

// ReadFile returns a file's content, at most limit bytes, following links;
// nil when there is no such file.
func (t *layerTree) ReadFile(name string, limit int64) []byte {
	for range linksMax {
		dir, full, err := t.walk(strings.TrimSuffix(path.Dir("/"+name), "/"), false)
		if err != nil {
			return nil
		}
		n := dir.children[path.Base(name)]
		if n != nil && n.kind == entrySymlink {
			name = n.target
			if !path.IsAbs(name) {
				name = path.Join("/", full, name)
			}
			continue
		}
		if n == nil || n.kind != entryFile || n.size > limit {
			return nil
		}
		data, err := t.root.ReadFile(path.Join(full, path.Base(name)))
		if err != nil {
			return nil
		}
		return data
	}
	return nil
}

// Has reports whether there is something of that name, links not followed.
func (t *layerTree) Has(name string) bool {
	dir, _, err := t.walk(strings.TrimSuffix(path.Dir("/"+name), "/"), false)
	return err == nil && dir.children[path.Base(name)] != nil
}

// own is find for names that we choose; a file in the way of their parents is
// the archive's fault.
func (t *layerTree) own(name string) (place, error) {
	p, err := t.find(name)
	if err == nil && p.name == "" {
		err = errs.New(errs.Internal, "the root has no name")
	}
	return p, err
}

func (a Attr) stamped() Attr {
	if a.MTime.IsZero() {
		a.MTime = epoch
	}
	return a
}

// Seal gives the directories their modes, owners and times, writes the
// manifest and returns the hash of the tree. Nothing is applied after it.
func (t *layerTree) Seal(ctx context.Context, w io.Writer) (string, error) {
	t.leave()
	m, err := newManifestWriter(w)
	if err != nil {
		return "", err
	}
	first := map[*treeNode]string{}
	if err := t.seal(ctx, m, t.top, "", first); err != nil {
		return "", err
	}
	return m.Close()
}

func (t *layerTree) seal(ctx context.Context, m *manifestWriter, n *treeNode, full string, first map[*treeNode]string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.Add(n.entry(full)); err != nil {
		return err
	}
	dirs := 0
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		c, at := n.children[name], path.Join(full, name)
		if c.kind == entryDir {
			if dirs++; dirs > namesMax-2 {
				return errs.New(errs.Limit, "the directory %.80q holds more than %d others", full, namesMax-2)
			}
			if err := t.seal(ctx, m, c, at, first); err != nil {
				return err
			}
			continue
		}
		e := c.entry(at)
		if before, ok := first[c]; ok {
			e = entry{Path: at, Kind: entryLink, Target: before}
		} else if c.names > 1 {
			first[c] = at
		}
		if err := m.Add(e); err != nil {
			return err
		}
	}
	return t.sealDir(n, full)
}

func (n *treeNode) entry(full string) entry {
	e := entry{Path: full, Kind: n.kind, Mode: n.Mode, UID: n.UID, GID: n.GID, MTime: n.MTime, Xattrs: n.Xattrs}
	switch n.kind {
	case entryFile:
		e.Size, e.Sum = n.size, n.sum
	case entrySymlink:
		e.Target = n.target
	}
	return e
}

func (t *layerTree) sealDir(n *treeNode, full string) error {
	f, err := t.root.Open(cleanOr(full))
	if err != nil {
		return err
	}
	defer f.Close()
	a := n.Attr
	if !t.owner {
		a.Mode = a.Mode&0o1777 | 0o700
	}
	if err := t.setDir(int(f.Fd()), a); err != nil {
		return diskError(err, "set", place{path: full})
	}
	return nil
}

func (t *layerTree) setDir(fd int, a Attr) error {
	if t.owner {
		if err := unix.Fchown(fd, int(a.UID), int(a.GID)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, a.Mode); err != nil {
		return err
	}
	if err := setXattrs(fd, a.Xattrs); err != nil {
		return err
	}
	return unix.UtimesNanoAt(fd, ".", stamps(a.MTime), 0)
}
