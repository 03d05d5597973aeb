// Package bundle puts all that a machine without a network needs into one
// file: a template's root file system, and whatever goes with it (a kernel,
// its modules, the guest).
//
//	err := bundle.Write(ctx, w, bundle.Manifest{Name: "debian"}, []bundle.File{{Role: "kernel", Path: "/boot/vmlinux"}})
//	err = bundle.Read(ctx, r, func(m bundle.Manifest, p bundle.Part, r io.Reader) error { … })
//
// A bundle is a tar. Its first entry says what the others are, with a SHA-256
// each; Read hands on a part while it checks it, and the reader of a part that
// is not what was announced ends with an error instead of io.EOF.
package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// ManifestFile is the name of the first entry.
const ManifestFile = "skete-bundle.json"

// Version is the form of bundles that is written and read.
const Version = 1

// Rootfs is the role of the root file system: a tar, packed by zstd.
const Rootfs = "rootfs"

const (
	manifestBytesMax = 4 << 20
	partsMax         = 64
)

// Manifest says what is in a bundle.
type Manifest struct {
	Version   int             `json:"version"`
	Name      string          `json:"name"` // of the template
	Hash      string          `json:"hash"` // of its tree
	CreatedAt time.Time       `json:"created_at"`
	Source    json.RawMessage `json:"source,omitempty"` // the image that it was made of
	Parts     []Part          `json:"parts"`
}

// Part is one file of a bundle.
type Part struct {
	Role   string            `json:"role"` // "rootfs", "kernel", "modules", "guest", …
	Name   string            `json:"name"` // of the file
	Size   int64             `json:"size"`
	SHA256 string            `json:"sha256"`
	Info   map[string]string `json:"info,omitempty"` // such as a kernel's release
}

// File is a part to be written.
type File struct {
	Role, Path string
	Info       map[string]string
}

var (
	nameForm = pattern.Lazy(`^[a-z][a-z0-9._-]{0,63}$`)
	sumForm  = pattern.Lazy(`^[0-9a-f]{64}$`)
)

// Write writes a bundle of the files, in their order. They must not change
// meanwhile.
func Write(ctx context.Context, w io.Writer, m Manifest, files []File) error {
	m.Version, m.Parts = Version, nil
	for n, f := range files {
		p, err := describe(ctx, f)
		if err != nil {
			return err
		}
		p.Name = fmt.Sprintf("%d-%s", n, f.Role)
		m.Parts = append(m.Parts, p)
	}
	if err := m.check(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	if err := header(tw, ManifestFile, int64(len(data)), m.CreatedAt); err != nil {
		return err
	}
	if _, err := tw.Write(data); err != nil {
		return err
	}
	for n, f := range files {
		if err := copyFile(ctx, tw, m.Parts[n], f.Path, m.CreatedAt); err != nil {
			return err
		}
	}
	return tw.Close()
}

func header(tw *tar.Writer, name string, size int64, at time.Time) error {
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: at.Truncate(time.Second)})
}

func describe(ctx context.Context, f File) (Part, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return Part{}, err
	}
	defer file.Close()
	h := sha256.New()
	n, err := io.Copy(h, cancelled{ctx, file})
	return Part{Role: f.Role, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Info: f.Info}, err
}

func copyFile(ctx context.Context, tw *tar.Writer, p Part, path string, at time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := header(tw, p.Name, p.Size, at); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(cancelled{ctx, f}, p.Size))
	if err == nil && n != p.Size {
		err = errs.New(errs.Conflict, "a file of the bundle changed while it was written")
	}
	return err
}

// cancelled ends a read when the context does.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// Read reads a bundle and hands on each part. A part that take leaves unread is
// checked all the same. Invalid: it is no bundle; Corrupt: a part is not what
// was announced; Unsupported: it is of a later form.
func Read(ctx context.Context, r io.Reader, take func(Manifest, Part, io.Reader) error) error {
	tr := tar.NewReader(cancelled{ctx, r})
	m, err := readManifest(tr)
	if err != nil {
		return err
	}
	for _, p := range m.Parts {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return errs.New(errs.Invalid, "the bundle lacks its part %s", p.Name)
		}
		if err != nil {
			return err
		}
		if hdr.Name != p.Name || hdr.Size != p.Size || hdr.Typeflag != tar.TypeReg {
			return errs.New(errs.Corrupt, "the bundle has %.80q where %s should be", hdr.Name, p.Name)
		}
		part := &checked{r: tr, h: sha256.New(), p: p}
		if err := take(m, p, part); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, part); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

func readManifest(tr *tar.Reader) (Manifest, error) {
	hdr, err := tr.Next()
	if err != nil {
		return Manifest{}, errs.Wrap(errs.Invalid, err, "this is no bundle")
	}
	if hdr.Name != ManifestFile || hdr.Typeflag != tar.TypeReg || hdr.Size > manifestBytesMax {
		return Manifest{}, errs.New(errs.Invalid, "this is no bundle: it does not begin with %s", ManifestFile)
	}
	data, err := io.ReadAll(tr)
	if err != nil {
		return Manifest{}, err
	}
	return Parse(data)
}

// Parse reads a bundle's first entry.
func Parse(data []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, errs.Wrap(errs.Invalid, err, "the bundle's %s cannot be read", ManifestFile)
	}
	return m, m.check()
}

func (m Manifest) check() error {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "the bundle's "+ManifestFile+" "+format, args...)
	}
	if m.Version != Version {
		return errs.New(errs.Unsupported, "the bundle is of the form %d; this skete reads %d", m.Version, Version)
	}
	if !sumForm().MatchString(m.Hash) {
		return bad("has no hash of a tree")
	}
	if len(m.Parts) == 0 || len(m.Parts) > partsMax {
		return bad("names %d parts, 1 to %d can be read", len(m.Parts), partsMax)
	}
	rootfs := 0
	names := map[string]bool{ManifestFile: true}
	for _, p := range m.Parts {
		if !nameForm().MatchString(p.Role) || p.Name == "" || len(p.Name) > 100 || names[p.Name] || p.Size < 0 || !sumForm().MatchString(p.SHA256) {
			return bad("has a part %.80q that makes no sense", p.Name)
		}
		names[p.Name] = true
		if p.Role == Rootfs {
			rootfs++
		}
	}
	if rootfs != 1 {
		return bad("names %d root file systems", rootfs)
	}
	return nil
}

// checked ends with an error when what it read is not what was announced.
type checked struct {
	r io.Reader
	h interface {
		io.Writer
		Sum([]byte) []byte
	}
	p   Part
	err error
}

func (c *checked) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(b)
	_, _ = c.h.Write(b[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(c.h.Sum(nil)) != c.p.SHA256 {
		err = errs.New(errs.Corrupt, "the bundle's part %s is damaged", c.p.Name)
	}
	c.err = err
	return n, err
}
