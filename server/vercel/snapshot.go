package vercel

import (
	"context"
	"net/http"
	"slices"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
)

// snapshotView is a snapshot.
type snapshotView struct {
	ID              string `json:"id"`
	SourceSessionID string `json:"sourceSessionId"`
	Region          string `json:"region"`
	Status          string `json:"status"`
	SizeBytes       int64  `json:"sizeBytes"`
	CreatedAt       int64  `json:"createdAt"`
	UpdatedAt       int64  `json:"updatedAt"`
}

func snapshotOf(s sandbox.Snapshot, status string) snapshotView {
	return snapshotView{
		ID: string(s.ID), SourceSessionID: string(s.Sandbox), Region: region, Status: status, SizeBytes: s.Bytes,
		CreatedAt: ms(s.CreatedAt), UpdatedAt: ms(s.CreatedAt),
	}
}

// snapshot saves the files of a sandbox, and ends its session as clients expect it.
func (b *Bridge) snapshot(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Expiration int64 `json:"expiration"` // ms; 0 = none
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.Expiration != 0 {
		return notSupported("an expiration of a snapshot, which stays until it is deleted,")
	}
	ctx := r.Context()
	info, err := b.there(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	if info.State != sandbox.Running && info.State != sandbox.Paused {
		return notRunning(info)
	}
	s, err := b.Sandboxes.Snapshot(ctx, info.Tenant, info.ID, sandbox.SnapshotRequest{DiskOnly: true})
	if err != nil {
		return err
	}
	if info, err = b.end(ctx, info); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"snapshot": snapshotOf(s, "created"), "session": sessionOf(info)})
}

// snapshotsOf lists those of a sandbox; "" = all of the caller's.
func (b *Bridge) snapshotsOf(ctx context.Context, id sandbox.ID) []sandbox.Snapshot {
	return slices.DeleteFunc(slices.Clone(b.Sandboxes.ListSnapshots(ctx, auth.From(ctx).Tenant)), func(s sandbox.Snapshot) bool {
		return id != "" && s.Sandbox != id
	})
}

func (b *Bridge) snapshots(w http.ResponseWriter, r *http.Request) error {
	ctx, q := r.Context(), r.URL.Query()
	var of sandbox.ID
	if name := q.Get("name"); name != "" {
		var err error
		if of, err = b.named(ctx, auth.From(ctx).Tenant, name); err != nil {
			return err
		}
	}
	up, err := ascending(q, false)
	if err != nil {
		return err
	}
	all := b.snapshotsOf(ctx, of)
	sandbox.NewestFirst(all)
	if up {
		slices.Reverse(all)
	}
	page, p, err := pageOf(all, q)
	if err != nil {
		return err
	}
	views := []snapshotView{}
	for _, s := range page {
		views = append(views, snapshotOf(s, "created"))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"snapshots": views, "pagination": p})
}

// known finds the snapshot of a request.
func (b *Bridge) known(r *http.Request) (sandbox.Snapshot, error) {
	id, err := sandbox.ParseSnapshotID(r.PathValue("snapshot"))
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	return b.Sandboxes.GetSnapshot(r.Context(), auth.From(r.Context()).Tenant, id)
}

func (b *Bridge) getSnapshot(w http.ResponseWriter, r *http.Request) error {
	s, err := b.known(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"snapshot": snapshotOf(s, "created")})
}

func (b *Bridge) deleteSnapshot(w http.ResponseWriter, r *http.Request) error {
	s, err := b.known(r)
	if err == nil {
		err = b.Sandboxes.DeleteSnapshot(r.Context(), auth.From(r.Context()).Tenant, s.ID)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"snapshot": snapshotOf(s, "deleted")})
}
