package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Kernel is one that machines can boot.
type Kernel struct {
	// Path of the kernel as an uncompressed ELF file with a PVH entry.
	Path string `json:"-"`
	// Release as `uname -r` shows it.
	Release string `json:"release"`
	// Modules is the directory of the kernel's .ko files, the tree that is
	// /lib/modules/<release> elsewhere.
	Modules string `json:"-"`
	// Hash of the kernel's content, hex.
	Hash string `json:"hash"`
}

// KernelConfig says where kernels come from.
type KernelConfig struct {
	// Dir is the cache.
	Dir string
	// Vmlinux and Modules are the operator's own, both or none. Vmlinux may be
	// compressed as distributions ship it (vmlinuz); it is unpacked into Dir.
	Vmlinux, Modules string
}

// Names in the cache: kernels/<release>-<hash>/{vmlinux,modules,kernel.json}.
const (
	kernelsDir  = "kernels"
	kernelFile  = "vmlinux"
	modulesDir  = "modules"
	recordFile  = "kernel.json"
	halfMade    = ".new-" // what is not in its place yet begins so
	recordBytes = 4 << 10
	hintKernel  = "with a network, `skete doctor --fix` takes one from the distribution; or name your own vmlinux and its modules"
)

// FindKernel returns the operator's own kernel, or the newest that the cache
// holds, and asks no network. NotFound: there is none; the hint says how to
// get one.
func FindKernel(ctx context.Context, cfg KernelConfig) (Kernel, error) {
	if cfg.Vmlinux != "" || cfg.Modules != "" {
		return ownKernel(ctx, cfg)
	}
	found, err := cached(cfg.Dir)
	if err != nil {
		return Kernel{}, err
	}
	if len(found) == 0 {
		return Kernel{}, errs.New(errs.NotFound, "there is no kernel for virtual machines here").WithHint("%s", hintKernel)
	}
	return found[0], nil
}

// EnsureKernel is FindKernel, but where there is none it takes the newest
// kernel for virtual machines from the distribution's packages. Callers at the
// same time, of other processes too, wait for one download. Unsupported: there
// is no package manager that we know; Unavailable: it could not be reached.
func EnsureKernel(ctx context.Context, cfg KernelConfig) (Kernel, error) {
	k, err := FindKernel(ctx, cfg)
	if !errs.Is(err, errs.NotFound) {
		return k, err
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, kernelsDir), 0o755); err != nil {
		return Kernel{}, err
	}
	unlock, err := lock(ctx, filepath.Join(cfg.Dir, kernelsDir, ".lock"))
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	if k, err := FindKernel(ctx, cfg); err == nil { // another caller was faster
		return k, nil
	}
	return fetchKernel(ctx, cfg.Dir)
}

// cached lists the kernels of the cache, newest first.
func cached(dir string) ([]Kernel, error) {
	records, err := filepath.Glob(filepath.Join(dir, kernelsDir, "*", recordFile))
	if err != nil {
		return nil, err
	}
	type aged struct {
		Kernel
		at int64
	}
	var list []aged
	for _, r := range records {
		k, err := readRecord(r)
		info, serr := os.Stat(r)
		if err != nil || serr != nil {
			continue // being removed, or damaged: as if it were not there
		}
		list = append(list, aged{k, info.ModTime().UnixNano()})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].at > list[j].at })
	kernels := make([]Kernel, len(list))
	for i, k := range list {
		kernels[i] = k.Kernel
	}
	return kernels, nil
}

func readRecord(path string) (Kernel, error) {
	data, err := readLimited(path, recordBytes)
	if err != nil {
		return Kernel{}, err
	}
	var k Kernel
	if err := json.Unmarshal(data, &k); err != nil {
		return k, err
	}
	dir := filepath.Dir(path)
	k.Path, k.Modules = filepath.Join(dir, kernelFile), filepath.Join(dir, modulesDir)
	_, err = os.Stat(k.Path)
	return k, err
}

// ownKernel takes the operator's files as they are; a compressed kernel is
// unpacked into the cache.
func ownKernel(ctx context.Context, cfg KernelConfig) (Kernel, error) {
	if cfg.Vmlinux == "" || cfg.Modules == "" {
		return Kernel{}, errs.New(errs.Invalid, "a kernel of your own needs both, vmlinux and its modules")
	}
	if info, err := os.Stat(cfg.Modules); err != nil || !info.IsDir() {
		return Kernel{}, errs.Wrap(errs.NotFound, err, "the kernel's modules %q are no directory", cfg.Modules)
	}
	sum, isELF, err := hashFile(cfg.Vmlinux)
	if err != nil {
		return Kernel{}, errs.Wrap(errs.NotFound, err, "the kernel %q cannot be read", cfg.Vmlinux)
	}
	k := Kernel{Path: cfg.Vmlinux, Release: releaseOf(cfg.Modules), Modules: cfg.Modules, Hash: sum}
	if isELF {
		return k, nil
	}
	dir := filepath.Join(cfg.Dir, kernelsDir, "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Kernel{}, err
	}
	k.Path = filepath.Join(dir, kernelFile+"-"+sum[:32])
	if _, err := os.Stat(k.Path); err == nil {
		return k, nil
	}
	tmp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := extractFile(ctx, cfg.Vmlinux, filepath.Join(tmp, kernelFile)); err != nil {
		return Kernel{}, err
	}
	return k, os.Rename(filepath.Join(tmp, kernelFile), k.Path)
}

// releaseOf is the directory's name where that is a release ("6.1.0-56"), the
// one beneath it where the tree begins higher.
func releaseOf(modules string) string {
	name := filepath.Base(modules)
	if strings.Count(name, ".") < 1 {
		if list, _ := filepath.Glob(filepath.Join(modules, "[0-9]*.*")); len(list) == 1 {
			return filepath.Base(list[0])
		}
	}
	return name
}

func hashFile(path string) (sum string, isELF bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	head := make([]byte, len(elfMagic))
	if _, err := io.ReadFull(f, head); err != nil {
		return "", false, err
	}
	h := sha256.New()
	h.Write(head)
	if _, err := io.Copy(h, f); err != nil {
		return "", false, err
	}
	return hex.EncodeToString(h.Sum(nil)), string(head) == string(elfMagic), nil
}

// publish moves a kernel that was put together in tmp to its place.
func publish(dir, tmp, release string) (Kernel, error) {
	sum, _, err := hashFile(filepath.Join(tmp, kernelFile))
	if err != nil {
		return Kernel{}, err
	}
	data, err := json.Marshal(Kernel{Release: release, Hash: sum})
	if err != nil {
		return Kernel{}, err
	}
	if err := os.WriteFile(filepath.Join(tmp, recordFile), data, 0o644); err != nil {
		return Kernel{}, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Kernel{}, err
	}
	at := filepath.Join(dir, kernelsDir, fmt.Sprintf("%s-%s", release, sum[:12]))
	if err := os.Rename(tmp, at); err != nil && !errors.Is(err, os.ErrExist) {
		return Kernel{}, err
	}
	return readRecord(filepath.Join(at, recordFile))
}
