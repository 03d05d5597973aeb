package microvm

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/confine"
	"github.com/skete-dev/skete/internal/pattern"
)

// Bounds of what a package may hold.
const (
	packageBytesMax   = 4 << 30
	packageEntriesMax = 200_000
	outputBytesMax    = 4 << 20
	lockPause         = 50 * time.Millisecond
)

// kernelPackages are the packages that depend on the newest kernel for virtual
// machines, best first: of Debian, then of Ubuntu.
var kernelPackages = map[string][]string{
	"amd64": {"linux-image-cloud-amd64", "linux-image-kvm", "linux-image-virtual"},
	"arm64": {"linux-image-cloud-arm64", "linux-image-virtual"},
}

// fetchKernel takes a kernel out of the distribution's package, without
// installing that. Preconditions: the lock is held.
func fetchKernel(ctx context.Context, dir string) (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, errs.New(errs.Unsupported, "kernels are taken from packages for amd64 only").WithHint("%s", hintKernel)
	}
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return Kernel{}, errs.New(errs.Unsupported, "this distribution has no %s to get a kernel with", program).
				WithHint("name a vmlinux of your own and its modules")
		}
	}
	names, err := resolveKernel(ctx)
	if err != nil {
		return Kernel{}, err
	}
	if err := removeHalfMade(filepath.Join(dir, kernelsDir)); err != nil {
		return Kernel{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Join(dir, kernelsDir), halfMade+"*")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	packages := filepath.Join(tmp, "packages")
	if err := os.Mkdir(packages, 0o755); err != nil {
		return Kernel{}, err
	}
	if _, err := run(ctx, packages, "apt-get", append([]string{"-qq", "download"}, names...)...); err != nil {
		if ctx.Err() != nil {
			return Kernel{}, ctx.Err()
		}
		return Kernel{}, errs.Wrap(errs.Unavailable, err, "the package %s cannot be downloaded", names[0]).WithHint("`apt-get update` may be due; else look at the network")
	}
	release, err := unpackPackages(ctx, packages, tmp)
	if err != nil {
		return Kernel{}, err
	}
	if err := os.RemoveAll(packages); err != nil {
		return Kernel{}, err
	}
	return publish(dir, tmp, release)
}

// removeHalfMade removes what a process that was killed here has left.
// Preconditions: the lock is held.
func removeHalfMade(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, halfMade+"*"))
	if err != nil {
		return err
	}
	for _, o := range old {
		err = errors.Join(err, os.RemoveAll(o))
	}
	return err
}

var imageName = pattern.Lazy(`^linux-image-(unsigned-)?[0-9][a-z0-9.+~-]*$`)

// resolveKernel returns the packages of the newest kernel: the image, and on
// Ubuntu its modules.
func resolveKernel(ctx context.Context) ([]string, error) {
	for _, meta := range kernelPackages[runtime.GOARCH] {
		out, err := run(ctx, "", "apt-cache", "depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", meta)
		if err != nil {
			continue // this distribution does not know it
		}
		if image := dependedImage(out); image != "" {
			return append([]string{image}, kernelModules(ctx, image)...), nil
		}
	}
	return nil, errs.New(errs.Unsupported, "this distribution has no kernel for virtual machines that we know").
		WithHint("`apt-get update` may be due; or name a vmlinux of your own and its modules")
}

// dependedImage finds the kernel that a meta package depends on.
func dependedImage(out string) string {
	for line := range strings.Lines(out) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && imageName().MatchString(name) {
			return name
		}
	}
	return ""
}

// kernelModules names the package of modules that Ubuntu keeps apart.
func kernelModules(ctx context.Context, image string) []string {
	name := "linux-modules-" + strings.TrimPrefix(strings.TrimPrefix(image, "linux-image-"), "unsigned-")
	if out, err := run(ctx, "", "apt-cache", "show", name); err == nil && strings.Contains(out, "Package: "+name) {
		return []string{name}
	}
	return nil
}

// unpackPackages puts the kernel and its modules from all packages in a
// directory into dir.
func unpackPackages(ctx context.Context, packages, dir string) (release string, err error) {
	list, err := filepath.Glob(filepath.Join(packages, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, file := range list {
		r, err := unpackPackage(ctx, file, dir)
		if err != nil {
			return "", fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
		if r != "" {
			release = r
		}
	}
	image := filepath.Join(dir, "vmlinuz")
	if release == "" {
		return "", errs.New(errs.Unsupported, "the package holds no kernel")
	}
	if err := extractFile(ctx, image, filepath.Join(dir, kernelFile)); err != nil {
		return "", err
	}
	return release, os.Remove(image)
}

func unpackPackage(ctx context.Context, file, dir string) (release string, err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	cmd.Env = programEnv()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := confine.Start(cmd, confine.Rights{Read: []string{file}}); err != nil {
		return "", err
	}
	release, err = takeKernel(ctx, out, dir)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", errs.Wrap(errs.Unavailable, err, "the package is damaged").WithHint("try again: the download may have been cut")
	}
	return release, nil
}

// takeKernel writes vmlinuz and the modules that a package's archive holds to
// dir, and nothing else.
func takeKernel(ctx context.Context, r io.Reader, dir string) (release string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	archive := tar.NewReader(io.LimitReader(r, packageBytesMax))
	for range packageEntriesMax {
		h, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // documented to be bare
			_, err = io.Copy(io.Discard, r) // let dpkg-deb end
			return release, err
		}
		if err != nil {
			return "", errs.Wrap(errs.Invalid, err, "the package's archive")
		}
		to, of := kernelPlace(h)
		if of != "" {
			release = of
		}
		if to == "" {
			continue
		}
		if err := takeFile(ctx, root, to, h, archive); err != nil {
			return "", err
		}
	}
	return "", errs.New(errs.Limit, "the package has more than %d entries", packageEntriesMax)
}

// kernelPlace says where an entry of a package goes ("" = nowhere), and for
// the kernel itself its release.
func kernelPlace(h *tar.Header) (to, release string) {
	if h.Typeflag != tar.TypeReg {
		return "", ""
	}
	name := path.Clean("/" + h.Name)
	if r, ok := strings.CutPrefix(name, "/boot/vmlinuz-"); ok && !strings.Contains(r, "/") {
		return "vmlinuz", r
	}
	name = strings.TrimPrefix(name, "/usr")
	rest, ok := strings.CutPrefix(name, "/lib/modules/")
	if !ok || !strings.Contains(path.Base(rest), ".ko") {
		return "", ""
	}
	_, rest, _ = strings.Cut(rest, "/")
	return path.Join(modulesDir, rest), ""
}

func takeFile(ctx context.Context, root *os.Root, to string, h *tar.Header, r io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if h.Size > imageBytesMax {
		err = errs.New(errs.Limit, "%.100q in the package has %d bytes", h.Name, h.Size)
	} else {
		_, err = io.Copy(f, r)
	}
	return errors.Join(err, f.Close())
}

func programEnv() []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// run runs a program of the distribution to its end.
func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, programEnv()
	var out, errText limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %.300q", program, err, errText.b)
	}
	return string(out.b), nil
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ b []byte }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), outputBytesMax-len(l.b))]...)
	return len(p), nil
}

// lock takes a lock that all processes on this host see; a process that dies
// gives it back.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the kernels: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}
