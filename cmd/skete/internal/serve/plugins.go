package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/plugin"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server/key"
)

// This file gives plug-ins their sandboxes. They are the operator's: a tenant for whom one
// works can neither look into its sandbox nor use its secrets.

// Metadata of the sandboxes of plug-ins. No client can make a sandbox that has it, which would
// be taken for a plug-in's and be given its secrets.
const (
	pluginKey     = sandbox.OwnPrefix + "plugin"
	pluginHashKey = sandbox.OwnPrefix + "plugin.hash"
	pluginForKey  = sandbox.OwnPrefix + "plugin.for" // the tenant
)

const (
	pluginDir       = "/plugins/" // in the sandbox
	pluginProcess   = "plugin-"   // keys of their processes begin so; secrets are granted to pluginProcess+name
	pluginIdleLeft  = time.Minute // beyond which a sandbox ends without us
	pluginPageMax   = 1000
	pluginKillTime  = 10 * time.Second
	pluginSweepTime = 5 * time.Minute
)

// readPlugins reads the plug-ins of the server's folder. What is wrong is in the log, and left out.
func (r *running) readPlugins() {
	list, unusable, err := findPlugins(cmp.Or(r.c.Plugins.Dir, r.in("plugins")))
	if err != nil {
		r.c.Log.Error("plug-ins cannot be used", "error", err)
	}
	for _, u := range unusable {
		for _, problem := range u.Problems {
			r.c.Log.Error("a plug-in cannot be used", "plugin", u.Name, "problem", problem)
		}
	}
	r.pluginMachines = &pluginMachines{r: r, tenant: cmp.Or(r.c.Plugins.Tenant, key.DefaultTenant), plugins: list, unusable: unusable}
	r.plugins = plugin.NewHost(plugin.Config{Plugins: list, Launcher: r.pluginMachines, Version: r.c.Version, Log: r.c.Log})
	r.onClose(r.plugins.Close)
}

// findPlugins reads the plug-ins of a folder: those that can be used, and what is wrong with others.
func findPlugins(dir string) (list []*plugin.Plugin, unusable []api.Plugin, err error) {
	found, err := plugin.ReadDir(dir)
	for _, f := range found {
		if f.Err == nil {
			_, f.Err = pluginSpec(f.Plugin)
		}
		if f.Err == nil {
			list = append(list, f.Plugin)
			continue
		}
		unusable = append(unusable, api.Plugin{Name: f.Name, State: "unusable", Problems: strings.Split(errs.Public(f.Err), "\n")})
	}
	return list, unusable, err
}

// CountPlugins counts the plug-ins of a folder that can be used, and says what is wrong with others.
func CountPlugins(dir string) (n int, problems []string, err error) {
	list, unusable, err := findPlugins(dir)
	for _, u := range unusable {
		problems = append(problems, u.Problems...)
	}
	return len(list), problems, err
}

// openPlugins removes sandboxes of plug-ins that are not there any more, or are others now.
func (r *running) openPlugins(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginSweepTime)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.pluginMachines.sweep(ctx); err != nil && ctx.Err() == nil {
			r.c.Log.Warn("sandboxes of former plug-ins cannot be removed", "error", err)
		}
	}()
	r.onClose(func() error {
		cancel()
		<-done
		return r.plugins.Close()
	})
}

// pluginHooks are the plug-ins that hooks of a tenant's agents may name.
type pluginHooks struct {
	h      *plugin.Host
	tenant string
}

func (r *running) pluginsOf(tenant string) agent.Plugins { return pluginHooks{r.plugins, tenant} }

// Hooks implements agent.Plugins.
func (p pluginHooks) Hooks(name string) ([]agent.PluginHook, error) {
	declared, err := p.h.Hooks(name)
	list := make([]agent.PluginHook, len(declared))
	for i, d := range declared {
		list[i] = agent.PluginHook{Event: d.Event, Tools: d.Tools, OnFailure: agent.PluginFailure(d.OnFailure)}
	}
	return list, err
}

// Hook implements agent.Plugins.
func (p pluginHooks) Hook(ctx context.Context, name string, event json.RawMessage, timeout time.Duration) (json.RawMessage, error) {
	return p.h.Hook(ctx, p.tenant, name, event, timeout)
}

// pluginMachines are the sandboxes of plug-ins. It is a plugin.Launcher.
type pluginMachines struct {
	r       *running
	tenant  string // whose they are
	plugins []*plugin.Plugin
	// unusable are folders of others that are left out.
	unusable []api.Plugin
}

// Plugins implements server.Plugins.
func (x *pluginMachines) Plugins() []api.Plugin {
	list := slices.Clone(x.unusable)
	for _, p := range x.plugins {
		list = append(list, x.view(p))
	}
	for i := range list { // a list is never null
		v := &list[i]
		v.Problems, v.Models = append([]string{}, v.Problems...), append([]string{}, v.Models...)
		v.Hooks, v.Secrets, v.Processes = append([]api.PluginHook{}, v.Hooks...), append([]api.PluginSecret{}, v.Secrets...), append([]api.PluginProcess{}, v.Processes...)
	}
	slices.SortFunc(list, func(a, b api.Plugin) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// view is a plug-in with its processes.
func (x *pluginMachines) view(p *plugin.Plugin) api.Plugin {
	processes := x.r.plugins.Processes(p.Name)
	v := api.Plugin{Name: p.Name, Version: p.Version, Description: p.Description, Hash: p.Hash, State: string(plugin.Worst(processes))}
	for _, h := range p.Hooks {
		onFailure := cmp.Or(agent.PluginFailure(h.OnFailure), agent.PluginFailureOf(h.Event))
		v.Hooks = append(v.Hooks, api.PluginHook{Event: h.Event, Tools: append([]string{}, h.Tools...), OnFailure: string(onFailure)})
	}
	for _, m := range p.Models {
		v.Models = append(v.Models, p.Name+"/"+m.Name)
	}
	for _, s := range p.Secrets {
		v.Secrets = append(v.Secrets, api.PluginSecret{Name: s.Name, Hosts: s.Hosts})
	}
	for _, s := range processes {
		one := api.PluginProcess{
			Tenant: s.Tenant, State: string(s.State), Calls: s.Calls, Starts: s.Starts, Failures: s.Failures, Error: s.Error,
			StartedAt: s.Started.UTC(), UsedAt: s.Used.UTC(), RetryAt: s.RetryAt.UTC(),
		}
		if has := x.list(map[string]string{pluginKey: p.Name, pluginHashKey: p.Hash, pluginForKey: s.Tenant}); len(has) > 0 {
			one.Sandbox = string(has[0].ID)
		}
		v.Processes = append(v.Processes, one)
	}
	return v
}

// pluginSpec is the sandbox of a plug-in.
func pluginSpec(p *plugin.Plugin) (sandbox.Spec, error) {
	s, err := specOf(p.Sandbox)
	if err != nil {
		return s, err
	}
	s.Persist = false
	s.Network = cmp.Or(s.Network, "none")
	s.Require = cmp.Or(s.Require, sandbox.Container) // it never runs on the host itself
	s.IdleTimeout = cmp.Or(p.Idle, plugin.IdleDefault) + pluginIdleLeft
	return s, nil
}

// machine finds the sandbox of a plug-in, or makes it.
func (x *pluginMachines) machine(ctx context.Context, p *plugin.Plugin, tenant string) (sandbox.ID, error) {
	s, err := pluginSpec(p)
	if err != nil {
		return "", err
	}
	own := map[string]string{pluginKey: p.Name, pluginHashKey: p.Hash, pluginForKey: tenant}
	for _, i := range x.list(own) {
		if i.State == sandbox.Running || i.State == sandbox.Paused {
			return i.ID, x.r.manager.Attached(ctx, x.tenant, i.ID)
		}
	}
	i, err := x.r.manager.Create(ctx, x.tenant, sandbox.CreateRequest{Spec: s, Own: own})
	return i.ID, err
}

// user is the sandbox of a plug-in as secrets are granted to it: by the plug-in's name, for it has
// one for each tenant, and no more than its manifest names. The program is of others: what the
// operator grants to all sandboxes is not for it.
func (x *pluginMachines) user(info sandbox.Info) secret.User {
	wants := secret.Wants{}
	u := secret.User{Wants: wants}
	if x == nil {
		return u
	}
	for _, p := range x.plugins {
		if p.Hash != info.Spec.Metadata[pluginHashKey] {
			continue // another one, whose sandbox is about to be removed
		}
		u.Sandboxes = []string{pluginProcess + p.Name}
		for _, s := range p.Secrets {
			wants[s.Name] = s.Hosts
		}
	}
	return u
}

// list are the sandboxes of plug-ins that have all of the metadata.
func (x *pluginMachines) list(metadata map[string]string) []sandbox.Info {
	page, err := x.r.manager.List(context.Background(), x.tenant, sandbox.Filter{Metadata: metadata, PageSize: pluginPageMax})
	if err != nil {
		return nil // of what is in memory: only a wrong filter fails
	}
	return page.Items
}

// Launch implements plugin.Launcher.
func (x *pluginMachines) Launch(ctx context.Context, p *plugin.Plugin, tenant string) (plugin.Process, error) {
	id, err := x.machine(ctx, p, tenant)
	if err != nil {
		return plugin.Process{}, err
	}
	c, release, err := x.r.manager.Guest(ctx, x.tenant, id)
	if err != nil {
		return plugin.Process{}, err
	}
	pipe, err := startPlugin(ctx, c, p)
	if err != nil {
		release()
		return plugin.Process{}, err
	}
	return plugin.Process{Stdin: pipe, Stdout: pipe.Stdout, Stderr: pipe.Stderr, Kill: func() { pipe.Kill(); release() }}, nil
}

// startPlugin puts a plug-in's files into its machine, as root's, and starts it there.
func startPlugin(ctx context.Context, c *wire.Client, p *plugin.Plugin) (*wire.Pipe, error) {
	if err := endPlugins(ctx, c); err != nil {
		return nil, err
	}
	dir := pluginDir + p.Name
	if err := mountSkill(ctx, c, dir, p.Tar); err != nil {
		return nil, err
	}
	argv := make([][]byte, len(p.Command))
	for i, a := range p.Command {
		argv[i] = []byte(a)
	}
	return c.StartPipe(ctx, &wire.StartRequest{Key: pluginProcess + strings.ToLower(rand.Text()), Argv: argv, Cwd: []byte(dir)})
}

// endPlugins ends what an earlier server, or an earlier try, left in a machine.
func endPlugins(ctx context.Context, c *wire.Client) error {
	res, err := c.Process.List(ctx, wireRequest(&wire.ListProcessesRequest{PageSize: pluginPageMax}))
	if err != nil {
		return wire.Err(err)
	}
	for _, p := range res.Msg.Processes {
		if p.State != wire.ProcessState_PROCESS_STATE_RUNNING || !strings.HasPrefix(p.Key, pluginProcess) {
			continue
		}
		if _, err := c.Process.Signal(ctx, wireRequest(&wire.SignalRequest{Key: p.Key, Signal: int32(sigkill)})); err != nil && !errs.Is(wire.Err(err), errs.NotFound) {
			return wire.Err(err)
		}
		if _, err := c.Process.Wait(ctx, wireRequest(&wire.WaitRequest{Key: p.Key, WaitMs: pluginKillTime.Milliseconds()})); err != nil {
			return wire.Err(err)
		}
	}
	return nil
}

const sigkill = 9

// Drop implements plugin.Launcher.
func (x *pluginMachines) Drop(ctx context.Context, p *plugin.Plugin, tenant string) error {
	return x.discard(ctx, x.list(map[string]string{pluginKey: p.Name, pluginForKey: tenant}))
}

func (x *pluginMachines) discard(ctx context.Context, list []sandbox.Info) error {
	var all error
	for _, i := range list {
		if err := x.r.manager.Discard(ctx, x.tenant, i.ID); err != nil && !errs.Is(err, errs.NotFound) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// sweep removes the sandboxes of what no plug-in is any more.
func (x *pluginMachines) sweep(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, p := range x.plugins {
		wanted[p.Hash] = true
	}
	var old []sandbox.Info
	for _, i := range x.list(nil) {
		if i.Spec.Metadata[pluginKey] != "" && !wanted[i.Spec.Metadata[pluginHashKey]] {
			old = append(old, i)
		}
	}
	return x.discard(ctx, old)
}

var _ plugin.Launcher = (*pluginMachines)(nil)
