package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skete-dev/skete/sandbox"
)

// countTimeout bounds the questions to all monitors. A scrape waits ten seconds
// at most where nothing else is said, and asks for other things too.
const countTimeout = 3 * time.Second

// monitors shows what machines do, as their monitors on the host count it. A
// provider without such a monitor has no series.
type monitors struct{ sandboxes Sandboxes }

// monitorCounters are those of sandbox.Counts. They miss what a machine did between
// the last scrape and its end.
var monitorCounters = []struct {
	desc *prometheus.Desc
	of   func(sandbox.Counts) int64
}{
	{monitorCounter("disk_read_bytes", "Bytes that machines read from their disks"), func(c sandbox.Counts) int64 { return c.DiskReadBytes }},
	{monitorCounter("disk_written_bytes", "Bytes that machines wrote to their disks"), func(c sandbox.Counts) int64 { return c.DiskWrittenBytes }},
	{monitorCounter("disk_reads", "Reads of machines from their disks"), func(c sandbox.Counts) int64 { return c.DiskReads }},
	{monitorCounter("disk_writes", "Writes of machines to their disks"), func(c sandbox.Counts) int64 { return c.DiskWrites }},
	{monitorCounter("disk_throttled", "Times that a machine's disk waited for its limit"), func(c sandbox.Counts) int64 { return c.DiskThrottled }},
	{monitorCounter("channel_in_bytes", "Bytes over the channel into machines"), func(c sandbox.Counts) int64 { return c.ChannelInBytes }},
	{monitorCounter("channel_out_bytes", "Bytes over the channel out of machines"), func(c sandbox.Counts) int64 { return c.ChannelOutBytes }},
	{monitorCounter("denied_calls", "System calls that the filter around a machine's monitor refused"), func(c sandbox.Counts) int64 { return c.Denied }},
}

func monitorCounter(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("skete_machine_"+name+"_total", help+", by provider, as its monitors count; without what came after the last scrape of a machine that ended.", []string{"provider"}, nil)
}

func (m *monitors) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range monitorCounters {
		ch <- c.desc
	}
}

func (m *monitors) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	for provider, counts := range m.sandboxes.Counts(ctx) {
		for _, c := range monitorCounters {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.of(counts)), provider)
		}
	}
}
