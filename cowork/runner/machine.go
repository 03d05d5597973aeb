package runner

import (
	"context"
	"errors"
	"maps"
	"path"
	"sync"

	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// removals are the machines that are being removed, which still count for a quota.
type removals struct {
	mu   sync.Mutex
	last chan struct{} // closed when all that began are over; nil = none began
}

// begin removes in the background.
func (r *removals) begin(wg *sync.WaitGroup, remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, over := r.last, make(chan struct{})
	r.last = over
	wg.Go(func() {
		defer close(over)
		remove()
		if before != nil {
			<-before
		}
	})
}

// wait returns when those that began before are over, or ctx is.
func (r *removals) wait(ctx context.Context) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-ctx.Done():
	}
}

// make makes a machine. One that finds no place is made when those are gone that earlier
// nodes had.
func (d *driver) make(ctx context.Context, key string, spec map[string]any) (string, error) {
	id, err := d.r.c.Machines.Make(ctx, d.run.Tenant, key, spec)
	if !errs.Is(err, errs.Limit) {
		return id, err
	}
	d.removals.wait(ctx)
	return d.r.c.Machines.Make(ctx, d.run.Tenant, key, spec)
}

// artifactBytesMax bounds a file that a node leaves.
const artifactBytesMax = 32 << 20

// sharedMachine is the one of the workflow, made when the first node wants it.
type sharedMachine struct {
	mu sync.Mutex
	id string
}

// machine makes what the attempt works in usable, with the files that it is given; own: it
// was made for the attempt, or for its node.
func (a *attempt) machine(ctx context.Context) (id string, own bool, err error) {
	switch a.v.Sandbox {
	case cowork.SandboxOwn:
		if id, err = a.make(ctx, a.ownSpec(ctx)); err == nil {
			err = a.d.put(ctx, id, a.d.started.Files, tool.Absent)
		}
		own = true
	case cowork.SandboxFork:
		id, err = a.fork(ctx)
		own = true
	default:
		id, err = a.d.sharedID(ctx)
	}
	if err == nil && len(a.of.Files) > 0 {
		err = a.d.put(ctx, id, a.of.Files, "")
	}
	return id, own && id != "", err
}

// ownSpec is what the node says of its machine, else what its agent does.
func (a *attempt) ownSpec(ctx context.Context) map[string]any {
	if a.v.Machine != nil || a.v.Agent == "" {
		return a.v.Machine
	}
	d, err := a.d.r.c.Runs.Agent(ctx, a.v.Agent)
	if err != nil {
		return nil // its start says so
	}
	return d.Sandbox
}

// make makes a machine of the attempt; of a node that goes on with its conversation, the
// same for all of them.
func (a *attempt) make(ctx context.Context, spec map[string]any) (string, error) {
	key := a.key()
	if a.v.Continues {
		key = "workflow " + string(a.d.run.ID.Thread()) + " " + a.v.Name
	}
	return a.d.make(ctx, key, spec)
}

func (a *attempt) fork(ctx context.Context) (string, error) {
	from, err := a.d.sharedID(ctx)
	if err != nil {
		return "", err
	}
	spec := maps.Clone(a.d.workflow.Machine)
	delete(spec, "name") // the first one has it
	id, err := a.make(ctx, spec)
	if err != nil || a.of.Thread != "" {
		return id, err
	}
	return id, a.d.r.c.Machines.CopyNow(ctx, a.d.run.Tenant, from, id)
}

// sharedID makes the machine that nodes share if there is none.
func (d *driver) sharedID(ctx context.Context) (string, error) {
	d.shared.mu.Lock()
	defer d.shared.mu.Unlock()
	if d.shared.id != "" {
		return d.shared.id, nil
	}
	id, err := d.make(ctx, "workflow "+string(d.run.ID.Thread())+" shared", d.workflow.Machine)
	if err != nil {
		return "", err
	}
	if err := d.put(ctx, id, d.started.Files, tool.Absent); err != nil {
		return "", err
	}
	select {
	case d.done <- &outcome{machine: id}: // the driver writes it down
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d.shared.id = id
	return id, nil
}

// put writes files into a machine, where nodes find what they are given. With tool.Absent
// those that are there stay: a node may have changed them before the server died.
func (d *driver) put(ctx context.Context, machine string, list []thread.Artifact, ifHash string) error {
	if len(list) == 0 {
		return nil
	}
	files, dir, release, err := d.r.c.Machines.Files(ctx, d.run.Tenant, machine)
	if err != nil {
		return err
	}
	defer release()
	for _, f := range list {
		content, err := d.blobs.Get(ctx, f.Blob)
		if err != nil {
			return err
		}
		_, err = files.Write(ctx, path.Join(dir, f.Path), content, ifHash)
		if there, is := errors.AsType[*tool.FileError](err); is && ifHash == tool.Absent && there.Code == tool.CodeConflict {
			continue
		}
		if err != nil {
			return errs.Wrap(errs.Of(err), err, "%s could not be put into the machine: %s", f.Path, errs.Public(err))
		}
	}
	return nil
}

// collect takes the files that the node is to leave.
func (a *attempt) collect(ctx context.Context, machine string, o *outcome) error {
	if machine == "" || a.d.r.c.Machines == nil {
		return errs.New(errs.Invalid, "it was to leave files, and had no machine")
	}
	files, dir, release, err := a.d.r.c.Machines.Files(ctx, a.d.run.Tenant, machine)
	if err != nil {
		return err
	}
	defer release()
	for _, name := range a.v.Artifacts {
		content, _, err := files.Read(ctx, path.Join(dir, name), artifactBytesMax)
		if err != nil {
			return errs.New(errs.NotFound, "it was to leave %s: %v", name, err)
		}
		hash, err := a.d.blobs.Put(ctx, content)
		if err != nil {
			return err
		}
		o.ended.Artifacts = append(o.ended.Artifacts, thread.Artifact{Path: name, Blob: hash, Bytes: len(content)})
		o.files = append(o.files, content)
	}
	return nil
}

// merge puts what a fork left into the machine that nodes share, but what another wrote
// differently meanwhile.
func (d *driver) merge(ctx context.Context, o *outcome) error {
	if len(o.files) == 0 {
		return nil
	}
	files, dir, release, err := d.r.c.Machines.Files(ctx, d.run.Tenant, d.s.Machine)
	if err != nil {
		return err
	}
	defer release()
	for i, f := range o.ended.Artifacts {
		if conflicts(o.ended.Conflicts, f.Path) {
			continue
		}
		if _, err := files.Write(ctx, path.Join(dir, f.Path), o.files[i], ""); err != nil {
			return errs.Wrap(errs.Of(err), err, "%s could not be put into the workflow's machine: %s", f.Path, errs.Public(err))
		}
	}
	return nil
}

func conflicts(list []thread.ArtifactConflict, name string) bool {
	for _, c := range list {
		if c.Path == name {
			return true
		}
	}
	return false
}
