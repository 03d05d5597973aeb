// Package doctor looks at a host and says, item by item, what skete can do on
// it and what is missing.
//
//	report := doctor.Run(ctx, doctor.Host{Home: home, Language: templates.Language, Probes: probes})
//	doctor.Fix(ctx, report, doctor.Fixer{Out: os.Stderr, Agree: ask})
//
// A check looks at the thing itself: each provider boots a machine, KVM runs
// the instructions that a kernel needs, a user namespace is made, a control
// group is made. Nothing is left behind, and Run changes nothing; Fix does,
// and only what is safe: no sysctl and no security setting.
//
// Checks belong to a group: general, a provider's, or templates. A provider
// that does not work is no error where another one does, unless it was asked
// for by name.
package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Status of a check.
type Status string

// From fine to not.
const (
	OK    Status = "ok"
	Info  Status = "info"  // worth knowing; nothing that is used here needs it
	Warn  Status = "warn"  // works, but something is weaker or missing
	Error Status = "error" // what needs this does not work
)

// rank orders statuses; the worst is the greatest.
func (s Status) rank() int { return slices.Index([]Status{OK, Info, Warn, Error}, s) }

// Groups of checks, in the order in which they are shown.
const (
	General     = "general"
	GVisor      = "gvisor"
	QEMU        = "qemu"
	Firecracker = "firecracker"
	Docker      = "docker"
	Remote      = "remote"
	Runloop     = "runloop"
	Templates   = "templates"
)

// Providers lists the groups that are a provider's of this host. Those of Elsewhere are
// looked at where they are configured.
var (
	Providers = []string{Firecracker, QEMU, GVisor, Docker}
	Elsewhere = []string{Remote, Runloop}
)

// providers are those that are looked at.
func (h Host) providers() []string {
	all := slices.Clone(Providers)
	for _, name := range Elsewhere {
		if h.Only == name || slices.ContainsFunc(h.Probes, func(p Probe) bool { return p.Provider == name }) {
			all = append(all, name)
		}
	}
	return all
}

func elsewhere(provider string) bool { return slices.Contains(Elsewhere, provider) }

// Check is one item.
type Check struct {
	Group   string `json:"group"`
	Name    string `json:"name"` // unique in its group
	Status  Status `json:"status"`
	Detail  string `json:"detail"`
	Hint    string `json:"hint,omitempty"`
	Fixable bool   `json:"fixable"` // `skete doctor --fix` can do it

	packages []string // of Debian and Ubuntu
	modules  []string // of the kernel
	fix      func(context.Context) error
}

// Provider is what the host can do with one provider.
type Provider struct {
	Name      string `json:"name"`
	Usable    bool   `json:"usable"` // a machine really booted
	Isolation string `json:"isolation,omitempty"`
	BootMS    int64  `json:"boot_ms,omitempty"` // of the probe, to its end
	// Problems counts the group's errors, before anything was forgiven because
	// another provider works.
	Problems int `json:"problems"`
}

// Report is all that Run has found.
type Report struct {
	// Status is the worst of what is needed: of the general items, and of the
	// provider that was asked for; else it is error only if no provider works.
	Status    Status     `json:"status"`
	Providers []Provider `json:"providers"`
	Checks    []Check    `json:"checks"`
}

// Probe really boots a machine with one provider.
type Probe struct {
	Provider string
	// Boot says what the isolation is; notes are what is weaker than usual.
	Boot func(ctx context.Context) (isolation string, notes []string, err error)
}

// Kernel is the kernel of machines that have one of their own.
type Kernel struct {
	Path    string // of the file
	Version string // "6.1.0-56-cloud-amd64"; "" = not known
	Modules string // the version that its modules were built for; "" = it needs none
}

// Jail says what the provider firecracker is going to use.
type Jail struct {
	Firecracker, Jailer string // programs; "" = those in PATH
	Base                string // of the chroots; "" = Home
	UIDFirst, UIDLast   int    // of its machines; 0 = not known
}

// Host is what is looked at. What is nil or empty is not looked at, or has the
// meaning that is said here.
type Host struct {
	Home    string
	Listen  string
	Answers bool // a server answers on the socket of Home
	// Root is the directory beneath which /proc, /sys, /dev, /etc and /usr are
	// read; "" = the real one. Path is where programs are looked up; nil = PATH.
	Root string
	Path []string
	// Only shows the general items and the ones of one provider, which must work.
	Only string
	// Program is skete itself; "" = the one that runs.
	Program string
	// Guest finds the guest program.
	Guest func() (string, error)
	// Language reports whether the default template has a language.
	Language func(ctx context.Context, language string) error
	// Probes boot a machine each.
	Probes []Probe
	// Volume says how a disk quota is enforced here.
	Volume func(ctx context.Context) (method string, enforced bool, err error)
	// Plugins counts the plug-ins of the server's folder, and says what is wrong with others.
	Plugins func() (n int, problems []string, err error)
	// MCP tells of the MCP servers whose tools agents use.
	MCP func(ctx context.Context) (MCPServers, error)
	// ReadOnly names the workspaces whose file systems the kernel has made read-only.
	ReadOnly func() ([]string, error)
	// KVM runs what a kernel needs on a CPU of KVM. Nil error: it works.
	KVM func(ctx context.Context) error
	// TSC is the frequency of the host's time stamp counter in kHz.
	TSC func() (khz uint64, err error)
	// Kernel finds the guest kernel; NotFound: there is none. EnsureKernel
	// makes it available, which may need the network.
	Kernel       func(ctx context.Context) (Kernel, error)
	EnsureKernel func(ctx context.Context) error
	Jail         Jail
	// MachinesMB is the memory of all machines that shall have snapshots; 0 =
	// that of the host.
	MachinesMB int64
	// NICs: machines get network cards.
	NICs bool
}

// probeTimeout bounds the boot of one probe. One without KVM on a busy host
// takes its time.
const probeTimeout = 90 * time.Second

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func info(name, hint, format string, args ...any) Check {
	return Check{Name: name, Status: Info, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func warn(name, hint, format string, args ...any) Check {
	return Check{Name: name, Status: Warn, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func fail(name, hint, format string, args ...any) Check {
	return Check{Name: name, Status: Error, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func bad(name string, err error) Check {
	return Check{Name: name, Status: Error, Detail: err.Error(), Hint: errs.Hint(err)}
}

// Run makes all checks, in the order in which a reader wants to know.
func Run(ctx context.Context, h Host) Report {
	if h.Path == nil {
		h.Path = filepath.SplitList(os.Getenv("PATH"))
	}
	var r Report
	for _, p := range h.providers() {
		if h.shows(p) {
			r.add(p, h.provider(ctx, p))
			r.boot(ctx, h, p)
		}
	}
	r.add(General, h.general(ctx, r))
	if h.Only == "" {
		r.add(Templates, h.templates(ctx))
	}
	r.judge(h.Only)
	order := []string{General, GVisor, QEMU, Firecracker, Docker, Remote, Runloop, Templates}
	slices.SortStableFunc(r.Checks, func(a, b Check) int { return slices.Index(order, a.Group) - slices.Index(order, b.Group) })
	return r
}

func (h Host) shows(provider string) bool { return h.Only == "" || h.Only == provider }

func (r *Report) add(group string, checks []Check) {
	for _, c := range checks {
		c.Group = group
		r.Checks = append(r.Checks, c)
	}
}

func (h Host) general(ctx context.Context, r Report) []Check {
	checks := []Check{
		h.platform(), h.privileges(ctx), h.static(), h.guest(), h.cgroups(ctx),
		h.disk(ctx), h.workspaces(), h.space(), h.memory(), h.home(), h.server(ctx), h.clock(), h.plugins(), h.mcp(ctx),
	}
	if h.Only == "" { // else not all were asked
		checks = append(checks, microvm(r))
	}
	return checks
}

func (h Host) provider(ctx context.Context, name string) []Check {
	switch name {
	case QEMU:
		return h.qemu(ctx)
	case Firecracker:
		return h.firecracker(ctx)
	case Docker:
		return []Check{h.engine()}
	}
	return nil
}

// boot runs the probe of a provider and notes what came of it.
func (r *Report) boot(ctx context.Context, h Host, name string) {
	p := Provider{Name: name}
	i := slices.IndexFunc(h.Probes, func(p Probe) bool { return p.Provider == name })
	c := info("boot", "", "this skete has no provider %s", name)
	if h.Only == name {
		c.Status = Error
	}
	if i >= 0 {
		c = p.try(ctx, h.Probes[i])
	}
	c.Group = name
	r.Checks = append(r.Checks, c)
	for _, c := range r.Checks {
		if c.Group == name && c.Status == Error {
			p.Problems++
		}
	}
	r.Providers = append(r.Providers, p)
}

func (p *Provider) try(ctx context.Context, probe Probe) Check {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	isolation, notes, err := probe.Boot(ctx)
	if err != nil {
		return bad("boot", err)
	}
	p.Usable, p.Isolation, p.BootMS = true, isolation, time.Since(began).Milliseconds()
	c := ok("boot", "a machine booted in %d ms, isolation %s", p.BootMS, isolation)
	for _, n := range notes {
		c.Status = Warn
		c.Detail += "; " + n
	}
	return c
}

// judge forgives what nothing needs: errors of a provider that works after all
// are warnings, and all of one that does not is information. Then it sums up.
func (r *Report) judge(only string) {
	whole := 0
	for _, p := range r.Providers {
		if p.Usable && p.Problems == 0 && !elsewhere(p.Name) { // it says nothing of this host
			whole++
		}
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		p, is := r.provider(c.Group)
		if !is || only != "" || whole == 0 {
			continue
		}
		switch {
		case (p.Usable || elsewhere(p.Name)) && c.Status == Error: // that one is there since it was asked for
			c.Status = Warn
		case !p.Usable && c.Status.rank() > Info.rank():
			c.Status = Info
		}
	}
	r.Status = OK
	for _, c := range r.Checks {
		if c.Status.rank() > r.Status.rank() {
			r.Status = c.Status
		}
	}
}

func (r *Report) provider(name string) (Provider, bool) {
	i := slices.IndexFunc(r.Providers, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return Provider{}, false
	}
	return r.Providers[i], true
}

// microvm says whether `--require microvm` can be had.
func microvm(r Report) Check {
	const name = "microvm"
	var emulated bool
	for _, p := range r.Providers {
		if p.Usable && strings.HasPrefix(p.Isolation, "microvm-emulated") {
			emulated = true
		} else if p.Usable && strings.HasPrefix(p.Isolation, "microvm") {
			return ok(name, "`--require microvm` gives machines of %s", p.Name)
		}
	}
	if emulated {
		return info(name, "use a host with KVM for hardware speed; `--require user-kernel` gives gVisor's",
			"`--require microvm` fails; `--require microvm-emulated` gives a kernel of its own on an emulated CPU, ten to twenty times slower")
	}
	return info(name, "use `--require user-kernel`, which gVisor gives", "`--require microvm` fails: no provider here makes microVMs")
}
