// Package microvmtest gives tests a kernel and an initramfs to boot.
//
//	kernel := microvmtest.Kernel(t)          // skips the test where there is none to be had
//	initrd := microvmtest.Initramfs(t, kernel, guesttest.Binary(t))
//
// They are kept in the system's temporary directory from one test process to
// the next.
package microvmtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// fetchTimeout bounds the download of a kernel package, of some 30 MB.
const fetchTimeout = 5 * time.Minute

// Dir is the cache.
func Dir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("skete-microvmtest-%d", os.Getuid()))
}

// Kernel returns a kernel for virtual machines. The test is skipped where this
// machine's distribution has none or cannot be reached.
func Kernel(t testing.TB) microvm.Kernel {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fetchTimeout)
	defer cancel()
	k, err := microvm.EnsureKernel(ctx, microvm.KernelConfig{Dir: Dir()})
	if errs.Is(err, errs.Unsupported) || errs.Is(err, errs.Unavailable) {
		t.Skipf("no kernel to boot: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Initramfs returns the path of an initramfs with this guest program.
func Initramfs(t testing.TB, k microvm.Kernel, guest string) string {
	t.Helper()
	path, _, err := microvm.Initramfs(t.Context(), Dir(), k, guest)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
