package guest

import (
	"context"
	"runtime"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/process/task"
	"github.com/skete-dev/skete/guest/wire"
)

// Metrics reads what the machine uses.
func (c *control) Metrics(context.Context, *connect.Request[wire.MetricsRequest]) (*connect.Response[wire.MetricsResponse], error) {
	m := &wire.MetricsResponse{
		TimeUnixNs: time.Now().UnixNano(), CpuCount: uint32(runtime.NumCPU()), ProcessesMax: uint32(c.cfg.Boot.ProcessesMax),
		SpoolBytes: c.core.OutputBytes(), UptimeMs: task.UptimeMs(), CpuUsedUs: task.CPUUsedUs(), Processes: c.core.Alive(),
	}
	m.MemTotalBytes, m.MemUsedBytes = task.Memory()
	if limit := c.cfg.Boot.MemoryBytes; limit > 0 && (m.MemTotalBytes == 0 || limit < m.MemTotalBytes) {
		m.MemTotalBytes = limit
	}
	boot, _ := c.who.now()
	var fs unix.Statfs_t
	if unix.Statfs(boot.Workdir, &fs) == nil {
		m.DiskTotalBytes = int64(fs.Blocks) * fs.Bsize
		m.DiskUsedBytes = m.DiskTotalBytes - int64(fs.Bfree)*fs.Bsize
	}
	return connect.NewResponse(m), nil
}
