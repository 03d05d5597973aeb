//go:build !packed

package runsc

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// cpusMin is what gVisor shows at least: programs that see one processor leave
// out locks that they need when a limit of one is spread over several.
const cpusMin = 2

// tellLimits adds to the command line of a sentry what its control group
// allows, so that programs inside see the machine that they have. gVisor finds
// that out by itself only when it makes the group (see gvisor.Provider.ownGroups).
func tellLimits(args []string) []string {
	if !slices.Contains(args, "--ignore-cgroups=true") || !slices.Contains(args, "boot") {
		return args
	}
	data, err := os.ReadFile(filepath.Join(valueOf(args, "--bundle="), SpecName))
	if err != nil { // started once more, in its empty root: told already
		return args
	}
	var spec specs.Spec
	if json.Unmarshal(data, &spec) != nil || spec.Linux == nil || spec.Linux.Resources == nil {
		return args
	}
	return withLimits(args, spec.Linux.Resources, runtime.NumCPU())
}

// withLimits is pure. The last argument is the machine's ID; of a flag that is
// given twice the later one counts.
func withLimits(args []string, r *specs.LinuxResources, cpus int) []string {
	var flags []string
	add := func(name string, n int64) { flags = append(flags, "--"+name+"="+strconv.FormatInt(n, 10)) }
	if c := r.CPU; c != nil && c.Quota != nil && c.Period != nil && *c.Quota > 0 && *c.Period > 0 {
		add("cpu-num", int64(min(cpus, max(cpusMin, int(math.Ceil(float64(*c.Quota)/float64(*c.Period)))))))
		add("cpu-quota", *c.Quota)
		add("cpu-period", int64(*c.Period))
	}
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit > 0 && *m.Limit < hostMemory(args) {
		add("total-memory", *m.Limit)
	}
	return slices.Insert(slices.Clone(args), len(args)-1, flags...)
}

// hostMemory is what gVisor has read of the host.
func hostMemory(args []string) int64 {
	i := slices.Index(args, "--total-memory")
	if i < 0 || i+1 >= len(args) {
		return 0
	}
	n, _ := strconv.ParseInt(args[i+1], 10, 64)
	return n
}

func valueOf(args []string, flag string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, flag); ok {
			return v
		}
	}
	return ""
}
