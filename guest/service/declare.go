package service

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/pattern"
)

// This file checks declarations of services and makes commands of them.
//
// Everything is pure and safe for concurrent use.

// Bounds of declarations.
const (
	nameMax          = 40
	commandBytesMax  = 96 << 10 // as a command's
	argvMax          = 1024
	envMax           = 256
	portsMax         = 32
	patternBytesMax  = 1000
	memoryMin        = 4 << 20 // a shell alone needs 2 MiB
	cpuWeightMax     = 10_000
	probePathMax     = 1000
	readyTimeout     = time.Minute
	readyTimeoutMax  = time.Hour
	stopTimeout      = 5 * time.Second
	stopTimeoutMax   = time.Minute
	logBytesDefault  = 4 << 20
	logBytesMin      = 64 << 10
	logBytesMost     = 64 << 20
	declarationBytes = 128 << 10
)

// nameForm is the form of a service's name.
var nameForm = pattern.Lazy(`^[a-z](?:[a-z0-9-]*[a-z0-9])?$`)

// checkName says whether a service may be called so.
func checkName(name string) error {
	if len(name) > nameMax || !nameForm().MatchString(name) {
		return errs.New(errs.Invalid, "a service's name is 1 to %d of a-z 0-9 -, from a letter to a letter or digit", nameMax)
	}
	return nil
}

// complete checks a declaration and fills in what is left out.
func complete(d *wire.ServiceDeclaration) (*wire.ServiceDeclaration, error) {
	if d == nil {
		return nil, errs.New(errs.Invalid, "there is no declaration")
	}
	d = proto.CloneOf(d)
	if err := checkName(d.Name); err != nil {
		return nil, err
	}
	if proto.Size(d) > declarationBytes {
		return nil, errs.New(errs.Invalid, "service %s: the declaration is larger than %d bytes", d.Name, declarationBytes)
	}
	for _, check := range []func(*wire.ServiceDeclaration) string{checkCommand, checkReadiness, checkBounds} {
		if why := check(d); why != "" {
			return nil, errs.New(errs.Invalid, "service %s: %s", d.Name, why)
		}
	}
	if d.Restart == wire.RestartPolicy_RESTART_POLICY_UNSPECIFIED {
		d.Restart = wire.RestartPolicy_RESTART_POLICY_ALWAYS
	}
	if d.Source == wire.ServiceSource_SERVICE_SOURCE_UNSPECIFIED {
		d.Source = wire.ServiceSource_SERVICE_SOURCE_CALL
	}
	return d, nil
}

func checkCommand(d *wire.ServiceDeclaration) string {
	switch {
	case (len(d.Argv) == 0) == (len(d.Command) == 0):
		return "give either argv or a command"
	case len(d.Argv) > argvMax || len(d.Command) > commandBytesMax:
		return "the command is too long"
	case strings.TrimSpace(string(d.Command)) == "" && len(d.Argv) == 0:
		return "the command is empty"
	case len(d.Argv) > 0 && len(d.Argv[0]) == 0:
		return "argv[0] is empty"
	case strings.IndexByte(string(d.Command), 0) >= 0:
		return "the command has a NUL in it"
	case len(d.Env) > envMax:
		return "the environment has too many variables"
	}
	for _, a := range d.Argv {
		if strings.IndexByte(string(a), 0) >= 0 {
			return "argv has a NUL in it"
		}
	}
	return ""
}

func checkReadiness(d *wire.ServiceDeclaration) string {
	r := d.Readiness
	if r == nil {
		return ""
	}
	if r.TimeoutMs < 0 || r.TimeoutMs > readyTimeoutMax.Milliseconds() {
		return "readiness: the timeout is not in 0..1 h"
	}
	switch p := r.Probe.(type) {
	case *wire.Readiness_Http:
		if why := checkPort(p.Http.GetPort()); why != "" {
			return "readiness: " + why
		}
		if f := p.Http.GetPath(); len(f) > probePathMax || (f != "" && !strings.HasPrefix(f, "/")) || strings.ContainsFunc(f, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return "readiness: the path must begin with / and hold no blanks"
		}
	case *wire.Readiness_Tcp:
		if why := checkPort(p.Tcp.GetPort()); why != "" {
			return "readiness: " + why
		}
	case *wire.Readiness_Log:
		if len(p.Log.GetPattern()) > patternBytesMax || p.Log.GetPattern() == "" {
			return "readiness: the pattern is empty or too long"
		}
		if _, err := regexp.Compile(p.Log.GetPattern()); err != nil {
			return "readiness: the pattern is no regular expression (RE2)"
		}
	}
	return ""
}

func checkPort(p uint32) string {
	if p == 0 || p > wire.TCPPortMax {
		return "a port is in 1..65535"
	}
	return ""
}

func checkBounds(d *wire.ServiceDeclaration) string {
	if len(d.Ports) > portsMax {
		return "too many ports"
	}
	for _, p := range d.Ports {
		if why := checkPort(p); why != "" {
			return why
		}
	}
	if l := limitsOf(d); l.Memory != 0 && l.Memory < memoryMin || l.CPUWeight > cpuWeightMax {
		return "its limits: memory has at least 4 MiB, cpu_weight is in 1..10000"
	}
	switch {
	case d.StopTimeoutMs < 0 || d.StopTimeoutMs > stopTimeoutMax.Milliseconds():
		return "the time between TERM and KILL is not in 0..60 s"
	case d.LogBytesMax != 0 && (d.LogBytesMax < logBytesMin || d.LogBytesMax > logBytesMost):
		return "log_bytes_max is not in 64 KiB..64 MiB"
	case wire.RestartPolicy_name[int32(d.Restart)] == "" || wire.ServiceSource_name[int32(d.Source)] == "":
		return "the restart policy or the source is not known"
	case strings.IndexByte(string(d.Workdir), 0) >= 0:
		return "the working directory is no path"
	}
	return ""
}

// mergedCommand runs argv with both streams in one, so that a log is in the
// order in which it was written. The shell becomes the program.
const mergedCommand = `exec "$0" "$@" 2>&1`

// gated waits until a file is there. It is there within a moment, and no
// program is sure to be there that sleeps.
const gated = `until [ -e '%s' ]; do :; done; `

// shellCommand runs a text in bash, or sh where there is none.
const shellCommand = `s=$(command -v bash) || s=sh; exec "$s" -c "$0" 2>&1`

// limitsOf are those of all its processes together. The others are of each one.
func limitsOf(d *wire.ServiceDeclaration) (l groupLimits) {
	for _, r := range d.Rlimits {
		if whole := wholeNumber(&l, r.Name); whole != nil {
			*whole = r.Soft
		}
	}
	return l
}

func wholeNumber(l *groupLimits, name string) *uint64 {
	switch name {
	case "memory":
		return &l.Memory
	case "pids":
		return &l.Tasks
	case "cpu_weight":
		return &l.CPUWeight
	}
	return nil
}

// startRequest is what starts a run of the service, once there is a file called gate
// if it is not "".
func startRequest(d *wire.ServiceDeclaration, key, gate string, env map[string]string) *wire.StartRequest {
	r := &wire.StartRequest{
		Key: key, Cwd: d.Workdir, User: d.User, SpoolBytesMax: d.LogBytesMax, Background: true, Env: map[string][]byte{},
	}
	for _, l := range d.Rlimits {
		if wholeNumber(&groupLimits{}, l.Name) == nil {
			r.Rlimits = append(r.Rlimits, l)
		}
	}
	if r.SpoolBytesMax == 0 {
		r.SpoolBytesMax = logBytesDefault
	}
	wait := ""
	if gate != "" {
		wait = fmt.Sprintf(gated, gate)
	}
	if len(d.Argv) > 0 {
		r.Argv = append([][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(wait + mergedCommand)}, d.Argv...)
	} else {
		r.Argv = [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(wait + shellCommand), d.Command}
	}
	for k, v := range env {
		r.Env[k] = []byte(v)
	}
	maps.Copy(r.Env, d.Env)
	return r
}

// dirOf is where the service works, as an absolute path.
func dirOf(d *wire.ServiceDeclaration, workdir string) string {
	if len(d.Workdir) == 0 {
		return path.Clean(workdir)
	}
	if path.IsAbs(string(d.Workdir)) {
		return path.Clean(string(d.Workdir))
	}
	return path.Join(workdir, string(d.Workdir))
}

// stopGrace is the time between TERM and KILL.
func stopGrace(d *wire.ServiceDeclaration) time.Duration {
	if d.StopTimeoutMs == 0 {
		return stopTimeout
	}
	return time.Duration(d.StopTimeoutMs) * time.Millisecond
}

// readyWithin is how long a run may take to be ready.
func readyWithin(d *wire.ServiceDeclaration) time.Duration {
	if ms := d.GetReadiness().GetTimeoutMs(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return readyTimeout
}
