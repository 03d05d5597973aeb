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

// Fixer says how Fix may act.
type Fixer struct {
	// Out shows what is done.
	Out io.Writer
	// Agree is asked before packages are installed; nil = yes.
	Agree func(question string) bool

	root bool
	run  func(ctx context.Context, out io.Writer, name string, args ...string) error
}

// Fix does what is safe for the fixable checks of a report that are not fine:
// it installs packages of Debian or Ubuntu after saying which, loads modules
// of the kernel, and makes the guest kernel available. Who is not root is told
// the commands instead. Settings of the kernel and of its security are never
// changed: they are printed.
//
// What is information alone is mended too: it was asked for.
func Fix(ctx context.Context, r Report, f Fixer) error {
	f.root = os.Geteuid() == 0
	f.run = runProgram
	return f.fix(ctx, r)
}

func (f Fixer) fix(ctx context.Context, r Report) error {
	var packages, modules []string
	var rest []Check
	var all error
	for _, c := range r.Checks {
		switch {
		case c.Status == OK:
		case !c.Fixable:
			rest = append(rest, c)
		default:
			packages = append(packages, c.packages...)
			modules = append(modules, c.modules...)
		}
	}
	all = errors.Join(f.install(ctx, unique(packages)), f.load(ctx, unique(modules)))
	for _, c := range r.Checks {
		if c.Status != OK && c.fix != nil {
			fmt.Fprintf(f.Out, "doctor: fixing %s\n", c.Name)
			all = errors.Join(all, c.fix(ctx))
		}
	}
	f.tell(rest)
	return all
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// tell prints what only the operator may do.
func (f Fixer) tell(checks []Check) {
	for _, c := range checks {
		if c.Hint != "" && c.Status.rank() >= Warn.rank() {
			fmt.Fprintf(f.Out, "doctor: not changed: %s/%s: %s\n", c.Group, c.Name, c.Hint)
		}
	}
}

func (f Fixer) install(ctx context.Context, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	list := strings.Join(packages, " ")
	if !f.root {
		fmt.Fprintf(f.Out, "doctor: needs root: sudo apt-get install --no-install-recommends %s\n", list)
		return nil
	}
	fmt.Fprintf(f.Out, "doctor: these packages will be installed: %s\n", list)
	if f.Agree != nil && !f.Agree("install them?") {
		fmt.Fprintln(f.Out, "doctor: not installed")
		return nil
	}
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	fmt.Fprintf(f.Out, "doctor: apt-get %s\n", strings.Join(args, " "))
	err := f.run(ctx, f.Out, "apt-get", args...)
	if err != nil && ctx.Err() == nil {
		// A fresh machine has no lists yet, or old ones.
		fmt.Fprintln(f.Out, "doctor: apt-get update")
		if uerr := f.run(ctx, f.Out, "apt-get", "update"); uerr == nil {
			err = f.run(ctx, f.Out, "apt-get", args...)
		}
	}
	if err != nil {
		return errs.Wrap(errs.Internal, err, "apt-get failed").WithHint("run it by hand: apt-get install %s", list)
	}
	return nil
}

// load loads modules. One that is not there for this kernel is no failure of
// ours: the check goes on saying so.
func (f Fixer) load(ctx context.Context, modules []string) error {
	for _, m := range modules {
		if !f.root {
			fmt.Fprintf(f.Out, "doctor: needs root: sudo modprobe %s\n", m)
			continue
		}
		fmt.Fprintf(f.Out, "doctor: modprobe %s\n", m)
		if err := f.run(ctx, f.Out, "modprobe", m); err != nil {
			fmt.Fprintf(f.Out, "doctor: this kernel does not load %s: %v\n", m, err)
		}
	}
	return ctx.Err()
}

func runProgram(ctx context.Context, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// installable makes a check fixable where apt-get is.
func (c Check) installable(h Host, packages ...string) Check {
	if h.program("apt-get") != "" {
		c.Fixable, c.packages = true, packages
	}
	return c
}

// loadable makes a check fixable where modules can be loaded.
func (c Check) loadable(modules ...string) Check {
	c.Fixable, c.modules = true, modules
	return c
}
