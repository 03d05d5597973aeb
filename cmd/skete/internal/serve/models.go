package serve

import (
	"context"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/llm/catalog"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/secret"
)

// openModels finds the models of this host, and lets sandboxes use them that are granted
// some.
func (r *running) openModels(ctx context.Context, seed []byte) error {
	r.readPlugins()
	models, err := catalog.New(r.c.Catalog(), catalog.Options{Getenv: os.Getenv, Plugins: r.plugins})
	if err != nil {
		return err
	}
	r.onClose(func() error { models.Close(); return nil })
	store, err := r.store.KV(ctx, "model-use")
	if err != nil {
		return err
	}
	c := gateway.Config{Models: models, Seed: seed, Store: store, Events: r.events, Node: r.node.ID, Log: r.c.Log}
	if r.gateway, err = gateway.New(ctx, c); err != nil {
		return err
	}
	r.models = modelList{models, r.gateway}
	r.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatewayCloseWait)
		defer cancel()
		return r.gateway.Close(ctx)
	})
	return nil
}

const (
	gatewayCloseWait  = 5 * time.Second
	gatewayForgetWait = time.Second
)

// modelsAt serves the calls of a sandbox to the models that it was granted.
func (r *running) modelsAt(of network.Owner, host string) http.Handler {
	if !slices.Contains(gateway.Hosts(), host) {
		return nil
	}
	info, err := r.manager.Get(context.Background(), of.Tenant, of.ID)
	if err != nil || info.Spec.Models == nil {
		return nil
	}
	g := *info.Spec.Models
	return r.gateway.Door(gateway.Client{Tenant: info.Tenant, Sandbox: string(info.ID), KeyOf: string(g.KeyOf), Grant: grantOf(g)})
}

func grantOf(m sandbox.ModelGrant) gateway.Grant {
	return gateway.Grant{Models: m.Models, Budget: gateway.Budget{Tokens: m.Tokens, CostUSD: m.CostUSD, PerMinute: m.PerMinute}}
}

// withModels are networks of sandboxes, some of which use models, or got tokens.
type withModels struct {
	*network.Service
	gateway *gateway.Gateway
	tokens  *secret.Tokens
}

// Forget implements manager.Networks. What is not dropped now is when the server tidies.
func (n withModels) Forget(id sandbox.ID) {
	n.Service.Forget(id)
	ctx, cancel := context.WithTimeout(context.Background(), gatewayForgetWait)
	defer cancel()
	_ = n.gateway.Forget(ctx, string(id))
	_ = n.tokens.EraseSandbox(ctx, string(id))
}

// modelList shows the catalogue. It is a server.Models.
type modelList struct {
	c *catalog.Catalog
	g *gateway.Gateway
}

// Spent implements server.Models.
func (l modelList) Spent(ctx context.Context, sandbox string) (gateway.Spent, error) {
	return l.g.Spent(ctx, sandbox)
}

// Models implements server.Models.
func (l modelList) Models(ctx context.Context) []api.Model {
	list := []api.Model{}
	for _, m := range l.c.List(ctx) {
		list = append(list, api.Model{
			Name: m.Info.Name, Vendor: m.Info.Vendor, ID: m.Info.ID, URL: m.URL, WindowTokens: m.Info.WindowTokens,
			Guessed: m.Info.Guessed, Source: m.Source, State: string(m.State), Default: m.Default,
		})
	}
	return list
}
