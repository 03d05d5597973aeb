package task

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory returns total and used bytes as the machine's kernel counts them;
// used leaves out what it can drop (caches).
func Memory() (total, used int64) {
	var available int64
	for line := range strings.Lines(Read("/proc/meminfo")) {
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
	f := strings.Fields(Read("/proc/stat"))
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
	f := strings.Fields(Read("/proc/uptime"))
	if len(f) == 0 {
		return 0
	}
	s, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0
	}
	return int64(s * 1000)
}

// OnGVisor reports whether this is gVisor: its kernel counts the sandbox alone, also where it shows the
// host's total because no cgroup limits it.
func OnGVisor() bool {
	var name unix.Utsname
	return unix.Uname(&name) == nil && strings.Contains(unix.ByteSliceToString(name.Release[:]), "gvisor")
}

// Private is what a process has resident and does not share.
func Private(pid int) int64 {
	f := strings.Fields(Read(Path(pid, "statm")))
	if len(f) < 3 {
		return 0
	}
	resident, err1 := strconv.ParseInt(f[1], 10, 64)
	shared, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return max(resident-shared, 0) * int64(os.Getpagesize())
}
