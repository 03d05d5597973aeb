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
