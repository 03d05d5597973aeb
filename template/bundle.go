package template

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/oci"
)

// Parts is what goes with a template into a bundle, and where it goes when a
// bundle comes: the kernel, its modules, the guest.
type Parts interface {
	// Files names what is to go with a template.
	Files(ctx context.Context) ([]BundleFile, error)
	// Take keeps a part. The reader ends with an error instead of io.EOF when
	// the part is damaged: nothing may count as kept before that.
	Take(ctx context.Context, p BundlePart, r io.Reader) error
}

// WithParts sets what goes with bundles; without it only root file systems do.
func (s *Store) WithParts(p Parts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = p
}

// Export writes a template, and what goes with it, as a bundle that Import
// takes. Nothing is written before all of it could be read.
func (s *Store) Export(ctx context.Context, name string, w io.Writer) error {
	if name == HostName {
		return errs.New(errs.Unsupported, "the template host shows this host's own files; it cannot go elsewhere")
	}
	rec, err := s.record(name)
	if err != nil {
		return err
	}
	t, err := s.Temp()
	if err != nil {
		return err
	}
	defer t.Close()
	files := []BundleFile{{Role: bundleRootfs, Path: filepath.Join(t.Dir, "rootfs")}}
	if err := s.packTree(ctx, rec.Hash, files[0].Path); err != nil {
		return spaceError(err)
	}
	s.mu.Lock()
	parts := s.parts
	s.mu.Unlock()
	if parts != nil {
		more, err := parts.Files(ctx)
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	m := BundleManifest{Name: name, Hash: rec.Hash, CreatedAt: time.Now().UTC()}
	if rec.Source != nil {
		if m.Source, err = json.Marshal(rec.Source); err != nil {
			return err
		}
	}
	return writeBundle(ctx, w, m, files)
}

// packTree writes a tree as a tar packed by zstd.
func (s *Store) packTree(ctx context.Context, hash, path string) error {
	tree, err := os.OpenRoot(s.Path(treesDir, hash))
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	list, err := os.Open(s.listPath(hash))
	if err != nil {
		return gone(err)
	}
	defer list.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	err = tarTree(ctx, tree, list, z)
	return errors.Join(err, z.Close())
}

// importBundle takes the template and hands the other parts on.
func (s *Store) importBundle(ctx context.Context, name string, r io.Reader) (Info, error) {
	s.mu.Lock()
	parts := s.parts
	s.mu.Unlock()
	var info Info
	err := readBundle(ctx, r, func(m BundleManifest, p BundlePart, r io.Reader) error {
		if p.Role == bundleRootfs {
			var err error
			info, err = s.importPacked(ctx, name, m, r)
			return err
		}
		if parts == nil {
			return nil
		}
		return parts.Take(ctx, p, r)
	})
	return info, err
}

func (s *Store) importPacked(ctx context.Context, name string, m BundleManifest, r io.Reader) (Info, error) {
	if name == "" {
		name = m.Name
	}
	if err := checkNewName(name); err != nil {
		return Info{}, err
	}
	var rec record
	if len(m.Source) > 0 {
		if err := json.Unmarshal(m.Source, &rec.Source); err != nil {
			return Info{}, errs.Wrap(errs.Invalid, err, "the bundle's template cannot be read")
		}
		if rec.Source != nil {
			rec.Source.Config = rec.Source.Config.Bounded()
		}
	}
	limits := s.bounds()
	plain, closePlain, err := oci.UnpackArchive(r, oci.ArchiveLimits{Bytes: 2*limits.Bytes + 1<<20, Ratio: limits.Ratio})
	if err != nil {
		return Info{}, err
	}
	defer closePlain()
	rec.Want = m.Hash
	return s.make(ctx, name, rec, func(t *layerTree) error {
		if err := applyWhole(ctx, t, plain, plainLayer); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, r) // where the part's sum is checked
		return err
	})
}
