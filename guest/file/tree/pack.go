package tree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Pack writes an entry of dir as a tar archive: of a directory, its inside
// with relative names; of anything else, that one entry. Links are packed as
// links; fifos, sockets and devices are left out. Every file has in the
// archive the size that it had when its header was written.
func Pack(ctx context.Context, dir int, name string, w io.Writer) error {
	return pack(dir, name, &packer{ctx: ctx, tw: tar.NewWriter(w), buf: make([]byte, 256<<10)})
}

// PackImage is Pack of a directory that is to be the root of an image: what is
// mounted beneath it is left out, hard links stay links, attributes that
// belong to the content are kept. So is left out what exclude names, by its
// path in the archive.
func PackImage(ctx context.Context, dir int, name string, exclude []string, w io.Writer) error {
	p := &packer{
		ctx: ctx, tw: tar.NewWriter(w), buf: make([]byte, 256<<10),
		image: true, exclude: map[string]bool{}, links: map[inode]string{},
	}
	for _, path := range exclude {
		p.exclude[path] = true
	}
	return pack(dir, name, p)
}

func pack(dir int, name string, p *packer) error {
	st, err := Lstat(dir, name)
	if err != nil {
		return err
	}
	if p.image && !IsDir(&st) {
		return unix.ENOTDIR
	}
	p.dev = st.Dev
	if !IsDir(&st) {
		if !IsRegular(&st) && !IsLink(&st) {
			return ErrSpecial
		}
		if err := p.add(Item{Dir: dir, Name: name, Rel: name, Stat: st}); err != nil {
			return err
		}
		return p.tw.Close()
	}
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	opts := Options{Unreadable: func(rel string, err error) error { return pathError("read", rel, err) }}
	if err := Walk(p.ctx, fd, opts, p.add); err != nil {
		return err
	}
	return p.tw.Close()
}

type packer struct {
	ctx context.Context
	tw  *tar.Writer
	buf []byte

	image   bool
	dev     uint64 // of the root
	exclude map[string]bool
	links   map[inode]string // files that have more than one name -> the first
}

type inode struct{ dev, ino uint64 }

func (p *packer) add(it Item) error {
	if p.exclude[it.Rel] {
		return ErrSkip
	}
	var err error
	switch {
	case IsDir(&it.Stat):
		err = p.dir(it)
	case IsLink(&it.Stat):
		err = p.link(it)
	case IsRegular(&it.Stat):
		err = p.file(it)
	}
	switch {
	case errors.Is(err, ErrSkip):
		return err
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP):
		return nil // gone, or something else by now
	}
	return pathError("read", it.Rel, err)
}

// dir adds a directory. What is mounted on it is no part of an image: only
// directories are compared, since an overlay shows files with the devices of
// the layers that they come from.
func (p *packer) dir(it Item) error {
	h := header(it.Rel+"/", tar.TypeDir, &it.Stat)
	if !p.image {
		return p.tw.WriteHeader(h)
	}
	if it.Stat.Dev != p.dev {
		if err := p.tw.WriteHeader(h); err != nil {
			return err
		}
		return ErrSkip
	}
	fd, err := OpenAt(it.Dir, it.Name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attributes(h, fd)
	return p.tw.WriteHeader(h)
}

func header(name string, kind byte, st *unix.Stat_t) *tar.Header {
	return &tar.Header{
		Name: name, Typeflag: kind, Mode: int64(st.Mode & 0o7777),
		Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Sec, 0), // whole seconds need no extra header of 1 KiB
	}
}

func (p *packer) link(it Item) error {
	target, err := Readlink(it.Dir, it.Name)
	if err != nil {
		return err
	}
	h := header(it.Rel, tar.TypeSymlink, &it.Stat)
	h.Linkname = target
	return p.tw.WriteHeader(h)
}

func (p *packer) file(it Item) error {
	fd, err := OpenAt(it.Dir, it.Name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := Fstat(fd)
	if err != nil {
		return err
	}
	if !IsRegular(&st) {
		return nil
	}
	h := header(it.Rel, tar.TypeReg, &st)
	if p.image {
		if st.Nlink > 1 {
			at := inode{st.Dev, st.Ino}
			if first, ok := p.links[at]; ok {
				h.Typeflag, h.Linkname = tar.TypeLink, first
				return p.tw.WriteHeader(h)
			}
			p.links[at] = it.Rel
		}
		attributes(h, fd)
	}
	h.Size = st.Size
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	return p.content(fd, st.Size)
}

func (p *packer) content(fd int, size int64) error {
	for at := int64(0); at < size; {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		b := p.buf[:min(size-at, int64(len(p.buf)))]
		n := 0
		err := Retry(func() (err error) {
			n, err = unix.Pread(fd, b, at)
			return err
		})
		if err != nil {
			return err
		}
		if n <= 0 { // it shrank
			n = len(b)
			clear(b)
		}
		if _, err := p.tw.Write(b[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
