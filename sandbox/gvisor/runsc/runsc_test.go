//go:build !packed

package runsc

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestCommandLine(t *testing.T) {
	for in, want := range map[string]string{
		"/opt/skete __runsc --root=/r run x":        "runsc --root=/r run x",
		"/opt/runsctest __runsc state x":            "runsc state x",
		"runsc-sandbox --root=/r boot x":            "runsc-sandbox --root=/r boot x",
		"runsc-gofer --root=/r gofer x":             "runsc-gofer --root=/r gofer x",
		"runsc-exec --root=/r exec x":               "runsc-exec --root=/r exec x",
		"runsc --root=/r state x":                   "runsc --root=/r state x",
		"/proc/self/exe umount --sync-fd=3 /proc":   "/proc/self/exe umount --sync-fd=3 /proc",
		"/proc/self/exe --root=/r --rootless run x": "/proc/self/exe --root=/r --rootless run x",
		"/opt/skete serve":                          "",
		"/opt/skete vm exec __runsc":                "",
		"skete":                                     "",
		"/opt/runsctest create":                     "",
		"/proc/self/exefoo vm":                      "",
	} {
		got, ok := commandLine(strings.Fields(in))
		if ok != (want != "") || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %t; want %q", in, got, ok, want)
		}
	}
	if _, ok := commandLine(nil); ok {
		t.Error("no arguments at all were taken for runsc")
	}
}

func TestTheSentryIsToldWhatItsGroupAllows(t *testing.T) {
	const line = "runsc-sandbox --ignore-cgroups=true boot --bundle=/none --total-memory 8589934592 sbx_a"
	ptr := func(n int64) *int64 { return &n }
	period := uint64(100_000)
	for name, c := range map[string]struct {
		in   specs.LinuxResources
		cpus int
		want string
	}{
		"nothing":              {specs.LinuxResources{}, 8, ""},
		"memory":               {specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(1 << 30)}}, 8, " --total-memory=1073741824"},
		"more than there is":   {specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(1 << 40)}}, 8, ""},
		"a part of a cpu":      {specs.LinuxResources{CPU: &specs.LinuxCPU{Period: &period, Quota: ptr(50_000)}}, 8, " --cpu-num=2 --cpu-quota=50000 --cpu-period=100000"},
		"two and a half":       {specs.LinuxResources{CPU: &specs.LinuxCPU{Period: &period, Quota: ptr(250_000)}}, 8, " --cpu-num=3 --cpu-quota=250000 --cpu-period=100000"},
		"more than the host's": {specs.LinuxResources{CPU: &specs.LinuxCPU{Period: &period, Quota: ptr(400_000)}}, 2, " --cpu-num=2 --cpu-quota=400000 --cpu-period=100000"},
	} {
		want := strings.Replace(line, " sbx_a", c.want+" sbx_a", 1)
		if got := strings.Join(withLimits(strings.Fields(line), &c.in, c.cpus), " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	for _, args := range []string{line, "runsc-gofer --ignore-cgroups=true gofer sbx_a", "runsc --root=/r run sbx_a"} {
		if got := strings.Join(tellLimits(strings.Fields(args)), " "); got != args {
			t.Errorf("%s became %s", args, got)
		}
	}
}

// What skete-runsc links is inside the kernel process of every machine, and
// its init functions run three times for each.
func TestOnlyGVisorIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/skete-dev/skete/cmd/skete-runsc").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	heavy := []string{"net/http", "crypto/tls", "encoding/xml", "html/template", "log/slog"}
	ours := []string{"github.com/skete-dev/skete/cmd/skete-runsc", "github.com/skete-dev/skete/sandbox/gvisor/runsc"}
	for dep := range strings.FieldsSeq(string(out)) {
		if slices.Contains(heavy, dep) {
			t.Errorf("skete-runsc links %s", dep)
		}
		if strings.HasPrefix(dep, "github.com/skete-dev/") && !slices.Contains(ours, dep) {
			t.Errorf("skete-runsc links %s; every package of ours there is one more thing inside each machine's kernel", dep)
		}
	}
}

// The skete that carries skete-runsc inside has no second gVisor in it.
func TestThePackedSketeLinksNoGVisor(t *testing.T) {
	out, err := exec.Command("go", "list", "-e", "-tags", "packed", "-deps", "github.com/skete-dev/skete/cmd/skete").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if deps := strings.Fields(string(out)); len(deps) < 100 || slices.ContainsFunc(deps, func(d string) bool { return strings.HasPrefix(d, "gvisor.dev/") }) {
		t.Errorf("%d packages, gVisor among them", len(deps))
	}
}
