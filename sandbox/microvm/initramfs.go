package microvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/stage/plan"
	"github.com/skete-dev/skete/guest/wire"
)

// guestBytesMax is more than the guest program will ever have.
const guestBytesMax = 256 << 20

// Initramfs returns the path of an initramfs for this kernel with this guest
// program as the machine's first, and the hash of its content. It is made at
// the first call and kept beneath dir; later calls with the same files cost two
// small reads. Equal inputs make equal bytes, here and elsewhere.
func Initramfs(ctx context.Context, dir string, kernel Kernel, guestBinary string) (path, sum string, err error) {
	dir = filepath.Join(dir, "initramfs")
	index, err := indexFile(dir, kernel, guestBinary)
	if err != nil {
		return "", "", fmt.Errorf("read the guest program: %w", err)
	}
	if path, sum, ok := lookUp(dir, index); ok {
		return path, sum, nil
	}
	modules, err := collectModules(ctx, kernel.Modules)
	if err != nil {
		return "", "", err
	}
	guest, err := readLimited(guestBinary, guestBytesMax)
	if err != nil {
		return "", "", fmt.Errorf("read the guest program: %w", err)
	}
	if path, sum, err = keepInitramfs(dir, guest, modules); err != nil {
		return "", "", err
	}
	return path, sum, keepIndex(dir, index, sum)
}

// indexFile names a file that says which initramfs these inputs make: the
// kernel, and the guest program and modules as the file system tells of them.
func indexFile(dir string, kernel Kernel, guestBinary string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", kernel.Hash, kernel.Release)
	for _, name := range []string{guestBinary, kernel.Modules} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n%d\n%d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	return filepath.Join(dir, "made-from-"+hex.EncodeToString(h.Sum(nil)[:16])), nil
}

func lookUp(dir, index string) (path, sum string, ok bool) {
	data, err := readLimited(index, 2*sha256.Size)
	if err != nil || len(data) != 2*sha256.Size {
		return "", "", false
	}
	sum = string(data)
	path = placeOf(dir, sum)
	now := time.Now() // prune spares what is in use
	return path, sum, os.Chtimes(path, now, now) == nil && os.Chtimes(index, now, now) == nil
}

func keepIndex(dir, index, sum string) error {
	tmp, err := os.CreateTemp(dir, halfMade+"*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(sum)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), index)
}

func placeOf(dir, sum string) string { return filepath.Join(dir, "initramfs-"+sum[:32]+".cpio") }

func keepInitramfs(dir string, guest []byte, modules []module) (path, sum string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	prune(dir)
	tmp, err := os.CreateTemp(dir, halfMade+"*")
	if err != nil {
		return "", "", err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	w := &cpio{w: tmp, sum: sha256.New()}
	writeInitramfs(w, guest, modules)
	if w.err != nil {
		return "", "", w.err
	}
	sum = hex.EncodeToString(w.sum.Sum(nil))
	path = placeOf(dir, sum)
	if info, err := os.Stat(path); err == nil && info.Size() == w.at {
		now := time.Now()
		return path, sum, os.Chtimes(path, now, now) // prune spares what is in use
	}
	if err := errors.Join(tmp.Chmod(0o444), tmp.Sync()); err != nil {
		return "", "", err
	}
	return path, sum, os.Rename(tmp.Name(), path)
}

// unusedMax is how long an initramfs is kept after its last use: each build of
// the guest makes another one.
const unusedMax = 7 * 24 * time.Hour

// prune removes old files. A machine has read its initramfs when it runs.
func prune(dir string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unusedMax {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errs.New(errs.Limit, "%s has more than %d bytes", filepath.Base(path), limit)
	}
	return data, err
}

// writeInitramfs writes the tree that guest/stage expects. The guest program
// stays where it is for the machine's whole life: its directory is shown again
// in the machine's root.
func writeInitramfs(w *cpio, guest []byte, modules []module) {
	for _, dir := range []string{"dev", "proc", "sys", "new", "mod", "disk"} {
		w.entry(dir, modeDir|0o755, nil)
	}
	w.entry(wire.BootDir[1:], modeDir|0o700, nil)
	w.entry(wire.GuestBinary[1:], modeFile|0o755, guest)
	w.entry("init", modeLink|0o777, []byte(wire.GuestBinary))
	// Without a console device the kernel gives its first program none at all.
	w.device("dev/console", 5, 1)
	w.device("dev/null", 1, 3) // Go's runtime opens it in place of a console that is not there
	var list []plan.Module
	for _, m := range modules {
		w.entry("mod/"+m.File, modeFile|0o644, m.data)
		list = append(list, m.Module)
	}
	w.entry("modules.list", modeFile|0o644, []byte(plan.EncodeModules(list)))
	w.entry("TRAILER!!!", 0, nil)
}

const (
	modeMask = 0o170000
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
	modeChar = 0o020000
)

// cpio writes the "newc" format. All times and owners are zero.
type cpio struct {
	w   io.Writer
	sum hash.Hash
	at  int64
	ino int
	err error
}

func (c *cpio) entry(name string, mode uint32, data []byte) { c.put(name, mode, 0, 0, data) }

func (c *cpio) device(name string, major, minor uint32) {
	c.put(name, modeChar|0o600, major, minor, nil)
}

func (c *cpio) put(name string, mode, major, minor uint32, data []byte) {
	c.ino++
	links := 1
	if mode&modeMask == modeDir {
		links = 2
	}
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.ino, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	c.write([]byte(head))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpio) pad() { c.write(make([]byte, (4-c.at%4)%4)) }

func (c *cpio) write(b []byte) {
	if c.err != nil || len(b) == 0 {
		return
	}
	_, c.err = io.Copy(io.MultiWriter(c.w, c.sum), bytes.NewReader(b))
	c.at += int64(len(b))
}
