package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/key"
)

// Bounds of a census.
const (
	censusTimeout  = 5 * time.Second
	censusPagesMax = 100
)

// census counts sandboxes when the metrics are read, tenant by tenant; the
// tenants are those that have keys.
type census struct {
	sandboxes Sandboxes
	keys      *key.Ring
	desc      *prometheus.Desc
	mu        sync.Mutex // one at a time
}

func (c *census) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *census) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	counts := map[[2]string]int{}
	tenants, err := c.tenants(ctx)
	for _, tenant := range tenants {
		if err == nil {
			err = c.count(ctx, tenant, counts)
		}
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.desc, err)
		return
	}
	for labels, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}

func (c *census) tenants(ctx context.Context) ([]string, error) {
	recs, err := c.keys.List(ctx, "")
	tenants := []string{key.DefaultTenant}
	for _, rec := range recs {
		if !slices.Contains(tenants, rec.Tenant) {
			tenants = append(tenants, rec.Tenant)
		}
	}
	return tenants, err
}

func (c *census) count(ctx context.Context, tenant string, counts map[[2]string]int) error {
	f := sandbox.Filter{PageSize: 1000}
	for range censusPagesMax {
		page, err := c.sandboxes.List(ctx, tenant, f)
		if err != nil {
			return err
		}
		for _, info := range page.Items {
			counts[[2]string{string(info.State), info.Provider}]++
		}
		if f.PageToken = page.Next; f.PageToken == "" {
			return nil
		}
	}
	return errs.New(errs.Limit, "more sandboxes than one census counts")
}
