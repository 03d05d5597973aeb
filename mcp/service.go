package mcp

import (
	"cmp"
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
)

var serviceTools = []*tool{
	does(tool{
		name: "service_start", title: "Start a service", scope: write, hints: repeats | open,
		about: "Declare a process that the sandbox keeps running, also when it is booted again, and start it: a server to look at, a watcher. Without a command it starts one that is declared.",
	}, startService),
	does(tool{
		name: "service_stop", title: "Stop a service", scope: write, hints: destroys | repeats,
		about: "Stop a service. It stays declared, with its log.",
	}, stopService),
	does(tool{
		name: "service_list", title: "List services", scope: read, hints: reads,
		about: "List the services of a sandbox and how they are.",
	}, listServices),
	does(tool{
		name: "service_logs", title: "Read a service's log", scope: read, hints: reads,
		about: "Read the log of a service: its end, or from an offset on.",
	}, serviceLogs),
	does(tool{
		name: "preview_link", title: "Link to a port", scope: write, hints: open,
		about: "Make a link that shows a port of the sandbox in one person's browser. It works once.",
	}, previewLink),
}

type startServiceIn struct {
	onSandbox
	Name      string            `json:"name" about:"a-z 0-9 -, from a letter to a letter or digit"`
	Command   string            `json:"command,omitempty" about:"for bash -c; it must stay in the foreground"`
	Workdir   string            `json:"workdir,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Port      int               `json:"port,omitempty" minimum:"1" maximum:"65535" about:"that it serves"`
	ReadyHTTP int               `json:"ready_http,omitempty" minimum:"1" maximum:"65535" about:"it is ready when this port answers over HTTP"`
	Wait      int               `json:"wait_seconds,omitempty" minimum:"0" maximum:"300" about:"for it to be ready; default 30"`
}

func startService(ctx context.Context, s *Server, in *startServiceIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(cmp.Or(in.Wait, 30)) * time.Second
	if in.Command == "" {
		return serviceResult(sb.Services().Start(ctx, in.Name, wait))
	}
	d := api.ServiceSpec{Name: in.Name, Command: in.Command, Workdir: in.Workdir, Env: in.Env, ReadyHTTP: in.ReadyHTTP}
	if port := cmp.Or(in.Port, in.ReadyHTTP); port > 0 {
		d.Ports = []int{port}
	}
	return serviceResult(sb.Services().Declare(ctx, d, wait))
}

type serviceView struct {
	Name     string    `json:"name"`
	Command  string    `json:"command,omitempty"`
	Argv     []string  `json:"argv,omitempty"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Ports    []int     `json:"ports,omitempty"`
	Restarts uint64    `json:"restarts"`
	Since    time.Time `json:"since"`
	LastExit *api.Exit `json:"last_exit,omitempty"`
	LogSize  int64     `json:"log_size"`
}

func viewOfService(v api.Service) serviceView {
	return serviceView{v.Name, v.Command, v.Argv, v.State, v.Reason, v.Ports, v.Restarts, v.Since, v.LastExit, v.LogSize}
}

func serviceResult(v api.Service, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return object(viewOfService(v))
}

type serviceIn struct {
	onSandbox
	Name string `json:"name"`
}

func stopService(ctx context.Context, s *Server, in *serviceIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	return serviceResult(sb.Services().Stop(ctx, in.Name, time.Minute))
}

func listServices(ctx context.Context, s *Server, in *onSandbox) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	all, err := sb.Services().List(ctx)
	if err != nil {
		return nil, err
	}
	views := []serviceView{}
	for _, v := range all {
		views = append(views, viewOfService(v))
	}
	return object(views)
}

type logsIn struct {
	onSandbox
	Name  string `json:"name"`
	From  *int64 `json:"from,omitempty" minimum:"0" about:"where to begin; left out: so that the end is shown"`
	Limit int    `json:"limit,omitempty" minimum:"1" maximum:"131072" about:"bytes; default 16384"`
}

func serviceLogs(ctx context.Context, s *Server, in *logsIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(in.Limit, 16<<10)
	from := -int64(limit) - 1 // the last bytes
	if in.From != nil {
		from = *in.From
	}
	var data []byte
	begin, next := int64(-1), int64(0)
	for ev, err := range sb.Services().Logs(ctx, in.Name, from, false) {
		if err != nil {
			return nil, err
		}
		if len(ev.Data) == 0 {
			continue
		}
		if begin < 0 {
			begin = ev.Offset
		}
		data = append(data, ev.Data...)
		next = ev.Offset + int64(len(ev.Data))
		if len(data) > limit {
			next -= int64(len(data) - limit)
			data = data[:limit]
			break
		}
	}
	if len(data) == 0 {
		return textResult("[the log has nothing here]"), nil
	}
	return textResult(lines(printable(data), fmt.Sprintf("[bytes %d to %d; from %d reads on]", begin, next, next))), nil
}

type previewIn struct {
	onSandbox
	Port int    `json:"port" minimum:"1" maximum:"65535"`
	Path string `json:"path,omitempty" about:"where to arrive; default /"`
}

func previewLink(ctx context.Context, s *Server, in *previewIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	p, err := sb.Previews().Open(ctx, api.CreatePreview{Port: in.Port, Path: in.Path})
	if err != nil {
		return nil, err
	}
	return object(struct {
		URL       string    `json:"url"`
		Address   string    `json:"address"`
		ExpiresAt time.Time `json:"expires_at"`
		Listens   *bool     `json:"listens,omitempty"`
	}{p.URL, p.Address, p.ExpiresAt, p.Listens})
}
