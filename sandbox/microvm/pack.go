package microvm

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// Bounds of a packed kernel.
const (
	packedFilesMax = 20_000
	packedBytesMax = 2 << 30
)

var releaseForm = pattern.Lazy(`^[0-9][A-Za-z0-9.+_~-]{0,99}$`)

// Pack writes a kernel and its modules as a tar that Install takes.
func Pack(ctx context.Context, k Kernel, w io.Writer) error {
	t := tar.NewWriter(w)
	if err := packFile(t, k.Path, kernelFile); err != nil {
		return err
	}
	err := filepath.WalkDir(k.Modules, func(file string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil || !d.Type().IsRegular() {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(k.Modules, file)
		if err != nil {
			return err
		}
		return packFile(t, file, path.Join(modulesDir, filepath.ToSlash(rel)))
	})
	return errors.Join(err, t.Close())
}

func packFile(t *tar.Writer, file, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size())
	return err
}

// Install puts a packed kernel of the given release into the cache at dir,
// where FindKernel finds it. Nothing is there before r has ended well.
// Invalid: it is no packed kernel.
func Install(ctx context.Context, dir, release string, r io.Reader) (Kernel, error) {
	if !releaseForm().MatchString(release) {
		return Kernel{}, errs.New(errs.Invalid, "%.120q is no kernel's release", release)
	}
	kernels := filepath.Join(dir, kernelsDir)
	if err := os.MkdirAll(kernels, 0o755); err != nil {
		return Kernel{}, err
	}
	unlock, err := lock(ctx, filepath.Join(kernels, ".lock"))
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	tmp, err := os.MkdirTemp(kernels, halfMade+"*")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := unpack(ctx, tmp, r); err != nil {
		return Kernel{}, err
	}
	if _, isELF, err := hashFile(filepath.Join(tmp, kernelFile)); err != nil || !isELF {
		return Kernel{}, errs.Wrap(errs.Invalid, err, "the packed kernel has no %s", kernelFile)
	}
	return publish(dir, tmp, release)
}

// unpack writes the files of a tar beneath dir; anything else is refused.
func unpack(ctx context.Context, dir string, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewReader(io.LimitReader(r, packedBytesMax))
	for files := 0; ; files++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // its end tells whether it is whole
			return err
		}
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "the packed kernel cannot be read")
		}
		good := h.Typeflag == tar.TypeReg && fs.ValidPath(h.Name) && (h.Name == kernelFile || strings.HasPrefix(h.Name, modulesDir+"/"))
		if !good || files >= packedFilesMax {
			return errs.New(errs.Invalid, "the packed kernel holds %.120q", h.Name)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "the packed kernel holds %.120q twice", h.Name)
		}
		_, err = io.Copy(f, t)
		if err = errors.Join(err, f.Close()); err != nil {
			return errs.Wrap(errs.Invalid, err, "the packed kernel is not whole")
		}
	}
}
