package qemu

import (
	"context"
	"os/exec"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// The oldest QEMU whose options these are.
const versionMin = 702 // 7.2

// program is a QEMU that machines can run in.
type program struct {
	Path    string
	Version string // as it names itself, distribution included
}

var versionPattern = pattern.Lazy(`^QEMU emulator version (\d{1,4})\.(\d{1,4})\.\d{1,4}[^\n]*`)

// findProgram looks for a QEMU that has what we need; path "" = in PATH.
// Unsupported: there is none; the hint says what to install.
func findProgram(ctx context.Context, path string) (program, error) {
	if path == "" {
		path = "qemu-system-x86_64"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return program{}, errs.Wrap(errs.Unsupported, err, "QEMU is not installed").
			WithHint("install qemu-system-x86 (Debian, Ubuntu) or qemu-system-x86-core (Fedora), version 7.2 or later")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return program{}, errs.Wrap(errs.Unsupported, err, "QEMU does not start")
	}
	version, number, err := parseVersion(string(out))
	if err != nil {
		return program{}, err
	}
	if number < versionMin {
		return program{}, errs.New(errs.Unsupported, "QEMU %s is too old", version).WithHint("QEMU 7.2 or later is needed")
	}
	out, err = exec.CommandContext(ctx, path, "-M", "help").Output()
	if err != nil || !strings.Contains(string(out), "microvm") {
		return program{}, errs.Wrap(errs.Unsupported, err, "this QEMU has no machine type microvm")
	}
	return program{Path: path, Version: version}, nil
}

// parseVersion reads what --version prints.
func parseVersion(out string) (version string, number int, err error) {
	m := versionPattern().FindStringSubmatch(out)
	if m == nil {
		return "", 0, errs.New(errs.Unsupported, "%.60q is no version of QEMU", out)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return strings.TrimPrefix(m[0], "QEMU emulator version "), major*100 + minor, nil
}
