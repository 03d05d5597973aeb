package serve

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/declared"
)

// sources are the tools that are not built in, and the sandboxes of their own.
func (r *running) sources(rates kv.Store) ([]tool.Source, *toolSandboxes) {
	own := &toolSandboxes{machines{r.manager, r.histories, nil, nil}}
	dir := r.c.Tools.Dir
	if dir == "" {
		dir = r.in("tools")
	}
	r.toolFolder = declared.NewFolder(filepath.Clean(dir))
	for _, e := range r.toolFolder.List() {
		if e.Err != nil {
			r.c.Log.Error("a tool's manifest cannot be used", "dir", dir, "problem", errs.Public(e.Err))
		}
	}
	return []tool.Source{declared.New(declared.Config{Folder: r.toolFolder, Sandboxes: own, Rates: rates, Outbound: outbound.Config{Held: r.secrets.Held}, Sent: r.auditSent})}, own
}

// auditSent tells the audit log of a request that the host made for a tool.
func (r *running) auditSent(s declared.Sent) {
	r.audit.Later(recordOfSent(s))
}

func recordOfSent(s declared.Sent) audit.Record {
	result := strconv.Itoa(s.Status)
	if s.Status == 0 {
		result = "unanswered"
	}
	who := s.By
	if s.Run != "" {
		who = "run " + string(s.Run)
	}
	return audit.Record{
		Time: s.At, Tenant: s.Tenant, Who: who, What: "tool.request", On: string(s.Thread), Result: result,
		Detail: map[string]string{
			"run": string(s.Run), "tool": s.Tool, "call": s.Call, "to": s.Method + " " + s.Host + s.Path, "secrets": strings.Join(s.Secrets, ", "),
			"bytes": strconv.Itoa(s.Bytes), "ms": strconv.FormatInt(s.Took.Milliseconds(), 10),
		},
	}
}

// coveredBy says of which tools that are not built in agents' files may speak, which are every
// tenant's.
func coveredBy(sources []tool.Source) (covers func(name string) bool) {
	return func(name string) bool {
		return slices.ContainsFunc(sources, func(s tool.Source) bool { return s.Covers("", name) })
	}
}

// toolSandboxes are the sandboxes of tools that do not run in the run's. It is a
// declared.Sandboxes.
type toolSandboxes struct{ machines machines }

// Metadata of the sandboxes of tools: the run with which one is removed, and what people are
// told of it, the tool that it was made for and the calls that share it.
const (
	ofRun   = sandbox.OwnPrefix + "tool.run"
	ofTool  = sandbox.OwnPrefix + "tool.name"
	ofScope = sandbox.OwnPrefix + "tool.scope"
)

// Make implements declared.Sandboxes.
func (x *toolSandboxes) Make(ctx context.Context, tenant string, w declared.Wanted) (string, error) {
	s, err := specOf(w.Spec)
	if err != nil {
		return "", err
	}
	own := map[string]string{sandbox.OwnPrefix + "tool": w.Key, ofTool: w.Tool, ofScope: w.Scope}
	if w.Run != "" {
		own[ofRun] = w.Run
	}
	info, err := x.machines.m.Create(ctx, tenant, sandbox.CreateRequest{Spec: s, Key: w.Key, Own: own, Keep: w.Keep})
	if err == nil && w.Keep > 0 { // a manifest that says something else by now
		err = x.machines.m.Keep(ctx, tenant, info.ID, w.Keep)
	}
	return string(info.ID), err
}

// Open implements declared.Sandboxes.
func (x *toolSandboxes) Open(ctx context.Context, tenant, id string) (declared.Machine, func(), error) {
	m, release, err := x.machines.Open(ctx, tenant, id)
	return declared.Machine{Files: m.Files, Commands: m.Commands, Boot: m.Boot, Dir: m.Dir, Mount: m.Mount}, release, err
}

// Remove implements declared.Sandboxes.
func (x *toolSandboxes) Remove(ctx context.Context, tenant, id string) error {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return err
	}
	if err := x.machines.m.Destroy(ctx, tenant, sid); err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	return nil
}

// leave removes the sandboxes that were made for a run which is over.
func (x *toolSandboxes) leave(ctx context.Context, tenant, run string) error {
	if x == nil {
		return nil
	}
	page, err := x.machines.m.List(ctx, tenant, sandbox.Filter{Metadata: map[string]string{ofRun: run}, PageSize: 1000})
	for _, info := range page.Items {
		err = errors.Join(err, x.Remove(ctx, tenant, string(info.ID)))
	}
	return err
}

var _ declared.Sandboxes = (*toolSandboxes)(nil)
