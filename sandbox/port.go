package sandbox

import (
	"context"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
)

// This file holds what the Manager needs from the rest of the house, named
// here because the consumer knows best. They speak in plain types, so that an
// implementation need not import this package.

// Leases keeps two servers from being the same node.
type Leases interface {
	// Hold takes the lease on key for holder and keeps renewing it. Exists:
	// another holder has it. The same holder takes it over, since it is sure
	// that its predecessor is dead. lost is closed when the lease is gone
	// against our will; release gives it back and ends the renewing.
	Hold(ctx context.Context, key, holder string, ttl time.Duration) (lost <-chan struct{}, release func(context.Context) error, err error)
}

// Templates finds root file systems.
type Templates interface {
	// Rootfs makes a template ready to boot from. NotFound: no such template;
	// the hint lists the known ones.
	Rootfs(ctx context.Context, name string) (template.Rootfs, error)
	// Image returns the path of a root file system as a read-only ext4 image,
	// made at the first call. Unsupported: the template cannot be one.
	Image(ctx context.Context, root template.Rootfs) (string, error)
	// Language reports whether the template has the tools of the language.
	// Unsupported: it has not; the hint says how to get them.
	Language(ctx context.Context, name, language string) error
	// Needs is the machine that a template is meant for; zero also where there is no
	// such template yet. It makes none.
	Needs(ctx context.Context, name string) template.Needs
}

// Form is how a volume is shown.
type Form string

// A volume is shown as a mounted directory, or left as an ext4 image for a
// machine that mounts it itself. It can change from one attach to the next.
const (
	Directory Form = "directory"
	Disk      Form = "disk"
)

// Volume is a place of bounded size on the host.
type Volume struct {
	Path string // of the directory, or of the image
	// Disk is the directory that Path lies in, on the same file system; no
	// machine sees what else is there. "" = Path is an image.
	Disk string
	// Enforced: the host refuses bytes beyond the size at once. Where it
	// cannot, the Manager looks from time to time and stops who is over.
	Enforced bool
	// Method says in a word how ("project quota", "image", "watched", …).
	Method string
}

// Files is a workspace as the host can reach it now.
type Files struct {
	Host   ID     // names what the host holds
	Volume Volume // Path "" = a machine has the disk for itself
	// Empty: the workspace was empty when the sandbox was made.
	Empty bool
	// Guest is of the running machine; nil = there is none, or it is frozen.
	Guest *wire.Client
	// Alone: there is no machine, and Volume goes away after the call.
	Alone bool
	// Freeze stops all that writes to Volume, as well as can be done; nil
	// where Volume has no Path. thaw lets it go on, and may be called once.
	Freeze func(context.Context) (thaw func(), err error)
}

// KeptHistory is what is kept of the workspace of a sandbox that is gone.
type KeptHistory struct {
	ID      ID
	Bytes   int64     // of the host's disk
	Written time.Time // when something was written to it last
}

// Volumes makes workspaces. All host resources derive from the id.
//
// Safe for concurrent use, for different ids.
type Volumes interface {
	// Create makes and attaches a volume. A half-made one of the same id is replaced.
	// Unsupported: the host cannot make disks.
	Create(ctx context.Context, id string, bytes int64, form Form) (Volume, error)
	// Attach makes a volume's Path usable (after a stop, a restart, a reboot);
	// no error when it is so already. NotFound: no such volume.
	Attach(ctx context.Context, id string, form Form) (Volume, error)
	// Copy makes a detached volume that holds what from holds now, sharing
	// blocks where the host can. Nothing may write to from meanwhile. A
	// half-made one of the same id is replaced.
	Copy(ctx context.Context, from, to string) error
	// Detach lets go of what Attach took; the bytes stay. May be repeated.
	Detach(ctx context.Context, id string) error
	// Remove deletes the volume, attached or not; no error if there is none.
	Remove(ctx context.Context, id string) error
	// List names all volumes there are, half-made ones included.
	List(ctx context.Context) ([]string, error)
	// Usage says how many bytes the volume holds.
	Usage(ctx context.Context, id string) (int64, error)
}

// Disks says what volumes cost the host, and mends what a full disk did to them.
// Volumes that are plain directories hold nothing here: Usage is for those.
//
// Safe for concurrent use.
type Disks interface {
	// Held says how many bytes of the host a volume has, and how many more the
	// host's memory holds for it.
	Held(id string) (held, pending int64, err error)
	// ReadOnly names the volumes that are attached and take no writes any more.
	ReadOnly() ([]string, error)
	// Broken says why nothing can be written to a volume that is attached; nil:
	// it can be.
	Broken(id string) error
	// Mend checks a volume that no machine has, if errors were found in it.
	// Unavailable: there is no room for that now.
	Mend(ctx context.Context, id string) error
}
