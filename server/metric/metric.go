package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/key"
)

// metrics holds what /metrics shows, in a registry of its own.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.HistogramVec
	creates     *prometheus.HistogramVec
	commands    prometheus.Counter
	execSeconds prometheus.Histogram
}

func newMetrics(s *Server) *metrics {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skete_http_request_duration_seconds", Help: "Time of an HTTP request; a stream lasts until its end.", Buckets: buckets,
		}, []string{"route", "code"}),
		creates: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skete_sandbox_create_duration_seconds", Help: "Time from a create request to an answering guest.", Buckets: buckets,
		}, []string{"result"}),
		commands: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skete_commands_started_total", Help: "Commands that callers asked for.",
		}),
		execSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skete_exec_duration_seconds", Help: "Time of an exec, from the request to the command's end.", Buckets: buckets,
		}),
	}
	m.registry.MustRegister(m.requests, m.creates, m.commands, m.execSeconds,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skete_streams_open", Help: "Streams open now.",
		}, func() float64 { return float64(s.hub.Count()) }),
		&census{sandboxes: s.sandboxes, keys: s.keys, desc: prometheus.NewDesc("skete_sandboxes", "Sandboxes by state and provider.", []string{"state", "provider"}, nil)},
		newReserve(s.warm),
	)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true})
}

func (m *metrics) request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *metrics) execEnded(took time.Duration) { m.execSeconds.Observe(took.Seconds()) }

func (m *metrics) created(took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = string(errs.Of(err))
	}
	m.creates.WithLabelValues(result).Observe(took.Seconds())
}

// Bounds of a census.
const (
	censusTimeout  = 5 * time.Second
	censusPagesMax = 100
)

// census counts sandboxes when somebody asks, tenant by tenant; the tenants
// are those that have keys.
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
