package serve

import (
	"context"
	"maps"
	"slices"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/debian"
	"github.com/skete-dev/skete/template/recipe"
)

// templates is the store, with the ready templates in it before they are made.
type templates struct {
	*template.Store
	maker  *debian.Maker
	domain string // of previews
}

// openTemplates opens what keeps templates and what makes them.
func (r *running) openTemplates() (templates, error) {
	store, err := template.Open(r.in("templates"))
	if err != nil {
		return templates{}, err
	}
	store.WithParts(parts{r.c, r.in("kernels/packed")})
	t := r.c.Templates
	maker, err := debian.New(debian.Config{
		Store: store, Dir: r.in("make"), Mirror: t.Mirror, Security: t.Security, Suite: t.Suite, Log: r.c.Log,
	})
	if err != nil {
		return templates{}, err
	}
	r.onClose(maker.Close)
	return templates{store, maker, r.c.Preview.Domain}, nil
}

// Rootfs makes a ready template that is not there yet. A built one has the
// environment and the use that its recipe says.
func (t templates) Rootfs(ctx context.Context, name string) (template.Rootfs, error) {
	root, err := t.rootfs(ctx, name)
	return previewed(root, t.domain), err
}

// previewed tells machines beneath which names their previews are, so that dev
// servers answer there: Vite refuses hosts that it was not told of, but for
// localhost.
func previewed(root template.Rootfs, domain string) template.Rootfs {
	if domain == "" || domain == "localhost" {
		return root
	}
	env := map[string]string{}
	maps.Copy(env, root.Env)
	env[wire.PreviewDomain] = "preview." + domain
	root.Env = env
	return root
}

// built reports whether there is a template of a name that is none of the ready ones.
func (t templates) built(ctx context.Context, name string) bool {
	if slices.ContainsFunc(t.maker.Ready(), func(r debian.Ready) bool { return r.Name == name }) {
		return false
	}
	_, err := t.Get(ctx, name)
	return err == nil
}

func (t templates) rootfs(ctx context.Context, name string) (template.Rootfs, error) {
	root, err := t.maker.Rootfs(ctx, name)
	if err != nil || name == template.HostName {
		return root, err
	}
	said := recipe.SettingsOf(root.Dir)
	root.Use = said.Use()
	env := maps.Clone(said.Env)
	if len(env) == 0 {
		return root, nil
	}
	for k, v := range root.Env {
		if _, ok := env[k]; !ok {
			env[k] = v
		}
	}
	root.Env = env
	return root, nil
}

// Needs implements sandbox.Templates. What is ready to be made says nothing.
func (t templates) Needs(ctx context.Context, name string) template.Needs {
	if name == template.HostName {
		return template.Needs{}
	}
	root, err := t.Store.Rootfs(ctx, name)
	if err != nil {
		return template.Needs{} // who makes the machine is told
	}
	return recipe.SettingsOf(root.Dir).Needs()
}

// Get describes a template.
func (t templates) Get(ctx context.Context, name string) (template.Info, error) {
	info, err := t.Store.Get(ctx, name)
	if err == nil {
		info.Needs = t.Needs(ctx, name)
	}
	return info, err
}

// List shows ready templates that are not there yet too.
func (t templates) List(ctx context.Context) ([]template.Info, error) {
	infos, err := t.Store.List(ctx)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(i template.Info) bool { return template.Step(i.Name) })
	there := map[string]bool{}
	for n, i := range infos {
		there[i.Name] = true
		infos[n].Needs = t.Needs(ctx, i.Name)
	}
	for _, r := range t.maker.Ready() {
		if !there[r.Name] {
			infos = append(infos, template.Info{Name: r.Name, Kind: "ready", Bytes: r.Bytes, Languages: r.Languages})
		}
	}
	return infos, nil
}

// Ready names the templates that can be made.
func (t templates) Ready() (names []string) {
	for _, r := range t.maker.Ready() {
		names = append(names, r.Name)
	}
	return names
}

// Prepare makes a ready template unless it is there.
func (t templates) Prepare(ctx context.Context, name string, say func(string)) (template.Info, error) {
	return t.maker.Prepare(ctx, name, say)
}
