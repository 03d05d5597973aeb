package microvm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/stage/plan"
)

// Bounds of a kernel's modules.
const (
	moduleBytesMax = 16 << 20
	depthMax       = 16
	moduleFilesMax = 100_000
)

// wanted are the modules that machines use. A kernel that has one built in has
// no file for it, which is fine.
var wanted = []struct {
	name string
	use  plan.Use
}{
	{"virtio_mmio", plan.Always},
	{"virtio_blk", plan.Always},
	{"ext4", plan.Always},
	{"overlay", plan.Always},
	{"virtio-rng", plan.Always},
	{"virtio_console", plan.Virtio},
	{"vmw_vsock_virtio_transport", plan.Vsock},
	{"erofs", plan.Erofs},
	{"iptable_nat", plan.Net},
	{"xt_REDIRECT", plan.Net},
}

// module is one to be put into the initramfs.
type module struct {
	plan.Module
	data []byte
}

// modules collects them in the order of loading.
type modules struct {
	ctx   context.Context
	files map[string]string // path by name, '-' and '_' being the same
	list  []*module
	index map[string]*module
}

// collectModules reads from a kernel's module directory what machines use, each
// after those that it depends on. That is taken from the modules themselves:
// packages do not carry the list that depmod would make.
func collectModules(ctx context.Context, dir string) ([]module, error) {
	m := modules{ctx: ctx, files: map[string]string{}, index: map[string]*module{}}
	if err := m.find(dir); err != nil {
		return nil, err
	}
	for _, w := range wanted {
		if err := m.add(w.name, w.use, depthMax); err != nil {
			return nil, err
		}
	}
	list := make([]module, len(m.list))
	for i, x := range m.list {
		list[i] = *x
	}
	return list, nil
}

func (m *modules) find(dir string) error {
	count := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if count++; count > moduleFilesMax {
			return errs.New(errs.Limit, "more than %d files of modules", moduleFilesMax)
		}
		if name, _, ok := strings.Cut(e.Name(), ".ko"); ok && e.Type().IsRegular() {
			m.files[canonical(name)] = path
		}
		return m.ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("look for the kernel's modules: %w", err)
	}
	return nil
}

func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// add puts a module into the list, behind what it needs, and notes the use of
// all of them.
func (m *modules) add(name string, use plan.Use, depth int) error {
	name = canonical(name)
	path, ok := m.files[name]
	if !ok {
		return nil // built in
	}
	if depth == 0 {
		return errs.New(errs.Invalid, "the kernel's modules depend on each other in a circle")
	}
	x := m.index[name]
	var err error
	if x == nil {
		if x, err = m.load(path); err != nil {
			return err
		}
	}
	needs, err := dependsOn(x.data)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	for _, n := range needs {
		if err := m.add(n, use, depth-1); err != nil {
			return err
		}
	}
	if m.index[name] == nil {
		m.index[name] = x
		m.list = append(m.list, x)
	}
	if !slices.Contains(x.Uses, use) {
		x.Uses = append(x.Uses, use)
	}
	return nil
}

// load reads a module, unpacked: the kernel would not.
func (m *modules) load(path string) (*module, error) {
	data, err := readLimited(path, moduleBytesMax)
	if err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	name, packed, _ := strings.Cut(base, ".ko")
	if packed != "" {
		if data, err = unpackModule(m.ctx, data); err != nil {
			return nil, fmt.Errorf("%s: %w", base, err)
		}
	}
	return &module{Module: plan.Module{File: name + ".ko"}, data: data}, nil
}

func unpackModule(ctx context.Context, data []byte) ([]byte, error) {
	for _, f := range formats {
		if !bytes.HasPrefix(data, f.magic) {
			continue
		}
		r, err := f.open(ctx, bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		out, err := io.ReadAll(io.LimitReader(r, moduleBytesMax+1))
		if err != nil {
			return nil, err
		}
		if len(out) > moduleBytesMax {
			return nil, errs.New(errs.Limit, "the module has more than %d bytes", moduleBytesMax)
		}
		return out, nil
	}
	return nil, errs.New(errs.Unsupported, "the module is packed in a way that we do not know")
}

// dependsOn reads the names in a module's own description.
func dependsOn(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "not a kernel module")
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errs.New(errs.Invalid, "not a kernel module: it has no description")
	}
	info, err := section.Data()
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "not a kernel module")
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		names, ok := bytes.CutPrefix(field, []byte("depends="))
		if ok && len(names) > 0 {
			return strings.Split(string(names), ","), nil
		}
	}
	return nil, nil
}
