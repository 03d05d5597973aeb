package pool

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Host is how the host is off.
type Host struct {
	Total, Available int64 // bytes of memory; 0 = not known
	// Stalled and Waited are the shares of the last ten seconds, in percent, in
	// which a process waited for memory, or for a processor; 0 where the kernel
	// does not say.
	Stalled, Waited float64
	DiskFull        bool // a disk that members are made on has no room for anything new
}

// Below these the pool makes nothing, and gives back what it has, a quarter of
// it at a time.
const (
	availableMin   = 512 << 20
	availableShare = 10 // percent of all
	stalledMax     = 10 // percent
	waitedMax      = 50 // percent; above it no kind that is not configured grows
)

// Tight reports whether the pool should get smaller.
func (h Host) Tight() bool {
	return h.Total > 0 && h.Available < h.least() || h.Stalled > stalledMax || h.DiskFull
}

// least is how much memory the pool leaves alone.
func (h Host) least() int64 {
	return min(max(h.Total*availableShare/100, availableMin), h.Total/2)
}

// Spare reports whether there is room for a member of so much memory that was
// not configured: after it the pool is still far from getting smaller.
func (h Host) Spare(memoryMB int) bool {
	return h.Waited <= waitedMax && (h.Total == 0 || h.Available-int64(memoryMB)<<20 >= 2*h.least())
}

// LookAtHost asks the kernel.
func LookAtHost() Host {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	memory, _ := os.ReadFile("/proc/pressure/memory")
	cpu, _ := os.ReadFile("/proc/pressure/cpu")
	return parseHost(meminfo, memory, cpu)
}

// parseHost reads /proc/meminfo and, of /proc/pressure, memory and cpu. What
// makes no sense is as if it were not there.
func parseHost(meminfo, memory, cpu []byte) Host {
	h := Host{Stalled: parsePressure(memory), Waited: parsePressure(cpu)}
	for line := range bytes.Lines(meminfo) {
		name, rest, _ := strings.Cut(string(line), ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			continue
		}
		switch name {
		case "MemTotal":
			h.Total = n << 10
		case "MemAvailable":
			h.Available = n << 10
		}
	}
	return h
}

// parsePressure returns the share of "some" over ten seconds.
func parsePressure(psi []byte) float64 {
	for line := range bytes.Lines(psi) {
		rest, is := strings.CutPrefix(string(line), "some avg10=")
		if !is {
			continue
		}
		text, _, _ := strings.Cut(rest, " ")
		if x, err := strconv.ParseFloat(text, 64); err == nil && x >= 0 && x <= 100 {
			return x
		}
	}
	return 0
}
