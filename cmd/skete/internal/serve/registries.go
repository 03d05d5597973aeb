package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox/network"
)

// How often the host's package managers are asked: a mirror that is configured anew is
// found at the next start, or in a day. What did not answer is asked again sooner.
const (
	registriesFresh = 24 * time.Hour
	registriesRetry = time.Minute
	registriesBytes = 1 << 20
)

// openRegistries tells the networks what the profile default allows: at once what was
// known before, and soon what is so now. At the first start the first machines wait for it.
func (r *running) openRegistries() {
	path := r.in("registries.json")
	known, found, err := readRegistries(path)
	if err != nil {
		r.c.Log.Warn("what is known of package registries cannot be read, and is found out anew", "error", err)
	}
	if found && r.c.HostRegistries {
		r.networks.SetRegistries(r.withOperators(known), network.Followed)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = sleep.For(ctx, r.findRegistries(ctx, path, &known))
		}
	}()
	r.onClose(func() error {
		stop()
		<-done
		return nil
	})
}

// findRegistries asks the host's package managers and then their registries, tells the
// networks after each, and returns when to do so again. A host that is offline keeps what
// it knew. What is known is kept when both are done: a server that is killed before waits
// for it anew.
func (r *running) findRegistries(ctx context.Context, path string, known *registry.Set) time.Duration {
	next := registriesFresh
	set, err := r.askHost(ctx, known)
	if err != nil {
		next = registriesRetry
	}
	set = r.withOperators(set)
	if ctx.Err() != nil {
		return 0
	}
	r.networks.SetRegistries(set, network.Asked)
	set.Sources = slices.Clone(set.Sources) // the networks read the others
	if ferr := set.Follow(ctx, http.DefaultClient); ferr != nil {
		err, next = errors.Join(err, ferr), registriesRetry
	}
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		r.c.Log.Debug("not all package registries are known", "error", err)
	}
	*known = set
	r.networks.SetRegistries(set, network.Followed)
	if !r.c.HostRegistries {
		return next
	}
	data, err := json.Marshal(set)
	if err == nil {
		err = writeSynced(path, data)
	}
	if err != nil {
		r.c.Log.Warn("what is known of package registries is not kept", "error", err)
	}
	return next
}

// askHost asks the host's package managers; on an error it says what they said last.
func (r *running) askHost(ctx context.Context, known *registry.Set) (set registry.Set, err error) {
	if !r.c.HostRegistries {
		return registry.Set{}, nil
	}
	if set, err = registry.Ask(ctx, "sh"); err != nil {
		set = *known
	}
	set.Keep(*known)
	return set, err
}

// withOperators adds the places that the configuration names.
func (r *running) withOperators(set registry.Set) registry.Set {
	var more registry.Set
	for _, u := range r.c.Registries {
		if src, err := registry.Of(u); err == nil { // the configuration was checked
			more.Sources = append(more.Sources, src)
		}
	}
	return set.Merge(more)
}

// readRegistries returns what was known last; false: nothing was.
func readRegistries(path string) (set registry.Set, found bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return set, false, nil
	case err != nil:
		return set, false, err
	case info.Size() > registriesBytes:
		return set, false, errors.New("it is too large")
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &set)
	}
	if err != nil {
		return registry.Set{}, false, err
	}
	return set, true, nil
}
