package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/backend/guest"
	past "github.com/skete-dev/skete/tool/history"
	"github.com/skete-dev/skete/workspace"
)

const (
	// runIdle is how long a run's sandbox stays up when nothing happens in it.
	// It is only stopped then: its files stay, and the next step starts it.
	runIdle = 15 * time.Minute
)

// machines gives runs their sandboxes. It is a supervisor.Machines.
type machines struct {
	m         *manager.Manager
	histories *history.Service
	agent     *agentProgram
	tools     *toolSandboxes
}

// Check implements supervisor.Machines.
func (x machines) Check(spec map[string]any) error {
	s, err := specOf(spec)
	if err != nil {
		return err
	}
	return x.m.Check(s)
}

// Create makes the sandbox of a thread: the same key is the same sandbox. It is
// named after the run, unless the spec names it, or something else has the name.
func (x machines) Create(ctx context.Context, tenant, key string, run thread.RunID, agent string, spec map[string]any) (string, error) {
	s, err := specOf(spec)
	if err != nil {
		return "", err
	}
	named := s
	if s.Name == "" {
		named.Name = sandboxName(run)
	}
	info, err := x.m.Create(ctx, tenant, sandbox.CreateRequest{Spec: named, Key: key, Run: string(run), Agent: agent})
	if errs.Is(err, errs.Exists) && s.Name == "" {
		info, err = x.m.Create(ctx, tenant, sandbox.CreateRequest{Spec: s, Key: key, Run: string(run), Agent: agent})
	}
	return string(info.ID), err
}

// sandboxName is the name of a run's own sandbox: run-, and the first characters
// of the run's id.
func sandboxName(run thread.RunID) string {
	const length = 8
	id := strings.TrimPrefix(string(run), "run_")
	return "run-" + id[:min(length, len(id))]
}

// Enter implements supervisor.Machines.
func (x machines) Enter(ctx context.Context, tenant, id string, run thread.RunID, agent string, own bool) error {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return err
	}
	return x.m.Enter(ctx, tenant, sid, string(run), agent, own)
}

// Leave implements supervisor.Machines.
func (x machines) Leave(ctx context.Context, tenant string, run thread.RunID, then definition.AfterRun) error {
	what := sandbox.ThenNothing
	switch then.Sandbox {
	case definition.AfterStop:
		what = sandbox.ThenStop
	case definition.AfterRemove:
		what = sandbox.ThenRemove
	}
	return errors.Join(x.m.Leave(ctx, tenant, string(run), what, then.Wait), x.tools.leave(ctx, tenant, string(run)))
}

// Entered implements supervisor.Machines.
func (x machines) Entered(visit func(tenant string, run thread.RunID)) {
	for _, r := range x.m.Runs() {
		visit(r.Tenant, thread.RunID(r.Run))
	}
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
	s, err := server.SpecOf(c)
	if err != nil {
		return sandbox.Spec{}, err
	}
	s.Persist = true
	if s.IdleTimeout == 0 {
		s.IdleTimeout = runIdle
	}
	return s, nil
}

// Open makes the machine usable, starting it if it is stopped.
func (x machines) Open(ctx context.Context, tenant, id string) (agent.Machine, func(), error) {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return agent.Machine{}, nil, err
	}
	info, err := x.running(ctx, tenant, sid)
	if err != nil {
		return agent.Machine{}, nil, err
	}
	c, release, err := x.m.Guest(ctx, tenant, sid)
	if err != nil {
		return agent.Machine{}, nil, err
	}
	hello, err := c.Hello(ctx)
	if err != nil {
		release()
		return agent.Machine{}, nil, err
	}
	kept, done, err := x.histories.Open(ctx, tenant, sid)
	if err != nil {
		release()
		return agent.Machine{}, nil, err
	}
	mount := func(ctx context.Context, dir string, tar []byte) error { return mountSkill(ctx, c, dir, tar) }
	if info.Isolation == sandbox.None { // its root is the host's
		mount = nil
	}
	return agent.Machine{
		Mount: mount,
		Files: guest.NewFiles(c), Commands: guest.NewCommands(c), Boot: hello.BootId, Dir: string(hello.Workdir), Note: note(info, string(hello.Workdir)),
		Revise: func(ctx context.Context, at agent.Mark) error { return x.revise(ctx, tenant, sid, at) },
		Call:   func(ctx context.Context) func() { return x.histories.Call(ctx, tenant, sid) },
		Past:   past.Of(kept), Services: guest.NewServices(c),
		Inside: func(ctx context.Context) (net.Conn, error) { return x.agent.begin(ctx, c) },
	}, func() { done(); release() }, nil
}

// revise makes a revision of a sandbox's files.
func (x machines) revise(ctx context.Context, tenant string, id sandbox.ID, at agent.Mark) error {
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

// Restore takes the files of a sandbox back to before the first later call.
func (x machines) Restore(ctx context.Context, tenant, id string, when func(agent.Mark) supervisor.When, by string) ([]runs.Change, error) {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return nil, err
	}
	h, done, err := x.histories.Open(ctx, tenant, sid)
	if err != nil {
		return nil, err
	}
	defer done()
	all, err := h.Revisions(ctx)
	if err != nil {
		return nil, err
	}
	n, err := before(all, when)
	if err != nil || n == 0 {
		return nil, err
	}
	plan, err := h.PlanRestore(ctx, n, "")
	if err != nil {
		return nil, err
	}
	rev, _, err := h.Apply(ctx, plan.ID, workspace.Label{Actor: by, Text: "rewind", Jump: true})
	if err != nil {
		return nil, err
	}
	return changes(ctx, h, rev)
}

// changes are the paths that differ between a revision and the one before.
func changes(ctx context.Context, h workspace.History, rev workspace.Revision) ([]runs.Change, error) {
	d, err := h.Diff(ctx, rev.N-1, rev.N, workspace.DiffOptions{FilesMax: changesMax})
	if err != nil {
		return nil, err
	}
	var list []runs.Change
	for _, f := range d.Files {
		c := runs.Change{Path: f.Path, Action: "change"}
		switch {
		case f.Before.Type == 0:
			c.Action = "add"
		case f.After.Type == 0:
			c.Action = "remove"
		case f.Before.SameContent(f.After):
			c.Action = "attributes"
		}
		list = append(list, c)
	}
	return list, nil
}

// before returns the revision before the first later call; 0: there is no such
// call. NotFound: it is not kept any more. Of what is missing from the list, calls
// may have been that are later, so that a revision which is there has what they
// did; unless one behind it is from before all of them.
func before(all []workspace.Revision, when func(agent.Mark) supervisor.When) (uint64, error) {
	last, missing := uint64(0), false
	for _, r := range all {
		missing = missing || r.N != last+1
		switch when(mark(r)) {
		case supervisor.Later:
			if missing || last == 0 {
				return 0, errPruned()
			}
			return last, nil
		case supervisor.Earlier, supervisor.Between:
			missing = false
		}
		last = r.N
	}
	if missing {
		return 0, errPruned()
	}
	return 0, nil
}

// moment returns the revision that has the files as of an event: the one before
// the first later call, or else the last earlier one, if what followed it is
// there too; 0: there is neither. NotFound: it is not kept any more, or one that
// is not may have been the one.
func moment(all []workspace.Revision, when func(agent.Mark) supervisor.When) (uint64, error) {
	if n, err := before(all, when); n > 0 || err != nil {
		return n, err
	}
	var n, next uint64 // next follows n in the list
	for _, r := range all {
		if when(mark(r)) == supervisor.Earlier {
			n, next = r.N, 0
		} else if next == 0 {
			next = r.N
		}
	}
	if next > n+1 {
		return 0, errPruned()
	}
	return n, nil
}

func errPruned() error {
	return errs.New(errs.NotFound, "the revisions of then are not kept any more")
}

// mark is what a revision's label says.
func mark(r workspace.Revision) agent.Mark {
	return agent.Mark{Thread: thread.ID(r.Thread), Run: thread.RunID(r.Run), Step: r.Step, Call: r.Call, Actor: r.Actor, Time: r.Time}
}

// running starts a sandbox that is not up. NotFound: it is gone for ever.
func (x machines) running(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	// A run waits as long as it takes: a machine that is only not attached yet is
	// not lost.
	if err := x.m.Attached(ctx, tenant, id); err != nil {
		return sandbox.Info{}, err
	}
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
	text += reach(info.Spec)
	cpus := "1 CPU"
	if info.Spec.CPUs != 1 {
		cpus = fmt.Sprintf("%g CPUs", info.Spec.CPUs)
	}
	return fmt.Sprintf("%s It has %s and %d MB of memory.", text, cpus, info.Spec.MemoryMB)
}

// hostsTold bounds how many hosts a model is told of.
const hostsTold = 10

// reach says what can be reached from a sandbox.
func reach(s sandbox.Spec) string {
	p := s.Policy()
	switch {
	case !s.HasNetwork():
		return " There is no network."
	case p.Profile == egress.Open:
		return " The public network can be reached, private addresses cannot."
	case p.Profile == egress.Default:
		return " Packages can be installed from their public registries and public git repositories can be cloned; all else on the network is refused, and a person can allow more."
	case len(p.Allow) == 0:
		return " Nothing on the network can be reached; a person can allow hosts."
	}
	var hosts []string
	for _, r := range p.Allow[:min(len(p.Allow), hostsTold)] {
		hosts = append(hosts, r.String())
	}
	if n := len(p.Allow) - hostsTold; n > 0 {
		hosts = append(hosts, fmt.Sprintf("and %d more", n))
	}
	return " Of the network only this can be reached: " + strings.Join(hosts, ", ") + "; a person can allow more."
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

// Copy implements supervisor.Machines. The files of a revision go into the new
// sandbox as an archive; the machine that they come from need not run.
func (x machines) Copy(ctx context.Context, tenant, from, to string, when func(agent.Mark) supervisor.When) error {
	sid, err := sandbox.ParseID(from)
	if err != nil {
		return err
	}
	h, done, err := x.histories.Open(ctx, tenant, sid)
	if err != nil {
		return err
	}
	defer done()
	all, err := h.Revisions(ctx)
	if err != nil {
		return err
	}
	n, err := moment(all, when)
	if err != nil {
		return err
	}
	if n == 0 {
		return x.CopyNow(ctx, tenant, from, to)
	}
	write, err := workspace.Archive(ctx, h, n, "")
	if err != nil {
		return err
	}
	into, err := sandbox.ParseID(to)
	if err != nil {
		return err
	}
	if _, err := x.running(ctx, tenant, into); err != nil {
		return err
	}
	c, release, err := x.m.Guest(ctx, tenant, into)
	if err != nil {
		return err
	}
	defer release()
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(write(w)) }()
	up, err := upload(ctx, c)
	if err != nil {
		return err
	}
	buf := make([]byte, archiveChunk)
	for {
		k, err := io.ReadFull(r, buf)
		if k > 0 && up.Send(&wire.UploadRequest{Data: bytes.Clone(buf[:k])}) != nil {
			break // the answer says why
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	_, err = up.CloseAndReceive()
	return wire.Err(err)
}

// Bounds of what is copied and listed.
const (
	changesMax   = 1000
	archiveChunk = 256 << 10
)

// mountSkill replaces a directory of the machine that is root's.
func mountSkill(ctx context.Context, c *wire.Client, dir string, tar []byte) error {
	if err := unmountSkill(ctx, c, dir); err != nil {
		return err
	}
	err := fillSkill(ctx, c, dir, tar)
	if err != nil { // half of a skill would be taken for one
		_ = unmountSkill(context.WithoutCancel(ctx), c, dir)
	}
	return err
}

// skillOwner is the user of the machine that may change skills.
const skillOwner = "root"

func unmountSkill(ctx context.Context, c *wire.Client, dir string) error {
	_, err := c.File.Remove(ctx, wireRequest(&wire.RemoveRequest{Path: []byte(dir), User: skillOwner, Recursive: true, MissingOk: true}))
	return wire.Err(err)
}

func fillSkill(ctx context.Context, c *wire.Client, dir string, tar []byte) error {
	up := c.File.Upload(ctx)
	err := up.Send(&wire.UploadRequest{Header: &wire.UploadRequest_Header{Path: []byte(dir), User: skillOwner}})
	for at := 0; at < len(tar) && err == nil; at += archiveChunk {
		err = up.Send(&wire.UploadRequest{Data: tar[at:min(at+archiveChunk, len(tar))]})
	}
	if err != nil && !errors.Is(err, io.EOF) { // with EOF, the answer says why
		return wire.Err(err)
	}
	if _, err := up.CloseAndReceive(); err != nil {
		return wire.Err(err)
	}
	_, err = c.File.Chmod(ctx, wireRequest(&wire.ChmodRequest{Path: []byte(dir), User: skillOwner, Mode: 0o555}))
	return wire.Err(err)
}

// upload begins to put an archive into a workspace.
func upload(ctx context.Context, to *wire.Client) (*connect.ClientStreamForClient[wire.UploadRequest, wire.UploadResponse], error) {
	up := to.File.Upload(ctx)
	if err := up.Send(&wire.UploadRequest{Header: &wire.UploadRequest_Header{Path: []byte(sandbox.WorkspaceDir)}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, wire.Err(err)
	}
	return up, nil
}

// CopyNow gives a sandbox the workspace of another one, as a stream.
func (x machines) CopyNow(ctx context.Context, tenant, from, to string) error {
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
	up, err := upload(ctx, to)
	if err != nil {
		return err
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
