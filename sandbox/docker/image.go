package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/sandbox"
)

// imported makes the template an image of the engine.
func (r *roots) imported(ctx context.Context, b sandbox.Boot) (root, error) {
	sum := sha256.Sum256([]byte(b.Rootfs.Name + "\x00" + b.Rootfs.Hash + "\x00" + b.Rootfs.Dir))
	hash := hex.EncodeToString(sum[:12])
	image, err := r.image(ctx, hash, func(ctx context.Context) (archive, error) { return packTree(ctx, b.Rootfs.Dir), nil })
	if err != nil {
		return root{}, err
	}
	return root{image: image, hash: hash}, nil
}

// packTree streams a directory as a tar archive: owners, modes, times, links
// and extended attributes as they are. Sockets are left out.
func packTree(ctx context.Context, dir string) archive {
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		w := tar.NewWriter(write)
		p := packer{w: w, dir: dir, links: map[inode]string{}}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			return errors.Join(err, ctx.Err(), p.add(path, d))
		})
		for _, own := range ownDirs {
			if err == nil && !p.seen[own] {
				err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: own + "/", Mode: dirMode(own), Format: tar.FormatPAX})
			}
		}
		err = errors.Join(err, w.Close())
		_ = write.CloseWithError(err)
		done <- err
	}()
	return archive{read, func() error { return <-done }}
}

type inode struct{ dev, ino uint64 }

type packer struct {
	w     *tar.Writer
	dir   string
	links map[inode]string
	seen  map[string]bool // names at the top
}

func (p *packer) add(path string, d fs.DirEntry) error {
	if d == nil {
		return nil
	}
	name, err := filepath.Rel(p.dir, path)
	if err != nil || name == "." {
		return err
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[name] = true
	info, err := d.Info()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format, h.Uname, h.Gname = name, tar.FormatPAX, "", ""
	if d.IsDir() {
		h.Name += "/"
	}
	if p.link(h, info, st) {
		return p.w.WriteHeader(h)
	}
	if h.PAXRecords, err = attributes(path); err != nil {
		return err
	}
	if err := p.w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return p.content(path, h.Size)
}

// link makes h a hard link if the file has been packed under another name.
func (p *packer) link(h *tar.Header, info fs.FileInfo, st *syscall.Stat_t) bool {
	if !info.Mode().IsRegular() || st.Nlink < 2 {
		return false
	}
	key := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // another width elsewhere
	first, ok := p.links[key]
	if !ok {
		p.links[key] = h.Name
		return false
	}
	h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
	return true
}

func (p *packer) content(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyN(p.w, f, size)
	if err != nil {
		return fmt.Errorf("%s changed while it was read, at %d of %d bytes: %w", path, n, size, err)
	}
	return nil
}

// attributeBytesMax bounds what is read of extended attributes.
const attributeBytesMax = 64 << 10

// attributes are those that mean something in another tree.
func attributes(path string) (map[string]string, error) {
	list := make([]byte, attributeBytesMax)
	n, err := unix.Llistxattr(path, list)
	if err != nil || n == 0 {
		if errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
		return nil, err
	}
	var out map[string]string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") {
			continue
		}
		value := make([]byte, attributeBytesMax)
		m, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]string{}
		}
		out["SCHILY.xattr."+name] = string(value[:m])
	}
	return out, nil
}
