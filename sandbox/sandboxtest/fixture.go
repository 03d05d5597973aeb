// Package sandboxtest holds the suite that every sandbox.Provider passes.
//
//	func TestProvider(t *testing.T) {
//		sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture { … })
//	}
//
// A new provider is a constructor and that one test. The suite boots real
// machines with the real guest, and with guests that misbehave. What a
// provider's Capabilities deny is not asked for; what they promise is tried.
package sandboxtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// Fixture is what the suite needs to know of a provider.
type Fixture struct {
	// Dir is the state directory that every provider of this fixture uses.
	Dir string
	// New opens the provider on Dir, as a server does after a restart. The
	// suite closes what it opens.
	New func(t testing.TB) sandbox.Provider
	// Rootfs to boot from.
	Rootfs template.Rootfs
	// Volume makes a workspace bounded to so many bytes; nil: a plain
	// directory is used and the bound of the workspace is not tested.
	Volume func(t testing.TB, bytes int64) string
	// Disk makes an ext4 image of that size for a workspace: for providers
	// without HostWorkspace, which cannot do without it.
	Disk func(t testing.TB, bytes int64) string
	// Boot is how long a machine of this kind takes to come up at most on a
	// busy host; 0 = a second. Guests that never answer are given so long.
	Boot time.Duration
	// HostPID is the process of the host without which the machine is dead.
	HostPID func(t testing.TB, id sandbox.ID) int
}

// Rootfs makes a small root file system of the host's own programs: /usr, the
// links into it, and a few files of /etc.
func Rootfs(t testing.TB) template.Rootfs {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	for path, mode := range map[string]os.FileMode{
		"proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755, "tmp": 0o777 | os.ModeSticky, "root": 0o700,
		"var": 0o755, "var/tmp": 0o777 | os.ModeSticky, "workspace": 0o755, "home": 0o755, "home/user": 0o755,
		"etc": 0o755, "usr": 0o755, wire.BootDir: 0o700,
	} {
		p := filepath.Join(dir, path)
		must(t, os.MkdirAll(p, 0o755))
		must(t, os.Chmod(p, mode))
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Stat("/usr/" + link); err == nil {
			must(t, os.Symlink("usr/"+link, filepath.Join(dir, link)))
		}
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"group":  "root:x:0:\nuser:x:1000:\n",
		"hosts":  "127.0.0.1 localhost\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644))
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(filepath.Join(dir, "home/user"), sandbox.UserID, sandbox.UserID))
	} else {
		must(t, os.Chmod(filepath.Join(dir, "home/user"), 0o777))
	}
	return template.Rootfs{
		Name: "test", Hash: "test", Dir: dir,
		Binds: []template.Bind{{Source: "/usr", Target: "/usr"}},
		Env:   map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
	}
}

// TmpfsVolume makes a bounded directory, the simplest that there is; it is
// unmounted with the test.
func TmpfsVolume(t testing.TB, bytes int64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volume")
	must(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=755", bytes)); err != nil {
		t.Skipf("a bounded volume needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the volume: %v", err)
		}
	})
	return dir
}

// ProgramsEnv names a directory of programs that Build has built before: for a
// test that runs itself again as a user who cannot build.
const ProgramsEnv = "SKETE_TEST_PROGRAMS"

// Build compiles a static program of this module for the tests, once a process.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		return filepath.Join(dir, filepath.Base(pkg))
	}
	once, _ := builds.LoadOrStore(pkg, &build{})
	b := once.(*build)
	b.do.Do(func() { b.path, b.err = compile(pkg) })
	if b.err != nil {
		t.Fatalf("build %s: %v", pkg, b.err)
	}
	return b.path
}

var builds sync.Map // of *build, by package

type build struct {
	do   sync.Once
	path string
	err  error
}

// compile puts a program below a name made of its content: test processes run
// side by side, perhaps from different sources.
func compile(pkg string) (string, error) {
	dir, err := guesttest.Shared()
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "build-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "program")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", made, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", err
	}
	data, err := os.ReadFile(made)
	if err != nil {
		return "", err
	}
	own := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256(data)))
	if err := os.MkdirAll(own, 0o755); err != nil {
		return "", err
	}
	now := time.Now()
	_ = os.Chtimes(own, now, now) // it is used again
	out := filepath.Join(own, filepath.Base(pkg))
	return out, os.Rename(made, out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
