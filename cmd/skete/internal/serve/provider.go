package serve

import (
	"context"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker"
	"github.com/skete-dev/skete/sandbox/firecracker"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/microvm"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/sandbox/qemu"
	"github.com/skete-dev/skete/sandbox/remote"
)

// Kernels is the place of kernels, and of what is made of them, in a data
// directory.
func Kernels(home string) string { return filepath.Join(home, "kernels") }

// Kernel says which kernel machines have that have one of their own.
func Kernel(c Config) microvm.KernelConfig {
	return microvm.KernelConfig{Dir: Kernels(c.Home), Vmlinux: c.Kernel.Vmlinux, Modules: c.Kernel.Modules}
}

// Provider makes the provider with this name; its files are in dir, kernels in
// c.Home. The caller closes it. Invalid: there is none of this name.
func Provider(ctx context.Context, c Config, name, dir string) (sandbox.Provider, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	switch name {
	case gvisor.Name:
		runsc, err := Runsc(ctx, dir, c.Log)
		if err != nil {
			return nil, err
		}
		return gvisor.New(gvisor.Config{Dir: in("gvisor"), Runsc: runsc, Creates: c.Creates, Log: c.Log, Serve: c.ServeGuest})
	case process.Name:
		return process.New(process.Config{Dir: in("process"), Allow: c.UnsafeNoIsolation, Log: c.Log})
	}
	guest, err := Guest(c.Guest, dir)
	if err != nil {
		return nil, err
	}
	switch name {
	case qemu.Name:
		return qemu.New(qemu.Config{
			Dir: in("qemu"), Cache: Kernels(c.Home), QEMU: c.QEMU.Program, Accel: c.QEMU.Accel, Guest: guest, Serve: c.ServeGuest,
			Vmlinux: c.Kernel.Vmlinux, Modules: c.Kernel.Modules, Creates: c.Creates, Log: c.Log,
		})
	case firecracker.Name:
		return firecracker.New(firecracker.Config{
			Dir: in("firecracker"), Cache: Kernels(c.Home), Binary: c.Firecracker.Program, Jailer: c.Firecracker.Jailer, Serve: c.ServeGuest,
			Kernel: c.Kernel.Vmlinux, Modules: c.Kernel.Modules, Creates: c.Creates, Log: c.Log,
		})
	case remote.Name:
		return openRemote(ctx, c, in("remote"), guest)
	case remote.RunloopName:
		return openRunloop(ctx, c, in("runloop"), guest)
	case docker.Name:
		return docker.New(docker.Config{Dir: in("docker"), Host: c.Docker.Host, Guest: guest, Creates: c.Creates, Log: c.Log, Serve: c.ServeGuest})
	}
	return nil, errs.New(errs.Invalid, "there is no provider %q", name)
}
