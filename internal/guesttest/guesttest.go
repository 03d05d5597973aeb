// Package guesttest gives tests the real guest program.
//
//	guest := guesttest.Binary(t) // path of a static skete-guest, built once
//
// The program is built with the go command from the sources of this module,
// or taken from SKETE_GUEST when that is set. It is placed in a directory of
// the system's temporary directory that any user may read, because tests run
// it as other users too, under a name made of its content: test processes run
// side by side, perhaps from different sources. Old ones are removed.
package guesttest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SKETE_GUEST"); path != "" {
		return path, nil
	}
	dir, err := Shared()
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "build-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "skete-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "github.com/skete-dev/skete/cmd/skete-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build skete-guest: %w\n%s", err, strings.TrimSpace(string(msg)))
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("skete-guest-%x", sha256.Sum256(data)))
	return path, os.Rename(out, path)
})

// Shared is a directory of this user's test processes for what each of them
// would make anew, under names made of the content. What no test run can still
// be using is removed.
func Shared() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("skete-guesttest-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range old {
		if info, err := os.Stat(f); err == nil && time.Since(info.ModTime()) > usedMax {
			_ = os.RemoveAll(f)
		}
	}
	return dir, nil
}

// usedMax is longer than any run of the tests.
const usedMax = 2 * time.Hour

// Binary returns the path of the guest program. The first call of a test
// process builds it; a failed build fails every caller.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
