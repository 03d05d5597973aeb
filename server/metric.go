package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
)

// This file is what /metrics shows, in a registry of its own.
//
// No label names a sandbox or a tenant: of those there can be any number. All
// methods are safe for concurrent use.

// metricConfig of metrics: whom they ask.
type metricConfig struct {
	Sandboxes Sandboxes
	Keys      *key.Ring       // the tenants are those that have keys
	Pool      func() api.Pool // of warm machines; returns at once
	Streams   func() int      // that are open
}

// metrics of one server.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.HistogramVec
	creates     *prometheus.HistogramVec
	commands    prometheus.Counter
	execSeconds prometheus.Histogram
}

// newMetrics returns metrics that count from nought.
func newMetrics(c metricConfig) *metrics {
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
		}, func() float64 { return float64(c.Streams()) }),
		&census{sandboxes: c.Sandboxes, keys: c.Keys, desc: prometheus.NewDesc("skete_sandboxes", "Sandboxes by state and provider.", []string{"state", "provider"}, nil)},
		newReserve(c.Pool), &monitors{sandboxes: c.Sandboxes},
	)
	return m
}

// Handler serves all of them.
func (m *metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true})
}

// Request counts an answered request by its route.
func (m *metrics) Request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}

// CommandStarted counts a command.
func (m *metrics) CommandStarted() { m.commands.Inc() }

// ExecEnded counts an exec.
func (m *metrics) ExecEnded(took time.Duration) { m.execSeconds.Observe(took.Seconds()) }

// Created counts a create by how it went.
func (m *metrics) Created(took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = string(errs.Of(err))
	}
	m.creates.WithLabelValues(result).Observe(took.Seconds())
}
