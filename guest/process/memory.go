package process

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// procBytesMax bounds a read from /proc.
const procBytesMax = 1 << 20

func readProc(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, procBytesMax))
	return string(data)
}

// Memory returns total and used bytes as the machine's kernel counts them;
// used leaves out what it can drop (caches).
func Memory() (total, used int64) {
	var available int64
	for line := range strings.Lines(readProc("/proc/meminfo")) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	return total, max(total-available, 0)
}

// CPUUsedUs is the CPU time that the machine has used since its boot.
func CPUUsedUs() int64 {
	f := strings.Fields(readProc("/proc/stat"))
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	var ticks int64
	for i, v := range f[1:9] {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && i != 3 && i != 4 { // idle, iowait
			ticks += n
		}
	}
	return ticks * 10_000 // USER_HZ is 100
}

// UptimeMs is the time since the machine's boot.
func UptimeMs() int64 {
	f := strings.Fields(readProc("/proc/uptime"))
	if len(f) == 0 {
		return 0
	}
	s, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0
	}
	return int64(s * 1000)
}

func (c *Core) watchMemory() {}
