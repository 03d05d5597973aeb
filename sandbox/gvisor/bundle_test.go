package gvisor

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

func testBundlePlan() bundlePlan {
	return bundlePlan{
		Boot: sandbox.Boot{
			ID: "sbx_aaaaaaaaaaaaaaaaaaaa", Workspace: "/srv/ws",
			Rootfs: template.Rootfs{Dir: "/srv/root", Binds: []template.Bind{{Source: "/usr", Target: "/usr"}}},
			Spec: sandbox.Spec{
				CPUs: 1.5, MemoryMB: 256, DiskMB: 64, PidsMax: 100,
				Env:      map[string]string{"dev.gvisor.flag.host-uds": "all"},
				Metadata: map[string]string{"dev.gvisor.flag.debug": "true"}, Name: "dev.gvisor.flag.x",
			},
		},
		BootDir: "/srv/boot", SpoolDir: "/srv/spool", GroupPath: "/skete-x/sbx_a", LimitSwap: true, Args: []string{"/g", "init"},
	}
}

func TestSpecLimits(t *testing.T) {
	s := testBundlePlan().Spec()
	mem, quota, period := int64((256+64)<<20), int64(150_000), uint64(100_000)
	want := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &mem, Swap: &mem},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:   &specs.LinuxPids{Limit: 4096 + 400},
	}
	if diff := cmp.Diff(want, s.Linux.Resources); diff != "" {
		t.Error(diff)
	}
	none := testBundlePlan()
	none.GroupPath = ""
	if l := none.Spec().Linux; l.Resources != nil || l.CgroupsPath != "" {
		t.Errorf("without control groups: %+v", l)
	}
}

// Nothing of a user becomes an annotation, and only the workspace and the
// guest's own directory are writable binds.
func TestSpecIsTight(t *testing.T) {
	s := testBundlePlan().Spec()
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
