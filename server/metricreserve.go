package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skete-dev/skete/api"
)

// reserve shows the pool in /metrics.
type reserve struct {
	pool                            func() api.Pool
	machines, claims, misses, short *prometheus.Desc
}

func newReserve(pool func() api.Pool) *reserve {
	return &reserve{
		pool:     pool,
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
	p := r.pool()
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
