// Package guesttest gives tests the real programs of machines.
//
//	guest := guesttest.Binary(t) // path of a static skete-guest, built once
//	agent := guesttest.Agent(t)  // of skete-agent, likewise
//
// A program is built with the go command from the sources of this module,
// or taken from SKETE_GUEST, SKETE_AGENTS_PROGRAM when that is set. It is placed in a directory of
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

var (
	guest = sync.OnceValues(func() (string, error) { return build("skete-guest", "SKETE_GUEST") })
	agent = sync.OnceValues(func() (string, error) { return build("skete-agent", "SKETE_AGENTS_PROGRAM") })
)

func build(name, variable string) (string, error) {
	if path := os.Getenv(variable); path != "" {
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
	out := filepath.Join(tmp, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "github.com/skete-dev/skete/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, strings.TrimSpace(string(msg)))
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%x", name, sha256.Sum256(data)))
	return path, os.Rename(out, path)
}

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
	return program(t, guest)
}

// Agent is Binary of the program of agents that work in machines.
func Agent(t testing.TB) string {
	t.Helper()
	return program(t, agent)
}

func program(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
