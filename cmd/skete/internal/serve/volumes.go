package serve

import (
	"context"

	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
)

// volumes makes sandbox.Volumes of a volume.Store, which knows no sandboxes.
type volumes struct{ *volume.Store }

func (v volumes) Create(ctx context.Context, id string, bytes int64) (sandbox.Volume, error) {
	made, err := v.Store.Create(ctx, id, bytes)
	return sandbox.Volume(made), err
}

func (v volumes) Attach(ctx context.Context, id string) (sandbox.Volume, error) {
	found, err := v.Store.Attach(ctx, id)
	return sandbox.Volume(found), err
}
