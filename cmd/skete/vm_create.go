package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/errs"
)

// runTTL is how long a sandbox of `vm run` and `vm temp` lives at most unless
// --ttl or --timeout say otherwise.
const runTTL = 5 * time.Minute

// createFlags describe a sandbox.
type createFlags struct {
	lang, mem, disk, network, ttl, idle string
	template, provider, require, name   string
	image, workdir                      string
	cpus                                float64
	pids                                int
	persist, root                       bool
	env, meta                           []string
}

func (f *createFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.lang, "lang", "", "language whose tools must be there: python, node, go, ruby")
	fs.StringVar(&f.lang, "language", "", "same as --lang")
	fs.Float64Var(&f.cpus, "cpus", 0, "processors (default 1)")
	fs.Float64Var(&f.cpus, "cpu", 0, "same as --cpus")
	fs.StringVar(&f.mem, "mem", "", "memory: 512, 512m, 2g (default 512 MB)")
	fs.StringVar(&f.mem, "memory", "", "same as --mem")
	fs.StringVar(&f.disk, "disk", "", "workspace: 2048, 4g (default 2048 MB)")
	fs.IntVar(&f.pids, "pids", 0, "processes and threads (default 512)")
	fs.StringVar(&f.network, "network", "none", "none is all that there is in this version")
	fs.BoolVar(&f.persist, "persist", false, "expiry stops the sandbox and keeps its workspace")
	fs.StringVar(&f.ttl, "ttl", "", "end it after this long: 90, 5m, 2h")
	fs.StringVar(&f.idle, "idle", "", "end it after this long without use: 90, 5m, 2h")
	fs.StringVar(&f.template, "template", "", "root file system (default host); see skete template list")
	fs.StringVar(&f.provider, "provider", "", "auto or a provider's name (default auto: the strongest that works)")
	fs.StringVar(&f.require, "require", "", "isolation to have at least, or fail: microvm, microvm-emulated, user-kernel, container")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment `K=V` of its commands (may be repeated)")
	fs.StringVar(&f.workdir, "workdir", "", "working directory of its commands (default /workspace)")
	fs.StringVar(&f.name, "name", "", "name for people")
	fs.StringArrayVar(&f.meta, "meta", nil, "metadata `k=v` (may be repeated)")
	fs.BoolVar(&f.root, "root", false, "commands may run as root inside")
	fs.StringVar(&f.image, "image", "", "")
	for _, alias := range []string{"language", "cpu", "memory", "image"} {
		_ = fs.MarkHidden(alias)
	}
	fixed := func(flag string, values ...string) {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	fixed("lang", "python", "node", "go", "ruby")
	fixed("language", "python", "node", "go", "ruby")
	fixed("network", "none")
	fixed("provider", "auto", "gvisor", "process")
	fixed("require", "microvm", "microvm-emulated", "user-kernel", "container", "none")
}

// request turns the flags into a request. ttl is used where none was given.
func (f *createFlags) request(ttl time.Duration) (api.CreateSandbox, error) {
	r := api.CreateSandbox{
		Name: f.name, Template: f.template, Language: language(f.lang), Provider: f.provider, Require: f.require,
		CPUs: f.cpus, PidsMax: f.pids, Workdir: f.workdir, Root: f.root, Network: f.network, Persist: f.persist,
		TTLMS: ttl.Milliseconds(),
	}
	if f.image != "" {
		return r, errs.New(errs.Unsupported, "OCI images are not available in this version").
			WithHint("`skete template import NAME rootfs.tar` makes a template of a root file system; then --template NAME")
	}
	if f.network != "none" {
		return r, errs.New(errs.Unsupported, "--network %.40s is not available in this version: sandboxes have no network", f.network).
			WithHint("bring what is needed with `skete cp`, and reach servers inside with `skete vm forward`")
	}
	if f.cpus < 0 || math.IsNaN(f.cpus) || math.IsInf(f.cpus, 0) {
		return r, errs.New(errs.Invalid, "--cpus %g is no number of processors", f.cpus)
	}
	var err error
	set := func(e error) {
		if err == nil {
			err = e
		}
	}
	r.MemoryMB, err = megabytes("mem", f.mem)
	disk, e := megabytes("disk", f.disk)
	r.DiskMB = disk
	set(e)
	r.Env, e = environment(f.env)
	set(e)
	r.Metadata, e = pairs("meta", f.meta)
	set(e)
	if f.ttl != "" {
		r.TTLMS, e = milliseconds("ttl", f.ttl)
		set(e)
	}
	r.IdleTimeoutMS, e = milliseconds("idle", f.idle)
	set(e)
	return r, err
}

// language takes the names that people use.
func language(s string) string {
	switch strings.ToLower(s) {
	case "javascript", "js", "nodejs":
		return "node"
	case "golang":
		return "go"
	case "py", "python3":
		return "python"
	}
	return s
}

// megabytes reads 512, 512m, 512MB, 2g, 2GiB.
func megabytes(flag, s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	bad := errs.New(errs.Invalid, "--%s %.40q is no size", flag, s).WithHint("write megabytes, or 512m, 2g")
	n := strings.TrimRight(strings.ToLower(s), "ib")
	factor := 1.0
	switch {
	case strings.HasSuffix(n, "g"):
		n, factor = n[:len(n)-1], 1024
	case strings.HasSuffix(n, "m"):
		n = n[:len(n)-1]
	}
	v, err := strconv.ParseFloat(n, 64)
	v *= factor
	if err != nil || !(v >= 1 && v <= 1<<30) || v != math.Trunc(v) {
		return 0, bad
	}
	return int(v), nil
}

func milliseconds(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(s)
	if err != nil {
		return 0, errs.New(errs.Invalid, "--%s: %v", flag, err)
	}
	return d.Milliseconds(), nil
}

func cut(pair string) (k, v string, ok bool) {
	k, v, ok = strings.Cut(pair, "=")
	return k, v, ok && k != ""
}

// environment reads K=V, and K alone for our own value of K.
func environment(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, p := range list {
		k, v, ok := cut(p)
		if !ok && p != "" && !strings.Contains(p, "=") {
			k, ok = p, true
			v = os.Getenv(p)
		}
		if !ok {
			return nil, errs.New(errs.Invalid, "--env %.80q: write K=V", p)
		}
		m[k] = v
	}
	return m, nil
}

func (a *app) vmCreate() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "create", Short: "Make a sandbox and print its id",
		Long: `Make a sandbox, wait until it answers, and print its id on stdout.

Its isolation is the strongest that works on this machine; with --require the
command fails rather than take less. What is weaker than usual is said on
stderr and in ` + "`skete vm inspect`" + `.`,
		Example: `  skete vm create --lang python --mem 512 --cpus 2
  id=$(skete vm create -q --name demo --ttl 1h)
  skete vm create --require user-kernel --meta project=blue
  skete vm create --template debian --disk 8g --persist --root`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(0)
			if err != nil {
				return err
			}
			sb, err := a.create(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.out, sb)
			}
			_, err = fmt.Fprintln(a.out, sb.ID)
			return err
		},
	}
	f.flags(cmd)
	return cmd
}

// create makes a sandbox and tells people what they got.
func (a *app) create(ctx context.Context, req api.CreateSandbox) (api.Sandbox, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	sb, err := c.CreateSandbox(ctx, req)
	if err != nil {
		return sb, err
	}
	a.warnIsolation(sb)
	a.note("%s is running: isolation %s (%s), up in %.0f ms", sb.ID, sb.Isolation, cell(sb.Provider), sb.BootMS)
	for _, n := range sb.Notes {
		a.note("note: %s", printable(n))
	}
	return sb, nil
}
