package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/skete-dev/skete/agent/keeper"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/server/services"
	"github.com/skete-dev/skete/thread"
	past "github.com/skete-dev/skete/tool/history"
	"github.com/skete-dev/skete/tool/place/guest"
	"github.com/skete-dev/skete/workspace"
)

const (
	// runIdle is how long a run's sandbox stays up when nothing happens in it.
	// It is only stopped then: its files stay, and the next step starts it.
	runIdle = 15 * time.Minute
)

// machines gives runs their sandboxes. It is a keeper.Machines.
type machines struct {
	m         *manager.Manager
	histories *history.Service
}

// Create makes the sandbox of a thread: the same key is the same sandbox.
func (x machines) Create(ctx context.Context, tenant, key string, spec map[string]any) (string, error) {
	s, err := specOf(spec)
	if err != nil {
		return "", err
	}
	info, err := x.m.Create(ctx, tenant, sandbox.CreateRequest{Spec: s, Key: key})
	return string(info.ID), err
}

// specOf reads what an agent's file, or a request, says of a sandbox: the keys
// of api.CreateSandbox.
func specOf(spec map[string]any) (sandbox.Spec, error) {
	var c api.CreateSandbox
	content, err := json.Marshal(spec)
	if err != nil {
		return sandbox.Spec{}, errs.Wrap(errs.Invalid, err, "the sandbox's spec cannot be read")
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return sandbox.Spec{}, errs.Wrap(errs.Invalid, err, "the sandbox's spec: %v", err)
	}
	declared, err := services.Specs(c.Services)
	if err != nil {
		return sandbox.Spec{}, err
	}
	s := sandbox.Spec{
		Name: c.Name, Template: c.Template, Language: c.Language, Provider: c.Provider, Require: sandbox.Isolation(c.Require),
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskMB, PidsMax: c.PidsMax, Env: c.Env, Workdir: c.Workdir, Root: c.Root,
		Network: c.Network, Persist: true, TTL: time.Duration(c.TTLMS) * time.Millisecond,
		IdleTimeout: time.Duration(c.IdleTimeoutMS) * time.Millisecond, Metadata: c.Metadata,
		Services: declared,
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = runIdle
	}
	return s, nil
}

// Open makes the machine usable, starting it if it is stopped.
func (x machines) Open(ctx context.Context, tenant, id string) (keeper.Machine, func(), error) {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return keeper.Machine{}, nil, err
	}
	info, err := x.running(ctx, tenant, sid)
	if err != nil {
		return keeper.Machine{}, nil, err
	}
	c, release, err := x.m.Guest(ctx, tenant, sid)
	if err != nil {
		return keeper.Machine{}, nil, err
	}
	hello, err := c.Hello(ctx)
	if err != nil {
		release()
		return keeper.Machine{}, nil, err
	}
	kept, done, err := x.histories.Open(ctx, tenant, sid)
	if err != nil {
		release()
		return keeper.Machine{}, nil, err
	}
	return keeper.Machine{
		Files: guest.NewFiles(c), Commands: guest.NewCommands(c), Boot: hello.BootId, Dir: string(hello.Workdir), Note: note(info, string(hello.Workdir)),
		Revise: func(ctx context.Context, at keeper.Mark) error { return x.revise(ctx, tenant, sid, at) },
		Past:   past.Of(kept), Services: guest.NewServices(c),
	}, func() { done(); release() }, nil
}

// revise makes a revision of a sandbox's files.
func (x machines) revise(ctx context.Context, tenant string, id sandbox.ID, at keeper.Mark) error {
	h, done, err := x.histories.Open(ctx, tenant, id)
	if err != nil {
		return err
	}
	defer done()
	_, _, err = h.Snapshot(ctx, workspace.Label{
		Thread: string(at.Thread), Run: string(at.Run), Step: at.Step, Call: at.Call, Actor: at.Actor, Text: at.Text,
	})
	return err
}

// Restore takes the files of a sandbox back to before the first chosen call.
func (x machines) Restore(ctx context.Context, tenant, id string, after func(keeper.Mark) bool, by string) (bool, error) {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return false, err
	}
	h, done, err := x.histories.Open(ctx, tenant, sid)
	if err != nil {
		return false, err
	}
	defer done()
	all, err := h.Revisions(ctx)
	if err != nil {
		return false, err
	}
	first := slices.IndexFunc(all, func(r workspace.Revision) bool {
		return r.Call != "" && after(keeper.Mark{Thread: thread.ID(r.Thread), Run: thread.RunID(r.Run), Step: r.Step, Call: r.Call})
	})
	if first < 0 {
		return false, nil
	}
	if first == 0 {
		return false, errs.New(errs.NotFound, "what was before the call is not kept any more")
	}
	plan, err := h.PlanRestore(ctx, all[first-1].N, "")
	if err != nil {
		return false, err
	}
	_, _, err = h.Apply(ctx, plan.ID, workspace.Label{Actor: by, Text: "rewind", Jump: true})
	return err == nil, err
}

// running starts a sandbox that is not up. NotFound: it is gone for ever.
func (x machines) running(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	info, err := x.m.Get(ctx, tenant, id)
	if err != nil {
		return info, err
	}
	switch info.State {
	case sandbox.Running:
		return info, nil
	case sandbox.Paused:
		return x.m.Resume(ctx, tenant, id)
	case sandbox.Destroyed:
		return info, errs.New(errs.NotFound, "the sandbox %s was destroyed", id)
	case sandbox.Creating: // another call is about it
		return info, errs.New(errs.Unavailable, "the sandbox %s is being started", id)
	}
	return x.m.Start(ctx, tenant, id)
}

// note is what the model is told about where it works.
func note(info sandbox.Info, dir string) string {
	text := fmt.Sprintf("You work in a sandbox of your own (isolation: %s). Commands run as an ordinary user in %s.", info.Isolation, dir)
	if info.Spec.Network == "" || info.Spec.Network == "none" {
		text += " There is no network."
	}
	return fmt.Sprintf("%s It has %g CPUs and %d MB of memory.", text, info.Spec.CPUs, info.Spec.MemoryMB)
}

// Destroy ends a sandbox. It may be repeated.
func (x machines) Destroy(ctx context.Context, tenant, id string) error {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return err
	}
	err = x.m.Destroy(ctx, tenant, sid)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// Copy gives a sandbox the workspace of another one, as a stream.
func (x machines) Copy(ctx context.Context, tenant, from, to string) error {
	var clients [2]*wire.Client
	for i, id := range []string{from, to} {
		sid, err := sandbox.ParseID(id)
		if err != nil {
			return err
		}
		if _, err := x.running(ctx, tenant, sid); err != nil {
			return err
		}
		c, release, err := x.m.Guest(ctx, tenant, sid)
		if err != nil {
			return err
		}
		defer release()
		clients[i] = c
	}
	return pour(ctx, clients[0], clients[1])
}

func pour(ctx context.Context, from, to *wire.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	down, err := from.File.Download(ctx, wireRequest(&wire.DownloadRequest{Path: []byte(sandbox.WorkspaceDir)}))
	if err != nil {
		return wire.Err(err)
	}
	defer down.Close()
	up := to.File.Upload(ctx)
	if err := up.Send(&wire.UploadRequest{Header: &wire.UploadRequest_Header{Path: []byte(sandbox.WorkspaceDir)}}); err != nil && !errors.Is(err, io.EOF) {
		return wire.Err(err)
	}
	for down.Receive() {
		if err := up.Send(&wire.UploadRequest{Data: down.Msg().Data}); err != nil {
			break // the answer says why
		}
	}
	if err := down.Err(); err != nil {
		return wire.Err(err)
	}
	_, err = up.CloseAndReceive()
	return wire.Err(err)
}
