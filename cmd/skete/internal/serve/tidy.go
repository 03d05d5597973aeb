package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/tool/declared"
)

// tidyEvery is how often old threads and blobs without a reference are removed.
// The first time is soon after the start, so that a server that is restarted
// every day does it too.
const (
	tidyEvery = 24 * time.Hour
	tidyFirst = 10 * time.Minute
)

// tidier removes what is too old, and what is not referred to any more.
type tidier struct {
	r      *running
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (r *running) startTidying() {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tidier{r: r, cancel: cancel}
	t.wg.Go(func() { t.loop(ctx) })
	r.onClose(func() error {
		cancel()
		t.wg.Wait()
		return nil
	})
}

func (t *tidier) loop(ctx context.Context) {
	for wait := tidyFirst; ; wait = tidyEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		t.tidy(ctx)
		t.sweepTemplates(ctx)
		t.sweepHistories(ctx)
		t.sweepModels(ctx)
		t.sweepSkills(ctx)
		if err := t.r.sweepTokens(ctx); err != nil { // soon after the start too
			t.r.c.Log.Warn("tokens of sandboxes could not be swept", "error", err)
		}
	}
}

// sweepModels drops what sandboxes have used of models that are gone.
func (t *tidier) sweepModels(ctx context.Context) {
	known := func(id string) bool { return t.r.manager.Known(sandbox.ID(id)) }
	if err := t.r.gateway.Sweep(ctx, known); err != nil {
		t.r.c.Log.Warn("what sandboxes have used of models could not be swept", "error", err)
	}
}

// sweepSkills removes files of skills that a crash has left over.
func (t *tidier) sweepSkills(ctx context.Context) {
	if err := t.r.skills.Sweep(ctx); err != nil {
		t.r.c.Log.Warn("files of skills could not be swept", "error", err)
	}
}

// sweepHistories removes what is kept of sandboxes that are gone for long.
func (t *tidier) sweepHistories(ctx context.Context) {
	n, err := t.r.histories.Sweep(ctx)
	if err != nil {
		t.r.c.Log.Warn("histories could not be swept", "error", err)
	}
	if n > 0 {
		t.r.c.Log.Info("tidied histories", "removed", n)
	}
}

// sweepTemplates removes what no template and no machine needs.
func (t *tidier) sweepTemplates(ctx context.Context) {
	swept, err := t.r.templates.GC(ctx, false)
	if err != nil {
		t.r.c.Log.Warn("templates could not be swept", "error", err)
		return
	}
	if swept.Bytes > 0 {
		t.r.c.Log.Info("tidied templates", "bytes", swept.Bytes)
	}
}

func (t *tidier) tidy(ctx context.Context) {
	all := t.r.store.Threads()
	tenants, err := all.Tenants(ctx)
	if err != nil {
		t.r.c.Log.Warn("tidying failed", "error", err)
		return
	}
	for _, tenant := range tenants {
		if err := t.retain(ctx, all, tenant); err != nil {
			t.r.c.Log.Warn("old threads could not be removed", "tenant", tenant, "error", err)
			continue
		}
		records, err := t.r.records(ctx, tenant)
		if err != nil {
			t.r.c.Log.Warn("tidying failed", "tenant", tenant, "error", err)
			continue
		}
		swept, err := all.Sweep(ctx, tenant, 0, records...)
		if err != nil {
			t.r.c.Log.Warn("blobs could not be swept", "tenant", tenant, "error", err)
			continue
		}
		if swept.Removed > 0 || swept.Orphans > 0 {
			t.r.c.Log.Info("tidied", "tenant", tenant, "blobs", swept.Removed, "bytes", swept.Bytes, "orphans", swept.Orphans)
		}
	}
}

// retain removes threads that are too old, with all that belongs to them.
func (t *tidier) retain(ctx context.Context, all *store.Threads, tenant string) error {
	old, err := all.Retain(ctx, tenant, time.Duration(t.r.c.Agents.Retain))
	for _, id := range old {
		err = errors.Join(err, t.r.supervisor.Retire(ctx, tenant, id))
	}
	return err
}

// records are a tenant's keys outside of its threads.
func (r *running) records(ctx context.Context, tenant string) ([]store.ThreadRecords, error) {
	var list []store.ThreadRecords
	for bucket, prefixes := range map[string][]string{runsBucket: {"run/", "start/", declared.RatesPrefix}, schedulesBucket: {"schedule/"}, memoriesBucket: {""}, workflowsBucket: {"run/", "definition/"}} {
		kv, err := r.store.KV(ctx, bucket)
		if err != nil {
			return nil, err
		}
		for _, p := range prefixes {
			list = append(list, store.ThreadRecords{Keys: kv, Prefix: p + tenant + "/"})
		}
	}
	return list, nil
}
