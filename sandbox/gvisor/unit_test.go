package gvisor

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

func TestRunscArgs(t *testing.T) {
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
		got, ok := runscArgs(strings.Fields(in))
		if ok != (want != "") || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %t; want %q", in, got, ok, want)
		}
	}
	if _, ok := runscArgs(nil); ok {
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

func TestNewRefuses(t *testing.T) {
	_, err := New(Config{Dir: t.TempDir(), Exe: "/bin/sh"})
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "CGO_ENABLED=0") {
		t.Errorf("a dynamic program: %v (%s)", err, errs.Hint(err))
	}
	_, err = New(Config{Dir: t.TempDir(), Exe: "/etc/passwd"})
	if !errs.Is(err, errs.Unsupported) {
		t.Errorf("no program at all: %v", err)
	}
	_, err = New(Config{Dir: "/tmp/a,size=1", Exe: "/bin/sh"})
	if !errs.Is(err, errs.Invalid) {
		t.Errorf("a path that the flags cannot take: %v", err)
	}
}

func testPlan() plan {
	return plan{
		boot: sandbox.Boot{
			ID: "sbx_aaaaaaaaaaaaaaaaaaaa", Workspace: "/srv/ws",
			Rootfs: template.Rootfs{Dir: "/srv/root", Binds: []template.Bind{{Source: "/usr", Target: "/usr"}}},
			Spec: sandbox.Spec{
				CPUs: 1.5, MemoryMB: 256, DiskMB: 64, PidsMax: 100,
				Env:      map[string]string{"dev.gvisor.flag.host-uds": "all"},
				Metadata: map[string]string{"dev.gvisor.flag.debug": "true"}, Name: "dev.gvisor.flag.x",
			},
		},
		bootDir: "/srv/boot", spoolDir: "/srv/spool", groupPath: "/skete-x/sbx_a", limitSwap: true, args: []string{"/g", "init"},
	}
}

func TestSpecLimits(t *testing.T) {
	s := testPlan().spec()
	mem, quota, period := int64((256+64)<<20), int64(150_000), uint64(100_000)
	want := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &mem, Swap: &mem},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:   &specs.LinuxPids{Limit: 4096 + 400},
	}
	if diff := cmp.Diff(want, s.Linux.Resources); diff != "" {
		t.Error(diff)
	}
	none := testPlan()
	none.groupPath = ""
	if l := none.spec().Linux; l.Resources != nil || l.CgroupsPath != "" {
		t.Errorf("without control groups: %+v", l)
	}
}

// Nothing of a user becomes an annotation, and only the workspace and the
// guest's own directory are writable binds.
func TestSpecIsTight(t *testing.T) {
	s := testPlan().spec()
	for k := range s.Annotations {
		if !strings.HasPrefix(k, "dev.gvisor.spec.mount.spool.") {
			t.Errorf("annotation %s", k)
		}
	}
	var writable []string
	for _, m := range s.Mounts {
		opts := strings.Join(m.Options, ",") + ","
		if m.Type == "bind" && !strings.Contains(opts, "ro,") {
			writable = append(writable, m.Destination)
		}
		if m.Type == "bind" && !(strings.Contains(opts, "nosuid,") && strings.Contains(opts, "nodev,")) {
			t.Errorf("%s: %s", m.Destination, opts)
		}
		if m.Type == "tmpfs" && !strings.Contains(opts, "size=") {
			t.Errorf("%s has no bound", m.Destination)
		}
	}
	if diff := cmp.Diff([]string{"/workspace", "/var/lib/skete-guest"}, writable); diff != "" {
		t.Error(diff)
	}
	if !s.Process.NoNewPrivileges || s.Root.Readonly || *s.Process.OOMScoreAdj <= 0 || len(s.Process.Capabilities.Inheritable)+len(s.Process.Capabilities.Ambient) > 0 {
		t.Errorf("%+v", s.Process)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"dev.gvisor.flag", "CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_SYS_MODULE", "CAP_MKNOD"} {
		if strings.Contains(string(data), bad) {
			t.Errorf("%s is in the specification", bad)
		}
	}
}

func TestMountsBelow(t *testing.T) {
	const table = "1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / /a/b rw - tmpfs t rw\n3 2 0:3 / /a/b/c\\040d rw - tmpfs t rw\n4 1 0:4 / /a/bc rw - tmpfs t rw\nshort\n"
	if diff := cmp.Diff([]string{"/a/b", "/a/b/c\\040d"}, mountsBelow(table, "/a/b")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/a/b/c\\040d"}, mountsBelow(table, "/a/b/c d")); diff != "" {
		t.Error(diff)
	}
}
