package sandbox

import "context"

// Counter is a Machine whose monitor counts what it does for the guest, seen
// from the host: what the guest says of itself is another matter.
type Counter interface {
	// Counts are sums since this process knows the machine. Unavailable: it does
	// not run, or does not answer.
	Counts(ctx context.Context) (Counts, error)
}

// Counts of one machine.
type Counts struct {
	DiskReadBytes    int64 `json:"disk_read_bytes"` // of all disks
	DiskWrittenBytes int64 `json:"disk_written_bytes"`
	DiskReads        int64 `json:"disk_reads"`
	DiskWrites       int64 `json:"disk_writes"`
	DiskThrottled    int64 `json:"disk_throttled"` // times that a disk waited for its limit
	ChannelInBytes   int64 `json:"channel_in_bytes"`
	ChannelOutBytes  int64 `json:"channel_out_bytes"`
	Denied           int64 `json:"denied"` // system calls that the monitor's filter has refused
}
