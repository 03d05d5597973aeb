package process

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
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

// Watching memory: near the machine's limit the largest command ends, so that
// the kernel does not end the machine.
const (
	memoryEvery   = 50 * time.Millisecond
	memoryPercent = 92
	memoryCalm    = 500 * time.Millisecond // after a kill, until its memory is back
	memoryWorth   = 25                     // a command with less than this part of the limit is spared: its end would not help
)

// watchMemory looks at the machine's memory while commands run, the oftener
// the less is free: a command takes tens of MB in the time of a slow look.
func (c *Core) watchMemory() {
	limit := c.cfg.Boot.MemoryBytes
	if limit <= 0 {
		return
	}
	for c.waitRunning() {
		used := c.memoryUsed(limit)
		wait := memoryEvery
		switch {
		case used > limit/100*memoryPercent && c.killLargest(limit):
			wait = memoryCalm
		case used > limit/100*75:
			wait = memoryEvery / 10
		case used > limit/2:
			wait = memoryEvery / 3
		}
		select {
		case <-c.quit:
			return
		case <-time.After(wait):
		}
	}
}

// memoryUsed is what counts against the limit: all of the machine's memory,
// or, where the kernel is not the machine's own (the process provider), what
// the commands have resident for themselves.
func (c *Core) memoryUsed(limit int64) int64 {
	total, used := Memory()
	if total <= limit+limit/8 || c.ownKernel() {
		return used
	}
	var sum int64
	for _, n := range c.resident() {
		sum += n
	}
	return sum
}

// onGVisor: its kernel counts the sandbox alone, also where it shows the
// host's total because no cgroup limits it.
func onGVisor() bool {
	var name unix.Utsname
	return unix.Uname(&name) == nil && strings.Contains(unix.ByteSliceToString(name.Release[:]), "gvisor")
}

// private is what a process has resident and does not share.
func private(pid int) int64 {
	f := strings.Fields(readProc(procPath(pid, "statm")))
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

// resident is the memory of each running command's session, by the leader's pid.
func (c *Core) resident() map[int]int64 {
	bytes := map[int]int64{}
	for _, p := range c.list(0) {
		if p.isRunning() {
			bytes[p.entry.PID] = 0
		}
	}
	for _, t := range tasksNow() {
		if n, ok := bytes[t.session]; ok {
			bytes[t.session] = n + private(t.pid)
		}
	}
	return bytes
}

// waitRunning blocks while no command runs; false: we close.
func (c *Core) waitRunning() bool {
	for !c.anyRunning() {
		select {
		case <-c.running:
		case <-c.quit:
			return false
		}
	}
	return true
}

func (c *Core) anyRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID) > len(c.ended)
}

// killLargest ends the command whose session has the most memory resident.
// Memory may be full of files (a tmpfs) instead: then nobody is to blame.
func (c *Core) killLargest(limit int64) bool {
	bytes := c.resident()
	var largest *proc
	for _, p := range c.list(0) {
		if p.isRunning() && bytes[p.entry.PID] > limit/memoryWorth && (largest == nil || bytes[p.entry.PID] > bytes[largest.entry.PID]) {
			largest = p
		}
	}
	if largest == nil {
		return false
	}
	c.logf("memory is short: ending %q", largest.key)
	c.finish(largest, pair.CauseMemory)
	return true
}
