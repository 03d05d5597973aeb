package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
)

// distribution puts programs named like a distribution's first in the PATH: an
// apt that offers one kernel package, and notes each download.
func distribution(t *testing.T, download string) (downloads func() int) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("kernels are taken from packages for amd64 only")
	}
	dpkg, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	files := map[string][]byte{
		"DEBIAN/control":             []byte("Package: linux-image-6.1.0-9-cloud-amd64\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@localhost>\nDescription: a kernel\n"),
		"boot/vmlinuz-6.1.0-9-cloud": append([]byte("boot code"), pack(t, "lz4", fakeELF(200_000))...),
		"lib/modules/6.1.0-9-cloud/kernel/drivers/virtio/virtio.ko": fakeModule(""),
	}
	for name, data := range files {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(dpkg, "--build", tree, filepath.Join(dir, "kernel.deb")).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	programs := filepath.Join(dir, "programs")
	log := filepath.Join(dir, "log")
	for name, script := range map[string]string{
		"apt-cache": `case "$*" in *linux-image-cloud-amd64) echo "  Depends: linux-image-6.1.0-9-cloud-amd64";; *) exit 1;; esac`,
		"apt-get":   fmt.Sprintf("echo \"$@\" >> %s\n%s", log, strings.ReplaceAll(download, "DEB", filepath.Join(dir, "kernel.deb"))),
	} {
		if err := os.MkdirAll(programs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	return func() int {
		data, _ := os.ReadFile(log)
		return bytes.Count(data, []byte("download linux-image-6.1.0-9-cloud-amd64\n"))
	}
}

// Many ask at once, one downloads; afterwards no network is needed. What a
// killed process left is gone.
func TestEnsureKernel_downloadsOnce(t *testing.T) {
	downloads := distribution(t, "sleep 0.2; cp DEB .")
	dir := t.TempDir()
	left := filepath.Join(dir, kernelsDir, halfMade+"of-the-dead")
	if err := os.MkdirAll(filepath.Join(left, modulesDir), 0o755); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			k, err := EnsureKernel(t.Context(), KernelConfig{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			data, err := os.ReadFile(k.Path)
			if err != nil || !bytes.Equal(data, fakeELF(200_000)) || k.Release != "6.1.0-9-cloud" {
				t.Errorf("%+v: %d bytes, %v", k, len(data), err)
			}
			if _, err := os.Stat(filepath.Join(k.Modules, "kernel/drivers/virtio/virtio.ko")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := downloads(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	if k, err := FindKernel(t.Context(), KernelConfig{Dir: dir}); err != nil || k.Hash == "" {
		t.Errorf("afterwards: %+v, %v", k, err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, kernelsDir, halfMade+"*")); len(list) != 0 {
		t.Errorf("left behind: %q", list)
	}
}

func TestEnsureKernel_aFailureLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		download string
		want     errs.Class
	}{
		"no network":        {"echo 'Temporary failure resolving' >&2; exit 100", errs.Unavailable},
		"a broken package":  {"echo junk > kernel.deb", errs.Unavailable},
		"an empty download": {"true", errs.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			distribution(t, c.download)
			dir := t.TempDir()
			_, err := EnsureKernel(t.Context(), KernelConfig{Dir: dir})
			if !errs.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if list, _ := filepath.Glob(filepath.Join(dir, kernelsDir, "[^.]*")); len(list) != 0 {
				t.Errorf("found as kernels: %q", list)
			}
			if list, _ := filepath.Glob(filepath.Join(dir, kernelsDir, halfMade+"*")); len(list) != 0 {
				t.Errorf("left behind: %q", list)
			}
		})
	}
}

func TestEnsureKernel_endsWithItsContext(t *testing.T) {
	distribution(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), lockPause)
	defer cancel()
	if _, err := EnsureKernel(ctx, KernelConfig{Dir: t.TempDir()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
