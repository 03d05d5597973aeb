package serve

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
)

// volumes makes sandbox.Volumes of a volume.Store, which knows no sandboxes.
type volumes struct{ *volume.Store }

func (v volumes) Create(ctx context.Context, id string, bytes int64, form sandbox.Form) (sandbox.Volume, error) {
	create := v.Store.Create
	if form == sandbox.Disk {
		create = v.CreateDisk
	}
	made, err := create(ctx, id, bytes)
	return sandbox.Volume(made), err
}

func (v volumes) Attach(ctx context.Context, id string, form sandbox.Form) (sandbox.Volume, error) {
	attach := v.Store.Attach
	if form == sandbox.Disk {
		attach = v.AttachDisk
	}
	found, err := attach(ctx, id)
	return sandbox.Volume(found), err
}

// host makes the watch over the disks that sandboxes fill: the data directory's,
// where machines keep what is no workspace, and the volumes', if that is another.
// home is of the data directory's alone, where histories are.
func (r *running) host(disks *volume.Store) (all, home *quota.Host, err error) {
	var data, images unix.Stat_t
	if err := errors.Join(unix.Stat(r.c.Home, &data), unix.Stat(disks.Dir(), &images)); err != nil {
		return nil, nil, errs.Wrap(errs.Internal, err, "cannot look at the server's disks")
	}
	reserve := int64(r.c.ReserveMB) << 20
	first := quota.Disk{Name: "data directory", Reserve: reserve, Space: func() (int64, int64, error) { return volume.Space(r.c.Home) }}
	if data.Dev == images.Dev {
		first.Pending = disks.Pending
		all = quota.NewHost(first)
		return all, all, nil
	}
	return quota.NewHost(first, quota.Disk{
		Name: "disk of workspaces", Reserve: reserve, Pending: disks.Pending,
		Space: func() (int64, int64, error) { return volume.Space(disks.Dir()) },
	}), quota.NewHost(first), nil
}
