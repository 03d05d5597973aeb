package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/apt"
	"github.com/skete-dev/skete/template/debian"
	"github.com/skete-dev/skete/template/recipe"
)

// A step's sandbox is as large as the limits allow, up to this.
const (
	stepCPUs     = 4
	stepMemoryMB = 2048
	stepDiskMB   = 16 << 10
	stepPids     = 4096
	stepTTL      = 2 * time.Hour
)

// makers makes templates for the server: ready ones and those of recipes.
type makers struct {
	templates
	manager  *manager.Manager
	builder  *recipe.Builder
	contexts string // directory of builds' files
}

func (r *running) openMakers(t templates) (*makers, error) {
	m := &makers{templates: t, manager: r.manager, contexts: r.in("build/contexts")}
	// What a killed server left.
	if err := errors.Join(os.RemoveAll(m.contexts), os.MkdirAll(m.contexts, 0o700)); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot make the directory of builds")
	}
	var err error
	m.builder, err = recipe.New(recipe.Config{
		Templates: t, Machines: stepMachines{r.manager}, Prepare: t.Prepare, Pull: t.pull, Dir: r.in("build/steps"), Log: r.c.Log,
		Packages: packages{apt.NewFetcher(r.in("build/packages")), t.maker},
	})
	return m, err
}

// pull brings the image that a recipe starts from. Its template is named by the
// reference, so that the next build finds it.
func (t templates) pull(ctx context.Context, reference string, say func(string)) (string, error) {
	sum := sha256.Sum256([]byte(reference))
	info, err := t.Pull(ctx, reference, template.PullOptions{Name: "from-" + hex.EncodeToString(sum[:6])}, func(p template.Progress) {
		if p.Text != "" {
			say(p.Text)
		}
	})
	return info.Name, err
}

// Build makes a template of a recipe and its files.
func (m *makers) Build(ctx context.Context, b server.BuildRequest, tell func(api.TemplateNews)) (template.Info, error) {
	dir, err := os.MkdirTemp(m.contexts, "")
	if err != nil {
		return template.Info{}, errs.Wrap(errs.Internal, err, "cannot make a directory for the build's files")
	}
	defer os.RemoveAll(dir)
	folder, err := recipe.Unpack(ctx, dir, b.Context)
	if err != nil {
		return template.Info{}, err
	}
	defer folder.Close()
	return m.builder.Build(ctx, recipe.Request{Name: b.Name, Folder: folder, Fresh: b.Fresh}, func(n recipe.News) {
		tell(api.TemplateNews{Kind: n.Kind, Template: b.Name, Text: n.Text, Step: n.N, Steps: n.Steps, Cached: n.Cached})
	})
}

// stepMachines gives steps of builds their sandboxes, which belong to the
// server's own tenant.
type stepMachines struct{ m *manager.Manager }

const buildTenant = "skete-build"

// Open boots a sandbox in which commands may be root.
func (x stepMachines) Open(ctx context.Context, name string, network bool) (*wire.Client, func(context.Context) error, error) {
	spec := stepSpec(name, x.m.Limits())
	if network {
		spec.Network = egress.Default
	}
	info, err := x.m.Create(ctx, buildTenant, sandbox.CreateRequest{Spec: spec})
	if err != nil {
		return nil, nil, err
	}
	end := func(ctx context.Context) error { return x.m.Discard(ctx, buildTenant, info.ID) }
	guest, release, err := x.m.Guest(ctx, buildTenant, info.ID)
	if err != nil {
		return nil, nil, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	return guest, func(ctx context.Context) error {
		release()
		return end(ctx)
	}, nil
}

// stepSpec is the sandbox of a step, as large as the limits allow. It has no network if the
// recipe does not ask for one, whatever the server's default is: a step is to be the same
// tomorrow.
func stepSpec(base string, l sandbox.Limits) sandbox.Spec {
	spec := sandbox.Spec{
		Name: "step of a build", Template: base, Root: true, Network: egress.None, CPUs: min(stepCPUs, l.CPUsMax), MemoryMB: min(stepMemoryMB, l.MemoryMBMax),
		DiskMB: min(stepDiskMB, l.DiskMBMax), PidsMax: min(stepPids, l.PidsMax), TTL: stepTTL, IdleTimeout: stepTTL,
		NoStart: true, // what the base is for is no part of a step
	}
	if l.TTLMax > 0 {
		spec.TTL = min(spec.TTL, l.TTLMax)
	}
	if l.IdleTimeoutMax > 0 {
		spec.IdleTimeout = min(spec.IdleTimeout, l.IdleTimeoutMax)
	}
	return spec
}

// packages fetches from the archives that ready templates come from.
type packages struct {
	fetcher *apt.Fetcher
	maker   *debian.Maker
}

func (p packages) Fetch(ctx context.Context, tree string, names []string, say func(string)) ([]apt.Deb, error) {
	return p.fetcher.Fetch(ctx, apt.Request{Tree: tree, Packages: names, Own: p.maker.Own}, say)
}
