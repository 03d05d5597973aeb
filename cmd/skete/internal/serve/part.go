package serve

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/microvm"
	"github.com/skete-dev/skete/template"
)

// Roles of what goes with a template's bundle.
const (
	roleKernel  = "kernel"
	releaseInfo = "release"
)

// parts puts the kernel of machines into bundles and takes it from them, so
// that a host without a network can boot what it imports. The guest is a part
// of skete, and needs none.
type parts struct {
	c   Config
	dir string // for kernels that are being packed
}

// Files implements template.Parts.
func (p parts) Files(ctx context.Context) ([]template.BundleFile, error) {
	k, err := microvm.FindKernel(ctx, Kernel(p.c))
	if errs.Is(err, errs.NotFound) {
		return nil, nil // none is used here
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.dir, "kernel-"+k.Hash[:12]+".tar")
	if _, err := os.Stat(path); err == nil {
		return []template.BundleFile{{Role: roleKernel, Path: path, Info: map[string]string{releaseInfo: k.Release}}}, nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(p.dir, ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	err = errors.Join(microvm.Pack(ctx, k, f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return []template.BundleFile{{Role: roleKernel, Path: path, Info: map[string]string{releaseInfo: k.Release}}}, err
}

// Take implements template.Parts. What is of no use here is passed over.
func (p parts) Take(ctx context.Context, part template.BundlePart, r io.Reader) error {
	if part.Role == roleKernel {
		_, err := microvm.Install(ctx, Kernels(p.c.Home), part.Info[releaseInfo], r)
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return err
}
