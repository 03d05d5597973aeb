package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/thread"
)

// openNetworks makes what carries the connections of sandboxes.
func (r *running) openNetworks(ctx context.Context) error {
	seed, err := networkSeed(r.in("network.key"))
	if err != nil {
		return err
	}
	if err := r.openSecrets(ctx); err != nil {
		return err
	}
	if err := r.openModels(ctx, seed); err != nil {
		return err
	}
	r.networks, err = network.New(ctx, network.Config{Seed: seed, Events: r.events, Decided: r.decided, Node: r.node.ID, Await: true, Secrets: r.heldBy, Tokens: r.tokensOf, Env: r.machineEnv, Local: r.modelsAt, Log: r.c.Log, Find: func(host sandbox.ID) (network.Owner, bool) {
		tenant, info, ok := r.manager.OfHost(host)
		return network.Owner{Tenant: tenant, ID: info.ID, Name: cmp.Or(info.Spec.Name, string(info.ID)), Policy: info.Spec.Policy()}, ok
	}})
	if err != nil {
		return err
	}
	r.onClose(r.networks.Close)
	r.openRegistries()
	r.c.ServeGuest = r.whenManaged(r.networks.Serve)
	return nil
}

// decided is told what networks decide: it tells the audit log, and the logs of runs what was
// refused.
func (r *running) decided(of network.Owner, d network.Decision) {
	auditedDecisions{r.audit}.tell(of, d)
	if k := r.refused.Load(); k != nil && !d.Allowed {
		k.Refused(of.Tenant, thread.NetworkRefused{Machine: string(of.ID), Host: d.Host, Port: d.Port, Method: d.Method, Path: d.Path, Why: d.Why})
	}
}

// whenManaged lets streams of machines wait until it is known whose they are: those of an
// earlier server may come as soon as their provider is there.
func (r *running) whenManaged(serve sandbox.ServeGuest) sandbox.ServeGuest {
	r.managed = make(chan struct{})
	closing := make(chan struct{})
	r.onClose(func() error {
		close(closing)
		return nil
	})
	return func(host sandbox.ID, conn net.Conn, port uint32) {
		select {
		case <-r.managed:
			serve(host, conn, port)
		case <-closing:
			_ = conn.Close()
		}
	}
}

// sealer returns what seals the secrets of sandboxes. A command's key takes the place of the
// one in the data directory, and none is made there.
func (r *running) sealer(ctx context.Context) (secret.Sealer, error) {
	if argv := r.c.Secrets.KeyCommand; len(argv) > 0 {
		r.doing("asking for the key of the secrets")
		return secret.CommandSealer(ctx, argv)
	}
	return secret.FileSealer(r.in("secret.key"))
}

// tokensBucket of the store.
const tokensBucket = "tokens"

// openSecrets opens what is kept for sandboxes.
func (r *running) openSecrets(ctx context.Context) error {
	sealer, err := r.sealer(ctx)
	if err != nil {
		return err
	}
	store, err := r.store.KV(ctx, "secrets")
	if err != nil {
		return err
	}
	tokens, err := r.store.KV(ctx, tokensBucket)
	if err != nil {
		return err
	}
	r.tokens = secret.NewTokens(secret.TokenConfig{KV: tokens, Sealer: sealer})
	r.secrets, err = secret.Open(ctx, secret.Config{KV: store, Sealer: sealer, Tokens: r.tokens, Log: r.c.Log})
	if err != nil {
		return err
	}
	r.onClose(r.secrets.Close)
	return nil
}

// heldBy returns the secrets of a sandbox for a request.
func (r *running) heldBy(of network.Owner, q egress.Request) []secret.Held {
	info, err := r.manager.Get(context.Background(), of.Tenant, of.ID) // as it is called now
	if err != nil {
		return nil
	}
	return r.secrets.Held(of.Tenant, r.userOf(info), q)
}

// tokensOf returns what a sandbox got by secrets. A fork has an ID of its own, and so none.
func (r *running) tokensOf(of network.Owner) *secret.SandboxTokens {
	return r.tokens.Of(of.Tenant, string(of.ID))
}

// sweepTokens removes those that have expired, and those of sandboxes that are gone.
func (r *running) sweepTokens(ctx context.Context) error {
	return r.tokens.Sweep(ctx, func(id string) bool { return r.manager.Known(sandbox.ID(id)) })
}

// machineEnv is the variables of a sandbox that stand for secrets, and by which programs
// find the models that it was granted.
func (r *running) machineEnv(info sandbox.Info) map[string]string {
	env := r.secrets.Env(info.Tenant, r.userOf(info))
	if info.Spec.Models != nil {
		maps.Copy(env, r.gateway.Env(info.Tenant, string(cmp.Or(info.Spec.Models.KeyOf, info.ID))))
	}
	return env
}

// userOf is a sandbox as secrets are granted to it.
func (r *running) userOf(info sandbox.Info) secret.User {
	if info.Spec.Metadata[pluginKey] != "" {
		return r.pluginMachines.user(info)
	}
	return secret.User{Agent: info.ForRun.Agent, Sandboxes: []string{string(info.ID), info.Spec.Name}}
}

const seedBytes = 32

// networkSeed reads the secret that the authority of networks derives from, or makes it.
func networkSeed(path string) ([]byte, error) {
	seed, err := os.ReadFile(path)
	switch {
	case err == nil && len(seed) == seedBytes:
		return seed, nil
	case err == nil:
		return nil, errs.New(errs.Corrupt, "%s has %d bytes, not %d", path, len(seed), seedBytes).WithHint("remove it: machines that run trust the network again after a restart of their own")
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	seed = make([]byte, seedBytes)
	_, _ = rand.Read(seed)
	return seed, writeSynced(path, seed)
}

// detaching is called before the workspace of a machine is taken away.
func (r *running) detaching(host sandbox.ID) {
	r.networks.Detach(host)
	r.histories.Detaching(host)
}
