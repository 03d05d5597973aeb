package server

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Warm is what the server needs to show the warm pool. It returns at once.
type Warm interface {
	Pool() api.Pool
}

// noPool is a server that keeps nothing warm.
type noPool struct{}

func (noPool) Pool() api.Pool { return api.Pool{} }

func (s *Server) registerPool(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/pool", Scope: key.Admin, ID: "get-pool", Tag: "server",
		Summary: "Describe the machines that are kept warm",
	}, s.pool)
}

type poolOut struct{ Body api.Pool }

func (s *Server) pool(context.Context, *struct{}) (*poolOut, error) {
	p := s.warm.Pool()
	if p.Kinds == nil {
		p.Kinds = []api.PoolKind{}
	}
	return &poolOut{p}, nil
}

// reserve shows the pool in /metrics.
type reserve struct {
	warm                            Warm
	machines, claims, misses, short *prometheus.Desc
}

func newReserve(w Warm) *reserve {
	return &reserve{
		warm:     w,
		machines: prometheus.NewDesc("skete_pool_machines", "Machines of the warm pool by state; target: how many are wanted.", []string{"provider", "template", "state"}, nil),
		claims:   prometheus.NewDesc("skete_pool_claims_total", "Sandboxes that got a warm machine.", []string{"provider", "template"}, nil),
		misses:   prometheus.NewDesc("skete_pool_misses_total", "Sandboxes that found no warm machine of their shape.", []string{"provider", "template"}, nil),
		short:    prometheus.NewDesc("skete_pool_memory_short", "1: the pool gets smaller because the host is short of memory.", nil, nil),
	}
}

func (r *reserve) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.machines, r.claims, r.misses, r.short} {
		ch <- d
	}
}

func (r *reserve) Collect(ch chan<- prometheus.Metric) {
	type of struct{ provider, template string }
	states := map[of]map[string]int{}
	claims, misses := map[of]uint64{}, map[of]uint64{}
	p := r.warm.Pool()
	for _, k := range p.Kinds {
		o := of{k.Provider, k.Template}
		if states[o] == nil {
			states[o] = map[string]int{}
		}
		states[o]["warm"] += k.Warm
		states[o]["making"] += k.Making
		states[o]["ending"] += k.Ending
		states[o]["target"] += k.Target
		claims[o] += k.Claims
		misses[o] += k.Misses
	}
	for o, counts := range states {
		for state, n := range counts {
			ch <- prometheus.MustNewConstMetric(r.machines, prometheus.GaugeValue, float64(n), o.provider, o.template, state)
		}
		ch <- prometheus.MustNewConstMetric(r.claims, prometheus.CounterValue, float64(claims[o]), o.provider, o.template)
		ch <- prometheus.MustNewConstMetric(r.misses, prometheus.CounterValue, float64(misses[o]), o.provider, o.template)
	}
	short := 0.0
	if p.MemoryShort {
		short = 1
	}
	ch <- prometheus.MustNewConstMetric(r.short, prometheus.GaugeValue, short)
}
