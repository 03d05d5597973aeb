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
	st, err := Lstat(dir, name)
	if err != nil {
		return err
	}
	p := &packer{ctx: ctx, tw: tar.NewWriter(w), buf: make([]byte, 256<<10)}
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
	if err := Walk(ctx, fd, opts, p.add); err != nil {
		return err
	}
	return p.tw.Close()
}

type packer struct {
	ctx context.Context
	tw  *tar.Writer
	buf []byte
}

func (p *packer) add(it Item) error {
	var err error
	switch {
	case IsDir(&it.Stat):
		h := header(it.Rel+"/", tar.TypeDir, &it.Stat)
		err = p.tw.WriteHeader(h)
	case IsLink(&it.Stat):
		err = p.link(it)
	case IsRegular(&it.Stat):
		err = p.file(it)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil // gone, or something else by now
	}
	return pathError("read", it.Rel, err)
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
