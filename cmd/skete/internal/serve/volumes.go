package serve

import (
	"context"

	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
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
