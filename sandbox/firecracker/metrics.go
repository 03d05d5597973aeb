package firecracker

import (
	"bytes"
	"encoding/json"

	"github.com/skete-dev/skete/errs"
)

// This file reads what Firecracker writes down about a machine: lines of
// JSON, each with what was counted since the line before.
//
// A guest that has broken into its monitor may write what it likes, so nothing is
// believed that a machine cannot have done, and everything is bounded.

// Limits.
const (
	metricsLineBytesMax = 64 << 10 // a line has about 6 KiB
	linesMax            = 64       // at once; a pipe holds about ten
	valueMax            = 1 << 50  // of one counter in one line
	sumMax              = 1 << 60
)

// counts are sums since the server began to read. What was written after ten
// minutes without a read is missing.
type counts struct {
	DiskReadBytes    int64 // of all disks
	DiskWrittenBytes int64
	DiskReads        int64
	DiskWrites       int64
	DiskThrottled    int64 // times that a disk waited for its limit
	ChannelInBytes   int64 // over the vsock, into the machine
	ChannelOutBytes  int64
	Denied           int64 // system calls that the seccomp filter has refused
	Lines            int64 // read
}

// line is what we use of one. "block" sums all disks.
type line struct {
	Time  int64 `json:"utc_timestamp_ms"`
	Block struct {
		ReadBytes  int64 `json:"read_bytes"`
		WriteBytes int64 `json:"write_bytes"`
		Reads      int64 `json:"read_count"`
		Writes     int64 `json:"write_count"`
		Throttled  int64 `json:"rate_limiter_throttled_events"`
	} `json:"block"`
	Vsock struct {
		In  int64 `json:"rx_bytes_count"` // the guest receives
		Out int64 `json:"tx_bytes_count"`
	} `json:"vsock"`
	Seccomp struct {
		Faults int64 `json:"num_faults"`
	} `json:"seccomp"`
}

// Read adds all whole lines of data and says how many bytes those had. Invalid:
// a line is not what Firecracker writes; those before it are added.
func (c *counts) Read(data []byte) (used int, err error) {
	for range linesMax {
		text, _, whole := bytes.Cut(data[used:], []byte("\n"))
		if len(text) > metricsLineBytesMax {
			return used, errs.New(errs.Invalid, "a line of metrics has more than %d bytes", metricsLineBytesMax)
		}
		if !whole {
			return used, nil
		}
		if err := c.add(text); err != nil {
			return used, err
		}
		used += len(text) + 1
	}
	return used, nil
}

func (c *counts) add(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return errs.Wrap(errs.Invalid, err, "this is no line of metrics")
	}
	if l.Time <= 0 {
		return errs.New(errs.Invalid, "a line of metrics without a time")
	}
	sum := *c
	sum.Lines++
	for to, n := range map[*int64]int64{
		&sum.DiskReadBytes: l.Block.ReadBytes, &sum.DiskWrittenBytes: l.Block.WriteBytes, &sum.DiskReads: l.Block.Reads, &sum.DiskWrites: l.Block.Writes,
		&sum.DiskThrottled: l.Block.Throttled, &sum.ChannelInBytes: l.Vsock.In, &sum.ChannelOutBytes: l.Vsock.Out, &sum.Denied: l.Seccomp.Faults,
	} {
		if n < 0 || n > valueMax {
			return errs.New(errs.Invalid, "a line of metrics counts %d of something", n)
		}
		*to = min(*to+n, sumMax)
	}
	*c = sum
	return nil
}
