package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/cmd/skete/internal/doctor"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox/firecracker"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/microvm"
	"github.com/skete-dev/skete/template"
)

func (a program) doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this machine can do, and what is missing",
		Long: `Look at this machine and say, item by item, what skete can do on it: ok, info,
warn (works, but weaker) or error. Every provider really boots a machine once.
The status is 1 if something that is needed does not work: a general item, the
provider named by --provider, or, without one, all providers.

Nothing is changed without --fix, which installs missing packages of Debian or
Ubuntu after saying which, loads kernel modules, gets the guest kernel and mends
the data directory's bits. Settings of the kernel are never changed: the commands
are printed.`,
		Example: `  skete doctor
  skete doctor --provider qemu
  skete doctor --json
  sudo skete doctor --fix`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.fix, "fix", false, "do what can be done safely")
	f.BoolVarP(&o.yes, "yes", "y", false, "install packages without asking")
	f.StringVar(&o.provider, "provider", "", "look at one provider alone: "+strings.Join(doctor.Providers, ", "))
	return cmd
}

type doctorOptions struct {
	fix, yes bool
	provider string
}

func (a program) runDoctor(ctx context.Context, o doctorOptions) error {
	if o.provider != "" && !slices.Contains(slices.Concat(doctor.Providers, doctor.Elsewhere), o.provider) {
		return errs.New(errs.Invalid, "--provider: %.40q is none of %s", o.provider, strings.Join(doctor.Providers, ", "))
	}
	// Everything that is tried is tried in a place of its own: the data
	// directory may belong to a server that runs.
	dir, err := os.MkdirTemp("", "skete-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report := doctor.Run(ctx, a.hostIn(ctx, dir, o.provider))
	if o.fix {
		if err := doctor.Fix(ctx, report, doctor.Fixer{Out: a.Err, Agree: a.agree(o.yes)}); err != nil {
			return err
		}
		report = doctor.Run(ctx, a.hostIn(ctx, dir, o.provider))
	}
	if err := a.printReport(report, o.provider); err != nil {
		return err
	}
	if report.Status == doctor.Error {
		return app.Exit(1)
	}
	return nil
}

// agree asks the user at the terminal. Without a terminal, the flags were enough.
func (a program) agree(yes bool) func(string) bool {
	if yes || !a.HasKeyboard() {
		return nil
	}
	return func(question string) bool {
		fmt.Fprintf(a.Err, "doctor: %s [y/N] ", question)
		line, _ := bufio.NewReader(io.LimitReader(a.In, 1<<10)).ReadString('\n')
		answer := strings.ToLower(strings.TrimSpace(line))
		return answer == "y" || answer == "yes"
	}
}

func (a program) printReport(r doctor.Report, only string) error {
	if a.JSON {
		return app.PrintJSON(a.Out, r)
	}
	group, hidden := "", 0
	for _, c := range r.Checks {
		if a.Quiet {
			if c.Status == doctor.Warn || c.Status == doctor.Error {
				fmt.Fprintf(a.Out, "%s/%s\n", c.Group, c.Name)
			}
			continue
		}
		if c.Group != group {
			a.printHidden(group, hidden)
			group, hidden = c.Group, 0
			fmt.Fprintf(a.Out, "%s%s\n", group, summary(r, group))
		}
		if only == "" && beside(r, c) {
			hidden++
			continue
		}
		a.printCheck(c)
	}
	a.printHidden(group, hidden)
	return nil
}

func (a program) printHidden(group string, n int) {
	if n > 0 {
		fmt.Fprintf(a.Out, "         and %d more: skete doctor --provider %s\n", n, group)
	}
}

// beside reports whether an item says little: it is of a provider that does
// not work here, and not why.
func beside(r doctor.Report, c doctor.Check) bool {
	i := slices.IndexFunc(r.Providers, func(p doctor.Provider) bool { return p.Name == c.Group })
	return i >= 0 && !r.Providers[i].Usable && c.Name != "boot"
}

func summary(r doctor.Report, group string) string {
	for _, p := range r.Providers {
		switch {
		case p.Name != group:
		case p.Usable:
			return ": " + p.Isolation
		default:
			return ": cannot be used here"
		}
	}
	return ""
}

func (a program) printCheck(c doctor.Check) {
	fmt.Fprintf(a.Out, "  %-5s  %-19s  %s\n", c.Status, c.Name, app.Printable(c.Detail))
	if c.Hint != "" && c.Status != doctor.OK {
		fix := ""
		if c.Fixable {
			fix = " (or: skete doctor --fix)"
		}
		fmt.Fprintf(a.Out, "  %-5s  %-19s  -> %s%s\n", "", "", app.Printable(c.Hint), fix)
	}
}

// hostIn describes this machine to the doctor; dir is for what is tried.
func (a program) hostIn(ctx context.Context, dir, only string) doctor.Host {
	c, err := config.Load(config.Source{File: config.FileIn(os.Getenv("SKETE_CONFIG"), a.Home), Env: os.Environ()})
	if err != nil {
		c = config.Builtin()
		c.Guest = os.Getenv("SKETE_GUEST")
	}
	host := doctor.Host{
		Home: a.Home, Listen: c.Listen, Answers: launch.Answers(ctx, a.Home), Only: only,
		Guest: func() (string, error) { return serve.Guest(c.Guest, dir) },
		Language: func(ctx context.Context, lang string) error {
			s, err := template.Open(filepath.Join(dir, "templates"))
			if err != nil {
				return err
			}
			return s.Language(ctx, template.HostName, lang)
		},
		Volume: func(ctx context.Context) (string, bool, error) { return tryVolume(ctx, filepath.Join(dir, "volumes")) },
		Plugins: func() (int, []string, error) {
			return serve.CountPlugins(cmp.Or(c.Plugins.Dir, filepath.Join(a.Home, "plugins")))
		},
		MCP: func(ctx context.Context) (doctor.MCPServers, error) {
			return mcpState(ctx, a.Home, len(c.MCP.Servers))
		},
		ReadOnly: func() ([]string, error) { return readOnly(cmp.Or(c.Volumes, filepath.Join(a.Home, "volumes"))) },
	}
	sc := serve.Config{Config: c, Home: a.Home, Log: a.Log}
	names := slices.Clone(doctor.Providers)
	for _, name := range doctor.Elsewhere {
		if slices.Contains(c.Providers, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		host.Probes = append(host.Probes, doctor.Probe{Provider: name, Boot: func(ctx context.Context) (string, []string, error) {
			return tryMachine(ctx, sc, name, dir)
		}})
	}
	describeMicroVMs(&host, sc)
	return host
}

// mcpTime is for a server that runs to say how its MCP servers are.
const mcpTime = 5 * time.Second

// mcpState asks the server that runs here, if one does, how the MCP servers are; named are
// those of the configuration, which it may have read before it changed.
func mcpState(ctx context.Context, home string, named int) (doctor.MCPServers, error) {
	if !launch.Answers(ctx, home) {
		return doctor.MCPServers{Count: named}, nil
	}
	c, err := client.New(client.Config{Socket: client.SocketPath(home)})
	if err != nil {
		return doctor.MCPServers{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, mcpTime)
	defer cancel()
	list, err := c.MCPServers(ctx)
	s := doctor.MCPServers{Asked: true}
	names := map[string]bool{}
	for _, m := range list {
		names[m.Name] = true
		if m.Error != "" {
			s.Problems = append(s.Problems, fmt.Sprintf("%s for %s: %s", m.Name, m.Tenant, m.Error))
		}
	}
	s.Count = len(names)
	return s, err
}

// describeMicroVMs is what machines with kernels of their own stand on.
func describeMicroVMs(host *doctor.Host, c serve.Config) {
	kernel := serve.Kernel(c)
	host.KVM = microvm.ProbeKVM
	host.TSC = func() (uint64, error) { return uint64(microvm.TSCKHz()), nil }
	host.Kernel = func(ctx context.Context) (doctor.Kernel, error) {
		k, err := microvm.FindKernel(ctx, kernel)
		return doctor.Kernel{Path: k.Path, Version: k.Release}, err // its modules came with it
	}
	host.EnsureKernel = func(ctx context.Context) error {
		_, err := microvm.EnsureKernel(ctx, kernel)
		return err
	}
	vmm := c.Firecracker.Program
	if vmm == "" {
		vmm = os.Getenv(firecracker.BinaryEnv)
	}
	host.Jail = doctor.Jail{
		Firecracker: vmm, Jailer: c.Firecracker.Jailer, Base: filepath.Join(c.Home, "firecracker"),
		UIDFirst: firecracker.FirstUID, UIDLast: firecracker.FirstUID + firecracker.UIDs - 1,
	}
}

// tryMachine boots a machine, and says what it was.
func tryMachine(ctx context.Context, c serve.Config, name, dir string) (isolation string, notes []string, err error) {
	var fs unix.Statfs_t // the look is elsewhere, but the server runs gVisor from there
	if name == gvisor.Name && !gvisor.PlaysItself && unix.Statfs(c.Home, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return "", nil, errs.New(errs.Unsupported, "the data directory %s is mounted noexec: no program runs from there", c.Home).
			WithHint("name another one with SKETE_HOME")
	}
	if _, err := os.Stat(serve.Kernels(c.Home)); err != nil {
		c.Home = dir // a look leaves nothing behind
	}
	p, err := serve.Provider(ctx, c, name, dir)
	if err != nil {
		return "", nil, err
	}
	defer p.Close()
	if err := p.Probe(ctx); err != nil {
		return "", nil, err
	}
	caps := p.Capabilities()
	isolation, notes = string(caps.Isolation), caps.Notes
	if g, is := p.(*gvisor.Provider); is {
		by := "skete-runsc"
		if _, own := g.Program(); !own {
			by = "skete itself"
			notes = append(notes, "machines start more slowly, since skete was built without skete-runsc, or it cannot run here")
		}
		isolation += fmt.Sprintf(" (gVisor, run by %s)", by)
	}
	return isolation, notes, nil
}

// readOnly names the volumes that take no writes any more.
func readOnly(dir string) ([]string, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, nil // none was ever made, and a look makes no directory
	}
	s, err := volume.Open(dir)
	if err != nil {
		return nil, err
	}
	return s.ReadOnly()
}

// tryVolume makes a volume and removes it.
func tryVolume(ctx context.Context, dir string) (method string, enforced bool, err error) {
	const id = "sbx_doctordoctordoctordo"
	s, err := volume.Open(dir)
	if err != nil {
		return "", false, err
	}
	v, err := s.Create(ctx, id, 16<<20)
	if err != nil {
		return "", false, err
	}
	return v.Method, v.Enforced, s.Remove(context.WithoutCancel(ctx), id)
}
