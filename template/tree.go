package template

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Bounds that no caller changes.
const (
	depthMax  = 128
	linksMax  = 40    // symbolic links on the way to one name
	namesMax  = 65000 // of one file, and directories in one directory: ext4's bounds
	xattrsMax = 64 << 20
	turnsMax  = 20_000_000 // parts of links' targets walked, for all entries together
)

// layerLimits bound a tree. Both must be set.
type layerLimits struct {
	Bytes   int64 // of contents, of all layers together, also of what a later one replaces
	Entries int64 // of all layers together
}

// Attr is what a name has beside its content.
type Attr struct {
	Mode     uint32 // permissions, set-id and sticky bits
	UID, GID uint32
	MTime    time.Time
	Xattrs   map[string]string
}

// treeStats counts what was laid down.
type treeStats struct {
	Entries int64 // of the tars
	Bytes   int64 // of contents
	Shared  int64 // bytes of files that are shared with another tree
	Skipped int64 // devices, fifos, sockets and attributes of other kinds
}

// layerTree is a root file system under construction.
type layerTree struct {
	root   *os.Root
	limits layerLimits
	owner  bool // owners can be set on disk
	top    *treeNode
	layer  int
	stats  treeStats
	xattrs int64 // bytes of all
	turns  int64
	buf    []byte
	there  []byte
	parent *parentOf // nil = all files are our own

	// The directory that was written to last, kept open: entries come one
	// directory after the other.
	at     *os.File
	atPath string
}

// treeNode is a file, directory or link; hard links share one.
type treeNode struct {
	Attr
	kind     entryKind
	size     int64
	sum      contentSum
	target   string
	names    int                  // that it has
	layer    int                  // that last said what it is
	pruned   int                  // layer that took away what the others have in it
	children map[string]*treeNode // of a directory
}

// newLayerTree begins a tree in an empty directory.
func newLayerTree(root *os.Root, l layerLimits) *layerTree {
	t := &layerTree{root: root, limits: l, owner: os.Geteuid() == 0, buf: make([]byte, 256<<10)}
	t.top = &treeNode{kind: entryDir, Attr: Attr{Mode: 0o755, MTime: epoch}, children: map[string]*treeNode{}}
	return t
}

// Stats says what was laid down until now.
func (t *layerTree) Stats() treeStats { return t.stats }

// epoch is the time of whatever no tar gave one: trees of the same content are the same.
var epoch = time.Unix(0, 0).UTC()

// place is a name's parent directory, found or made, and its last part.
type place struct {
	dir  *treeNode
	path string // of dir
	name string
}

func (p place) full() string    { return path.Join(p.path, p.name) }
func (p place) node() *treeNode { return p.dir.children[p.name] }

// find resolves the directories above a clean name, links included, and makes
// those that are missing.
func (t *layerTree) find(name string) (place, error) {
	dir, base := path.Split(name)
	at, full, err := t.walk(strings.TrimSuffix(dir, "/"), true)
	if err != nil {
		return place{}, err
	}
	if len(full)+1+len(base) > pathBytesMax || strings.Count(full, "/") >= depthMax {
		return place{}, errs.New(errs.Limit, "the archive's entry %.80q is deeper than %d levels, or its name too long", name, depthMax)
	}
	return place{at, full, base}, nil
}

// pathStep is a directory on the way from the root.
type pathStep struct {
	n    *treeNode
	name string
}

// walk follows a path beneath the root as a chroot would. Missing directories
// are made, or fs.ErrNotExist is returned.
func (t *layerTree) walk(name string, create bool) (*treeNode, string, error) {
	way := []pathStep{{t.top, ""}}
	todo := strings.Split(name, "/")
	links := 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		here := way[len(way)-1].n
		switch part {
		case "", ".":
			continue
		case "..": // only from a link's target; a chroot stays at its root
			way = way[:max(len(way)-1, 1)]
			continue
		}
		next := here.children[part]
		switch {
		case next == nil && !create:
			return nil, "", fs.ErrNotExist
		case next == nil:
			if len(part) > nameBytesMax || len(way) > depthMax {
				return nil, "", errs.New(errs.Limit, "the archive's directory %.80q is too deep or its name too long", name)
			}
			made, err := t.mkdir(place{here, wayPath(way), part}, Attr{Mode: 0o755, MTime: epoch})
			if err != nil {
				return nil, "", err
			}
			way = append(way, pathStep{made, part})
		case next.kind == entryDir:
			way = append(way, pathStep{next, part})
		case next.kind == entrySymlink:
			if links++; links > linksMax {
				return nil, "", errs.New(errs.Invalid, "too many symbolic links above %.80q", name)
			}
			if strings.HasPrefix(next.target, "/") {
				way = way[:1]
			}
			target := strings.Split(next.target, "/")
			if t.turns += int64(len(target)); t.turns > turnsMax {
				return nil, "", errs.New(errs.Limit, "the archive's symbolic links lead in circles")
			}
			todo = append(target, todo...)
		default:
			return nil, "", errs.New(errs.Invalid, "the archive has %.80q beneath a file", name)
		}
	}
	return way[len(way)-1].n, wayPath(way), nil
}

func wayPath(way []pathStep) string {
	parts := make([]string, 0, len(way))
	for _, s := range way[1:] {
		parts = append(parts, s.name)
	}
	return strings.Join(parts, "/")
}

// enter returns the open directory that a place is in.
func (t *layerTree) enter(dir string) (int, error) {
	if t.at != nil && t.atPath == dir {
		return int(t.at.Fd()), nil
	}
	t.leave()
	f, err := t.root.Open(cleanOr(dir))
	if err != nil {
		return -1, err
	}
	t.at, t.atPath = f, dir
	return int(f.Fd()), nil
}

func (t *layerTree) leave() {
	if t.at != nil {
		_ = t.at.Close()
		t.at = nil
	}
}

func cleanOr(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// mkdir makes a directory that is not there. Until Seal only we may enter it.
func (t *layerTree) mkdir(p place, a Attr) (*treeNode, error) {
	fd, err := t.enter(p.path)
	if err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(fd, p.name, 0o700); err != nil {
		return nil, diskError(err, "mkdir", p)
	}
	n := &treeNode{kind: entryDir, Attr: a, names: 1, layer: t.layer, children: map[string]*treeNode{}}
	p.dir.children[p.name] = n
	return n, nil
}

// remove takes a name and all below it away.
func (t *layerTree) remove(p place) error {
	n := p.node()
	if n == nil {
		return nil
	}
	full := p.full()
	if n.kind == entryDir {
		if t.at != nil && (t.atPath == full || strings.HasPrefix(t.atPath, full+"/")) {
			t.leave()
		}
		if err := t.root.RemoveAll(full); err != nil {
			return err
		}
		n.forget()
	} else {
		fd, err := t.enter(p.path)
		if err != nil {
			return err
		}
		if err := unix.Unlinkat(fd, p.name, 0); err != nil {
			return diskError(err, "unlink", p)
		}
		n.names--
	}
	delete(p.dir.children, p.name)
	return nil
}

// forget takes all names below a directory away from what has them.
func (n *treeNode) forget() {
	for _, c := range n.children {
		if c.kind == entryDir {
			c.forget()
		} else {
			c.names--
		}
	}
}

func diskError(err error, op string, p place) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: p.full(), Err: err}
}

// symlink puts a link into an empty place.
func (t *layerTree) symlink(p place, target string, a Attr) error {
	fd, err := t.enter(p.path)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, fd, p.name); err != nil {
		return diskError(err, "symlink", p)
	}
	if t.owner {
		if err := unix.Fchownat(fd, p.name, int(a.UID), int(a.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return diskError(err, "chown", p)
		}
	}
	_ = unix.UtimesNanoAt(fd, p.name, stamps(a.MTime), unix.AT_SYMLINK_NOFOLLOW)
	a.Mode, a.Xattrs = 0o777, nil
	p.dir.children[p.name] = &treeNode{kind: entrySymlink, Attr: a, target: target, size: int64(len(target)), names: 1, layer: t.layer}
	return nil
}

// link gives a file one more name.
func (t *layerTree) link(p place, old *treeNode, oldPath string) error {
	dir, base := path.Split(oldPath)
	from, err := t.root.Open(cleanOr(strings.TrimSuffix(dir, "/")))
	if err != nil {
		return err
	}
	defer from.Close()
	fd, err := t.enter(p.path)
	if err != nil {
		return err
	}
	if old.names >= namesMax {
		return errs.New(errs.Limit, "the archive's file %.80q has more than %d names", oldPath, namesMax)
	}
	if err := unix.Linkat(int(from.Fd()), base, fd, p.name, 0); err != nil {
		return diskError(err, "link", p)
	}
	old.names++
	old.layer = t.layer
	p.dir.children[p.name] = old
	return nil
}

// setFile sets all but the content of an open file: owner first, since that
// takes set-id bits and capabilities away.
func (t *layerTree) setFile(f *os.File, a Attr) error {
	fd := int(f.Fd())
	mode := a.Mode
	if t.owner {
		if err := unix.Fchown(fd, int(a.UID), int(a.GID)); err != nil {
			return err
		}
	} else {
		mode = mode&0o777 | 0o600 // we must read it, and it is ours alone
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	return setXattrs(fd, a.Xattrs)
}

// setXattrs sets what this file system takes of us; the manifest has the rest.
func setXattrs(fd int, list map[string]string) error {
	for k, v := range list {
		err := unix.Fsetxattr(fd, k, []byte(v), 0)
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

func stamps(at time.Time) []unix.Timespec {
	ts := unix.NsecToTimespec(at.UnixNano())
	return []unix.Timespec{ts, ts}
}
