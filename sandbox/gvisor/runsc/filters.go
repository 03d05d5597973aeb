//go:build !packed

package runsc

import (
	"runtime/debug"
	_ "unsafe" // for linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentryfilter "gvisor.dev/gvisor/runsc/boot/filter"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// gVisor's seccomp filters are programs that its own compiler makes of rules,
// in each sentry and each gofer anew: 15 to 40 ms of a machine's start. Its
// release builds carry them ready made, by files that its build system writes;
// the Go module has the place for them but not the files. filters_made.go is
// ours: made by the same function of gVisor (config.PrecompiledPrograms), of
// the same version, with one mistake mended (see nameOwnPID in the test). What
// is not in it, gVisor compiles as before.
//
// TestFilters holds each against what gVisor would compile now.

//go:generate go test -run ^TestFilters$ -timeout 30m -update .

const gvisorModule = "gvisor.dev/gvisor"

// The two tables, which only the files that we lack would fill. Should gVisor
// rename them, these are two variables of ours that gVisor does not read.
var (
	//go:linkname sentryTable gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
	sentryTable map[string]precompiledseccomp.Program
	//go:linkname goferTable gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
	goferTable map[string]precompiledseccomp.Program
)

// useFilters puts the programs into gVisor's tables, if they were made for the
// gVisor that is linked.
func useFilters() {
	if linkedGVisor() != filtersVersion {
		return
	}
	sentryfilter.GetPrecompiled("") // makes the table, once for all
	goferfilter.GetPrecompiled("")
	addFilters(sentryTable, sentryFilters())
	addFilters(goferTable, goferFilters())
}

func addFilters(table map[string]precompiledseccomp.Program, made []precompiledseccomp.Program) {
	if table == nil { // renamed, see above
		return
	}
	for _, f := range made {
		table[f.Name] = f
	}
}

// linkedGVisor is the version in this program, "" = not known, or replaced.
func linkedGVisor() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == gvisorModule && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}
