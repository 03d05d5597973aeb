package pool

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Memory is how the host is off.
type Memory struct {
	Total, Available int64 // bytes; 0 = not known
	// Stalled is the share of the last ten seconds, in percent, in which
	// somebody waited for memory; 0 where the kernel does not say.
	Stalled float64
}

// Below these the pool makes nothing, and gives back what it has, a quarter of
// it at a time.
const (
	availableMin   = 512 << 20
	availableShare = 10 // percent of all
	stalledMax     = 10 // percent
)

// Tight reports whether the pool should get smaller.
func (m Memory) Tight() bool {
	least := min(max(m.Total*availableShare/100, availableMin), m.Total/2)
	return m.Total > 0 && m.Available < least || m.Stalled > stalledMax
}

// HostMemory reads it from the kernel.
func HostMemory() Memory {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	psi, _ := os.ReadFile("/proc/pressure/memory")
	return parseMemory(meminfo, psi)
}

// parseMemory reads /proc/meminfo and /proc/pressure/memory. What makes no
// sense is as if it were not there.
func parseMemory(meminfo, psi []byte) Memory {
	var m Memory
	for line := range bytes.Lines(meminfo) {
		name, rest, _ := strings.Cut(string(line), ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			continue
		}
		switch name {
		case "MemTotal":
			m.Total = n << 10
		case "MemAvailable":
			m.Available = n << 10
		}
	}
	for line := range bytes.Lines(psi) {
		rest, is := strings.CutPrefix(string(line), "some avg10=")
		if !is {
			continue
		}
		text, _, _ := strings.Cut(rest, " ")
		if x, err := strconv.ParseFloat(text, 64); err == nil && x >= 0 && x <= 100 {
			m.Stalled = x
		}
	}
	return m
}
