// Package doctor looks at a host and says, item by item, what skete can do on
// it and what is missing.
//
//	checks := doctor.Run(ctx, doctor.Host{Home: home, Language: templates.Language})
//	doctor.Fix(ctx, checks, os.Stderr)
//
// A check looks at the thing itself: gVisor is booted, a user namespace is
// made, a control group is made. Nothing is left behind, and Run changes
// nothing; Fix does, and only what is safe.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Status of a check.
type Status string

// From fine to not.
const (
	OK    Status = "ok"
	Warn  Status = "warn"  // works, but something is weaker or missing
	Error Status = "error" // skete does not work
)

// Check is one item.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Detail  string `json:"detail"`
	Hint    string `json:"hint,omitempty"`
	Fixable bool   `json:"fixable"` // `skete doctor --fix` can do it

	packages []string // of Debian and Ubuntu
	fix      func() error
}

// Host is what is looked at.
type Host struct {
	Home    string
	Listen  string
	Answers bool // a server answers on the socket of Home
	// Guest finds the guest program.
	Guest func() (string, error)
	// Language reports whether the template host has a language.
	Language func(ctx context.Context, language string) error
	// Probe boots a machine with the default provider and says what that is;
	// notes are what is weaker.
	Probe func(ctx context.Context) (isolation string, notes []string, err error)
	// Volume says how a disk quota is enforced here.
	Volume func(ctx context.Context) (method string, enforced bool, err error)
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(name, hint, format string, args ...any) Check {
	return Check{Name: name, Status: Warn, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func bad(name string, err error) Check {
	return Check{Name: name, Status: Error, Detail: err.Error(), Hint: errs.Hint(err)}
}

// Run makes all checks, in the order in which a reader wants to know.
func Run(ctx context.Context, h Host) []Check {
	checks := []Check{
		h.platform(), h.privileges(ctx), h.static(), h.guest(), h.gvisor(ctx),
		h.cgroups(ctx), h.kvm(), h.microvm(), h.disk(ctx), h.space(), h.memory(),
	}
	checks = append(checks, h.languages(ctx)...)
	return append(checks, h.home(), h.server(ctx), h.clock())
}

// Worst returns the worst status.
func Worst(checks []Check) Status {
	worst := OK
	for _, c := range checks {
		if c.Status == Error {
			return Error
		}
		if c.Status == Warn {
			worst = Warn
		}
	}
	return worst
}

// Fix does what the fixable checks need; out shows what it does. Packages are
// installed with apt-get, which needs root.
func Fix(ctx context.Context, checks []Check, out io.Writer) error {
	var packages []string
	var all error
	for _, c := range checks {
		if !c.Fixable || c.Status == OK {
			continue
		}
		packages = append(packages, c.packages...)
		if c.fix != nil {
			fmt.Fprintf(out, "doctor: fixing %s\n", c.Name)
			all = errors.Join(all, c.fix())
		}
	}
	if len(packages) == 0 {
		return all
	}
	slices.Sort(packages)
	return errors.Join(all, install(ctx, slices.Compact(packages), out))
}

func install(ctx context.Context, packages []string, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errs.New(errs.Denied, "installing %s needs root", strings.Join(packages, " ")).
			WithHint("sudo apt-get install %s", strings.Join(packages, " "))
	}
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	fmt.Fprintf(out, "doctor: apt-get %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return errs.Wrap(errs.Internal, err, "apt-get failed").WithHint("run it by hand; `apt-get update` may be needed before")
	}
	return nil
}

// installable makes a check fixable where apt-get is.
func (c Check) installable(packages ...string) Check {
	if _, err := exec.LookPath("apt-get"); err == nil {
		c.Fixable, c.packages = true, packages
	}
	return c
}
