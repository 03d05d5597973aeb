package template

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

// # Bundle
//
// A bundle puts all that a machine without a network needs into one
// file: a template's root file system, and whatever goes with it (a kernel,
// its modules, the guest).
//
//	err := WriteBundle(ctx, w, BundleManifest{Name: "debian"}, []BundleFile{{Role: "kernel", Path: "/boot/vmlinux"}})
//	err = ReadBundle(ctx, r, func(m BundleManifest, p BundlePart, r io.Reader) error { … })
//
// It is a tar. Its first entry says what the others are, with a SHA-256
// each; Read hands on a part while it checks it, and the reader of a part that
// is not what was announced ends with an error instead of io.EOF.

// BundleManifestName is the name of the first entry.
const BundleManifestName = "skete-bundle.json"

// bundleVersion is the form of bundles that is written and read.
const bundleVersion = 1

// bundleRootfs is the role of the root file system: a tar, packed by zstd.
const bundleRootfs = "rootfs"

const (
	bundleManifestBytesMax = 4 << 20
	bundlePartsMax         = 64
)

// BundleManifest says what is in a bundle.
type BundleManifest struct {
	Version   int             `json:"version"`
	Name      string          `json:"name"` // of the template
	Hash      string          `json:"hash"` // of its tree
	CreatedAt time.Time       `json:"created_at"`
	Source    json.RawMessage `json:"source,omitempty"` // the image that it was made of
	Parts     []BundlePart    `json:"parts"`
}

// BundlePart is one file of a bundle.
type BundlePart struct {
	Role   string            `json:"role"` // "rootfs", "kernel", "modules", "guest", …
	Name   string            `json:"name"` // of the file
	Size   int64             `json:"size"`
	SHA256 string            `json:"sha256"`
	Info   map[string]string `json:"info,omitempty"` // such as a kernel's release
}

// BundleFile is a part to be written.
type BundleFile struct {
	Role, Path string
	Info       map[string]string
}

var (
	bundleNameForm = pattern.Lazy(`^[a-z][a-z0-9._-]{0,63}$`)
	bundleSumForm  = pattern.Lazy(`^[0-9a-f]{64}$`)
)

// writeBundle writes a bundle of the files, in their order. They must not change
// meanwhile.
func writeBundle(ctx context.Context, w io.Writer, m BundleManifest, files []BundleFile) error {
	m.Version, m.Parts = bundleVersion, nil
	for n, f := range files {
		p, err := describeFiles(ctx, f)
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
	if err := bundleHeader(tw, BundleManifestName, int64(len(data)), m.CreatedAt); err != nil {
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

func bundleHeader(tw *tar.Writer, name string, size int64, at time.Time) error {
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: at.Truncate(time.Second)})
}

func describeFiles(ctx context.Context, f BundleFile) (BundlePart, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return BundlePart{}, err
	}
	defer file.Close()
	h := sha256.New()
	n, err := io.Copy(h, cancelled{ctx, file})
	return BundlePart{Role: f.Role, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Info: f.Info}, err
}

func copyFile(ctx context.Context, tw *tar.Writer, p BundlePart, path string, at time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := bundleHeader(tw, p.Name, p.Size, at); err != nil {
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

// readBundle reads a bundle and hands on each part. A part that take leaves unread is
// checked all the same. Invalid: it is no bundle; Corrupt: a part is not what
// was announced; Unsupported: it is of a later form.
func readBundle(ctx context.Context, r io.Reader, take func(BundleManifest, BundlePart, io.Reader) error) error {
	tr := tar.NewReader(cancelled{ctx, r})
	m, err := readBundleManifest(tr)
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
		part := &checkedManifest{r: tr, h: sha256.New(), p: p}
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

func readBundleManifest(tr *tar.Reader) (BundleManifest, error) {
	hdr, err := tr.Next()
	if err != nil {
		return BundleManifest{}, errs.Wrap(errs.Invalid, err, "this is no bundle")
	}
	if hdr.Name != BundleManifestName || hdr.Typeflag != tar.TypeReg || hdr.Size > bundleManifestBytesMax {
		return BundleManifest{}, errs.New(errs.Invalid, "this is no bundle: it does not begin with %s", BundleManifestName)
	}
	data, err := io.ReadAll(tr)
	if err != nil {
		return BundleManifest{}, err
	}
	return parseBundleManifest(data)
}

// parseBundleManifest reads a bundle's first entry.
func parseBundleManifest(data []byte) (BundleManifest, error) {
	var m BundleManifest
	if err := json.Unmarshal(data, &m); err != nil {
		return BundleManifest{}, errs.Wrap(errs.Invalid, err, "the bundle's %s cannot be read", BundleManifestName)
	}
	return m, m.check()
}

func (m BundleManifest) check() error {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "the bundle's "+BundleManifestName+" "+format, args...)
	}
	if m.Version != bundleVersion {
		return errs.New(errs.Unsupported, "the bundle is of the form %d; this skete reads %d", m.Version, bundleVersion)
	}
	if !bundleSumForm().MatchString(m.Hash) {
		return bad("has no hash of a tree")
	}
	if len(m.Parts) == 0 || len(m.Parts) > bundlePartsMax {
		return bad("names %d parts, 1 to %d can be read", len(m.Parts), bundlePartsMax)
	}
	rootfs := 0
	names := map[string]bool{BundleManifestName: true}
	for _, p := range m.Parts {
		if !bundleNameForm().MatchString(p.Role) || p.Name == "" || len(p.Name) > 100 || names[p.Name] || p.Size < 0 || !bundleSumForm().MatchString(p.SHA256) {
			return bad("has a part %.80q that makes no sense", p.Name)
		}
		names[p.Name] = true
		if p.Role == bundleRootfs {
			rootfs++
		}
	}
	if rootfs != 1 {
		return bad("names %d root file systems", rootfs)
	}
	return nil
}

// checkedManifest ends with an error when what it read is not what was announced.
type checkedManifest struct {
	r io.Reader
	h interface {
		io.Writer
		Sum([]byte) []byte
	}
	p   BundlePart
	err error
}

func (c *checkedManifest) Read(b []byte) (int, error) {
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
