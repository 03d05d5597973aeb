package doctor

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// templates looks at what making templates needs, and at what the default one has.
func (h Host) templates(ctx context.Context) []Check {
	checks := []Check{h.mmdebstrap(), h.erofs(ctx), h.reflink()}
	return append(checks, h.languages(ctx)...)
}

func (h Host) mmdebstrap() Check {
	const name = "mmdebstrap"
	if h.program(name) == "" {
		return info(name, "apt-get install mmdebstrap", "missing: templates can be pulled and imported, but not built from Debian packages").installable(h, "mmdebstrap")
	}
	return ok(name, "templates can be built from Debian packages")
}

// erofsTar is the first mkfs.erofs that reads a tar file.
var erofsTar = [3]int{1, 7, 0}

func (h Host) erofs(ctx context.Context) Check {
	const name = "mkfs.erofs"
	program := h.program(name)
	if program == "" {
		return info(name, "", "not there, and not needed: images are ext4")
	}
	text, err := ask(ctx, program, "-V")
	v, found := version(text)
	if err != nil || !found || older(v, erofsTar) {
		return info(name, "", "of no use before 1.7, and not needed: images are ext4")
	}
	return ok(name, "%s", dotted(v))
}

// reflink tries whether copies share their blocks.
func (h Host) reflink() Check {
	const name = "reflink"
	err := tryReflink(nearest(h.Home))
	if err == nil {
		return ok(name, "copies of disks share their blocks")
	}
	return info(name, "a data directory on XFS or btrfs makes forks and snapshots of large disks cheap", "copies of disks are real ones: %v", err)
}

func tryReflink(dir string) error {
	from, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(from.Name())
	defer from.Close()
	if _, err := from.Write(make([]byte, 4096)); err != nil {
		return err
	}
	to, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	if err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd())); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
			return errs.New(errs.Unsupported, "this file system cannot")
		}
		return err
	}
	return nil
}

func (h Host) languages(ctx context.Context) []Check {
	if h.Language == nil {
		return nil
	}
	var checks []Check
	for _, lang := range []string{"python", "node", "go", "ruby"} {
		name := "language " + lang
		err := h.Language(ctx, lang)
		if err == nil {
			checks = append(checks, ok(name, "in the default template"))
			continue
		}
		c := warn(name, errs.Hint(err), "%s", errs.Public(err))
		if lang == "python" { // small, and what nearly everyone wants first
			c = c.installable(h, "python3")
		}
		checks = append(checks, c)
	}
	return checks
}

// engine looks whether a container engine may be there; the boot asks it.
func (h Host) engine() Check {
	const name = "engine"
	const hint = "install Docker, or Podman and `systemctl enable --now podman.socket`; the provider docker is not needed where another works"
	if address := os.Getenv("DOCKER_HOST"); address != "" {
		return ok(name, "DOCKER_HOST names one")
	}
	for _, path := range engineSockets(os.Geteuid()) {
		if info, err := os.Stat(h.at(path)); err == nil && info.Mode().Type() == os.ModeSocket {
			return ok(name, "there is a socket at %s", path)
		}
	}
	if h.program("docker") != "" || h.program("podman") != "" {
		return fail(name, hint, "a container engine is installed, but none has a socket")
	}
	return fail(name, hint, "there is no container engine")
}
