package mcp

import (
	"context"
	"iter"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// onSandbox is in the arguments of all tools that are about one.
type onSandbox struct {
	Sandbox string `json:"sandbox,omitempty" about:"its id, the beginning of it, or its name; left out: the only one that runs"`
}

// listMax is how many things a list shows at once, if nothing else is asked for.
const listMax = 50

var sandboxTools = []*tool{
	does(tool{
		name: "sandbox_create", title: "Create a sandbox", scope: write, hints: open,
		about: "Make a machine of its own, isolated from the host, and wait until it runs. Commands work in /workspace.",
	}, createSandbox),
	does(tool{
		name: "sandbox_list", title: "List sandboxes", scope: read, hints: reads,
		about: "List sandboxes, newest first.",
	}, listSandboxes),
	does(tool{
		name: "sandbox_get", title: "Show a sandbox", scope: read, hints: reads,
		about: "Everything that is known of a sandbox: state, isolation, limits, when it ends, open ports.",
	}, getSandbox),
	does(tool{
		name: "sandbox_start", title: "Start a sandbox", scope: write, hints: repeats,
		about: "Boot a stopped or failed sandbox again with its files, or let a paused one go on.",
	}, startSandbox),
	does(tool{
		name: "sandbox_stop", title: "Stop a sandbox", scope: write, hints: destroys | repeats,
		about: "End the machine with all that runs in it, and keep the files.",
	}, func(ctx context.Context, s *Server, in *onSandbox) (*sdk.CallToolResult, error) {
		sb, err := s.sandbox(ctx, in.Sandbox)
		if err != nil {
			return nil, err
		}
		return sandboxResult(sb.Stop(ctx))
	}),
	does(tool{
		name: "sandbox_remove", title: "Remove a sandbox", scope: write, hints: destroys | repeats,
		about: "End a sandbox and delete its files for ever. Only its history is kept, for a time.",
	}, removeSandbox),
	does(tool{
		name: "sandbox_fork", title: "Fork a sandbox", scope: write, hints: 0,
		about: "Make a copy that goes on from where a sandbox is, which goes on too: to try something twice.",
	}, forkSandbox),
	does(tool{
		name: "sandbox_snapshot", title: "Save a sandbox", scope: write, hints: 0,
		about: "Save a sandbox as it is. sandbox_create with from makes sandboxes of it later.",
	}, snapshotSandbox),
}

type createIn struct {
	Name       string            `json:"name,omitempty" about:"can stand for the id"`
	Template   string            `json:"template,omitempty" about:"root file system: host (default), debian, python, node, go, ruby, or one of the operator's"`
	Language   string            `json:"language,omitempty" about:"whose tools have to be there" enum:"python,node,go,ruby"`
	CPUs       float64           `json:"cpus,omitempty" minimum:"0"`
	MemoryMB   int               `json:"memory_mb,omitempty" minimum:"0" about:"default 512"`
	DiskMB     int               `json:"disk_mb,omitempty" minimum:"0" about:"default 2048"`
	Network    string            `json:"network,omitempty" enum:"none,default,open" about:"what leaves it: nothing, reading where packages and public repositories are (default), or everything to public addresses"`
	Env        map[string]string `json:"env,omitempty" about:"variables of all its commands"`
	TTLMinutes int               `json:"ttl_minutes,omitempty" minimum:"0" about:"it ends after that"`
	Persist    bool              `json:"persist,omitempty" about:"then it is stopped, and keeps its files, in place of being removed"`
	From       string            `json:"from,omitempty" about:"id of a snapshot to go on from; then only name, env, ttl_minutes and persist can be given"`
}

func createSandbox(ctx context.Context, s *Server, in *createIn) (*sdk.CallToolResult, error) {
	return sandboxResult(s.Client.CreateSandbox(ctx, api.CreateSandbox{
		Name: in.Name, Template: in.Template, Language: in.Language, CPUs: in.CPUs, MemoryMB: in.MemoryMB, DiskMB: in.DiskMB,
		Network: in.Network, Env: in.Env, TTLMS: (time.Duration(in.TTLMinutes) * time.Minute).Milliseconds(), Persist: in.Persist, From: in.From,
	}))
}

// sandboxView is a sandbox in a list.
type sandboxView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Isolation string     `json:"isolation"`
	Template  string     `json:"template"`
	Network   string     `json:"network"`
	Workdir   string     `json:"workdir"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

func viewOf(sb api.Sandbox) sandboxView {
	return sandboxView{
		ID: sb.ID, Name: sb.Name, State: sb.State, Reason: sb.Reason, Isolation: sb.Isolation, Template: sb.Template,
		Network: sb.Network, Workdir: sb.Workdir, ExpiresAt: sb.ExpiresAt, Notes: sb.Notes,
	}
}

func sandboxResult(sb api.Sandbox, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return object(viewOf(sb))
}

// page is a part of a list.
type page[T any] struct {
	Items []T `json:"items"`
	Next  int `json:"next_offset,omitempty"`
}

// pageOf takes up to limit of a sequence, behind offset of them.
func pageOf[T, V any](seq iter.Seq2[T, error], offset, limit int, view func(T) V) (p page[V], err error) {
	p.Items = []V{}
	n := 0
	for it, err := range seq {
		if err != nil {
			return p, err
		}
		if n++; n <= offset {
			continue
		}
		if len(p.Items) == limit {
			p.Next = offset + limit
			break
		}
		p.Items = append(p.Items, view(it))
	}
	return p, nil
}

type listIn struct {
	State  string `json:"state,omitempty" enum:"creating,running,paused,stopped,failed,destroyed"`
	Offset int    `json:"offset,omitempty" minimum:"0" about:"next_offset of the call before"`
}

func listSandboxes(ctx context.Context, s *Server, in *listIn) (*sdk.CallToolResult, error) {
	p, err := pageOf(s.Client.Sandboxes(ctx, client.SandboxFilter{State: in.State}), in.Offset, listMax, viewOf)
	if err != nil {
		return nil, err
	}
	return object(p)
}

func getSandbox(ctx context.Context, s *Server, in *onSandbox) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	info, err := sb.Get(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		api.Sandbox
		Ports []api.Port `json:"ports,omitempty"`
	}{Sandbox: info}
	if info.State == "running" {
		out.Ports, _ = sb.Ports(ctx) // the state may have changed since
	}
	return object(out)
}

func startSandbox(ctx context.Context, s *Server, in *onSandbox) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	info, err := sb.Get(ctx)
	if err != nil {
		return nil, err
	}
	if info.State == "paused" {
		return sandboxResult(sb.Resume(ctx))
	}
	return sandboxResult(sb.Start(ctx))
}

// namedIn names a sandbox for what must not be done to another by chance.
type namedIn struct {
	Sandbox string `json:"sandbox" about:"its id, the beginning of it, or its name"`
}

func removeSandbox(ctx context.Context, s *Server, in *namedIn) (*sdk.CallToolResult, error) {
	if err := s.Client.Sandbox(in.Sandbox).Destroy(ctx); err != nil {
		return nil, err
	}
	return textResult("removed " + in.Sandbox), nil
}

type forkIn struct {
	onSandbox
	Count    int    `json:"count,omitempty" minimum:"1" maximum:"20" about:"default 1"`
	Name     string `json:"name,omitempty" about:"of the copy; of several NAME-1, NAME-2, …"`
	DiskOnly bool   `json:"disk_only,omitempty" about:"copy the files alone and boot; else what runs is copied too, where the provider can"`
}

func forkSandbox(ctx context.Context, s *Server, in *forkIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	made, err := sb.Fork(ctx, api.ForkSandbox{Count: in.Count, Name: in.Name, DiskOnly: in.DiskOnly})
	if err != nil {
		return nil, err
	}
	var views []sandboxView
	for _, one := range made {
		views = append(views, viewOf(one))
	}
	return object(views)
}

type snapshotIn struct {
	onSandbox
	Name     string `json:"name,omitempty" about:"for people"`
	DiskOnly bool   `json:"disk_only,omitempty" about:"its files alone, without its memory"`
}

func snapshotSandbox(ctx context.Context, s *Server, in *snapshotIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	made, err := sb.Snapshot(ctx, api.CreateSnapshot{Name: in.Name, DiskOnly: in.DiskOnly})
	if err != nil {
		return nil, err
	}
	return object(made)
}
