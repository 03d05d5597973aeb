package microvm

import (
	"bufio"
	"strings"
	"testing"
)

func TestKHz_fromCPUInfo(t *testing.T) {
	const virtual = "processor\t: 0\ncpu MHz\t\t: 2596.124\nflags\t\t: fpu tsc constant_tsc hypervisor\n\nprocessor\t: 1\ncpu MHz\t\t: 1.0\n"
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"a virtual machine":        {virtual, 2596124},
		"bare metal":               {strings.Replace(virtual, " hypervisor", "", 1), 0},
		"a rate that is scaled":    {strings.Replace(virtual, "hypervisor", "hypervisor aperfmperf", 1), 0},
		"a counter that is scaled": {strings.Replace(virtual, "constant_tsc ", "", 1), 0},
		"nonsense":                 {strings.Replace(virtual, "2596.124", "fast", 1), 0},
		"nothing":                  {"", 0},
	} {
		if got := khzOfCPUInfo(bufio.NewScanner(strings.NewReader(c.text))); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestKHz_isMeasuredAsItIsTold(t *testing.T) {
	told := TSCKHz()
	if told == 0 {
		t.Skip("this machine has no time stamp counter")
	}
	best := 1.0
	for range 5 { // a shared machine may stop us between the two clocks
		best = min(best, max(float64(measureTSC(tscMeasureFor))/float64(told), float64(told)/float64(measureTSC(tscMeasureFor)))-1)
	}
	if best > 0.01 {
		t.Errorf("the measured rate is off by %.1f %%", best*100)
	}
}
