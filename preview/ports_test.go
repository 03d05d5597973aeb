package preview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePorts(t *testing.T) {
	for s, want := range map[string]Ports{
		"": nil, "none": {{}}, "5173": {{5173, 5173}}, "1-65535": {{1, 65535}}, "5173,8000-8010": {{5173, 5173}, {8000, 8010}},
	} {
		got, err := ParsePorts(s)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", s, err, d)
		}
	}
	for _, s := range []string{" ", ",", "5173,", "0", "65536", "-", "1-", "-1", "2-1", "1-2-3", "05173", "+1", "a", "none,1", "1, 2", strings.Repeat("1,", 32) + "1", strings.Repeat("9", 1<<16)} {
		if got, err := ParsePorts(s); err == nil {
			t.Errorf("%.40q was taken: %v", s, got)
		}
	}
	some, _ := ParsePorts("5173,8000-8010")
	for port, want := range map[uint16]bool{5173: true, 8000: true, 8010: true, 8011: false, 1: false} {
		if some.Allow(port) != want {
			t.Errorf("port %d: %v", port, !want)
		}
	}
	if none, _ := ParsePorts("none"); none.Allow(1) || none.Allow(65535) {
		t.Error("none allows some")
	}
}

func FuzzParsePorts(f *testing.F) {
	f.Add("5173,8000-8010")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParsePorts(s)
		if err == nil && s != "" && s != "none" && (len(list) != strings.Count(s, ",")+1 || list.Allow(0)) {
			t.Errorf("%q became %v", s, list)
		}
	})
}
