package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// SnapshotPath names the snapshot of a request.
type SnapshotPath struct {
	ID string `path:"id" doc:"of the snapshot, snp_…"`
}

func (s *Server) registerSnapshots(t *route.Table) {
	const tag = "snapshots"
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/sandboxes/{id}/snapshots", Scope: key.Write, ID: "create-snapshot", Tag: tag,
		Summary: "Save a sandbox, its memory and its files, as it is; it goes on", Status: http.StatusCreated, Step: route.NoStep(),
	}, s.createSnapshot)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/sandboxes/{id}/fork", Scope: key.Write, ID: "fork-sandbox", Tag: tag,
		Summary: "Make sandboxes that go on from where this one is, all or none", Status: http.StatusCreated, Step: route.NoStep(),
	}, s.forkSandbox)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/snapshots", Scope: key.Read, ID: "list-snapshots", Tag: tag,
		Summary: "List snapshots, newest first",
	}, s.listSnapshots)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/snapshots/{id}", Scope: key.Read, ID: "get-snapshot", Tag: tag,
		Summary: "Get a snapshot",
	}, s.getSnapshot)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: "/v1/snapshots/{id}", Scope: key.Write, ID: "delete-snapshot", Tag: tag,
		Summary: "Delete a snapshot; sandboxes made from it go on",
	}, s.deleteSnapshot)
}

type snapshotOut struct{ Body api.Snapshot }

type createSnapshotIn struct {
	SandboxPath
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same snapshot, as long as it is not deleted; 1 to 128 printable ASCII characters"`

	Body api.CreateSnapshot
}

func (s *Server) createSnapshot(ctx context.Context, in *createSnapshotIn) (*snapshotOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err == nil {
		err = checkIdempotencyKey(in.IdempotencyKey)
	}
	if err != nil {
		return nil, err
	}
	snap, err := s.sandboxes.Snapshot(ctx, auth.From(ctx).Tenant, id, sandbox.SnapshotRequest{
		Name: in.Body.Name, DiskOnly: in.Body.DiskOnly, Key: in.IdempotencyKey,
	})
	if err != nil {
		return nil, err
	}
	return &snapshotOut{snapshotView(snap)}, nil
}

type forkSandboxIn struct {
	SandboxPath
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same sandboxes; 1 to 128 printable ASCII characters"`

	Body api.ForkSandbox
}

type forkedOut struct{ Body api.Forked }

func (s *Server) forkSandbox(ctx context.Context, in *forkSandboxIn) (*forkedOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err == nil {
		err = checkIdempotencyKey(in.IdempotencyKey)
	}
	if err != nil {
		return nil, err
	}
	b := in.Body
	spec, err := SpecOf(api.CreateSandbox{Env: b.Env, Metadata: b.Metadata, TTLMS: b.TTLMS, IdleTimeoutMS: b.IdleTimeoutMS})
	if err != nil {
		return nil, err
	}
	infos, err := s.sandboxes.Fork(ctx, auth.From(ctx).Tenant, id, sandbox.ForkRequest{
		Count: b.Count, DiskOnly: b.DiskOnly, Key: in.IdempotencyKey, Changes: sandbox.Changes{
			Name: b.Name, Env: b.Env, Metadata: b.Metadata, TTL: spec.TTL, IdleTimeout: spec.IdleTimeout, Persist: b.Persist, Ephemeral: b.Ephemeral,
		},
	})
	if err != nil {
		return nil, err
	}
	out := api.Forked{Items: []api.Sandbox{}}
	for _, i := range infos {
		out.Items = append(out.Items, sandboxView(i))
	}
	return &forkedOut{out}, nil
}

type listSnapshotsOut struct{ Body api.SnapshotList }

func (s *Server) listSnapshots(ctx context.Context, _ *struct{}) (*listSnapshotsOut, error) {
	out := api.SnapshotList{Items: []api.Snapshot{}}
	for _, snap := range s.sandboxes.ListSnapshots(ctx, auth.From(ctx).Tenant) {
		out.Items = append(out.Items, snapshotView(snap))
	}
	return &listSnapshotsOut{out}, nil
}

func (s *Server) getSnapshot(ctx context.Context, in *SnapshotPath) (*snapshotOut, error) {
	id, err := sandbox.ParseSnapshotID(in.ID)
	if err != nil {
		return nil, err
	}
	snap, err := s.sandboxes.GetSnapshot(ctx, auth.From(ctx).Tenant, id)
	if err != nil {
		return nil, err
	}
	return &snapshotOut{snapshotView(snap)}, nil
}

func (s *Server) deleteSnapshot(ctx context.Context, in *SnapshotPath) (*struct{}, error) {
	id, err := sandbox.ParseSnapshotID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.sandboxes.DeleteSnapshot(ctx, auth.From(ctx).Tenant, id)
}

// snapshotView shows a snapshot to callers.
func snapshotView(s sandbox.Snapshot) api.Snapshot {
	return api.Snapshot{
		ID: string(s.ID), Name: s.Name, Sandbox: string(s.Sandbox), Memory: s.Memory, Provider: s.Provider, Isolation: string(s.Isolation),
		Template: s.Spec.Template, CPUs: s.Spec.CPUs, MemoryMB: s.Spec.MemoryMB, DiskMB: s.Spec.DiskMB,
		Bytes: s.Bytes, CreatedAt: s.CreatedAt.UTC(),
	}
}
