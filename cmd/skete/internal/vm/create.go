package vm

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
)

// runTTL is how long a sandbox of `vm run` and `vm temp` lives at most unless
// --ttl or --timeout say otherwise.
const runTTL = 5 * time.Minute

// createFlags describe a sandbox.
type createFlags struct {
	lang, mem, disk, network, ttl, idle string
	template, provider, require, name   string
	image, workdir, from                string
	cpus                                float64
	pids                                int
	persist, root, noWake, noStart      bool
	diskMBps, diskIOPS                  int
	env, meta, models                   []string
	modelTokens                         int64
	modelUSD                            float64
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
	fs.IntVar(&f.diskMBps, "disk-mbps", 0, "megabytes a second that its disks may move (default no bound; firecracker and qemu)")
	fs.IntVar(&f.diskIOPS, "disk-iops", 0, "operations a second of its disks (default no bound; firecracker and qemu)")
	fs.IntVar(&f.pids, "pids", 0, "processes and threads (default 512)")
	fs.StringVar(&f.network, "network", "", "what leaves it: none, default (reading where packages and public repositories are), open (everything to public addresses), or a file of rules; see skete help network (default the server's, which is default)")
	fs.StringArrayVar(&f.models, "model", nil, "a model of the host that its programs may use, by OPENAI_BASE_URL, ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL (may be repeated)")
	fs.Int64Var(&f.modelTokens, "model-tokens", 0, "tokens that all their calls may use (default no bound)")
	fs.Float64Var(&f.modelUSD, "model-usd", 0, "US dollars that all their calls may cost (default no bound)")
	fs.BoolVar(&f.persist, "persist", false, "expiry stops the sandbox and keeps its workspace; =false removes it, also where that of the snapshot persists")
	fs.StringVar(&f.ttl, "ttl", "", "end it after this long: 90 (seconds), 5m, 2h")
	fs.StringVar(&f.idle, "idle", "", "pause it after this long without use, or stop it where that cannot be: 90 (seconds), 5m, 2h")
	fs.StringVar(&f.template, "template", "", "root file system (default: what suits the provider); see skete template list")
	fs.StringVar(&f.provider, "provider", "", "auto or a provider's name (default auto: the strongest that works)")
	fs.StringVar(&f.require, "require", "", "isolation to have at least, or fail: microvm, microvm-emulated, user-kernel, container")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment `K=V` of its commands; K alone has the value it has here (may be repeated)")
	fs.StringVar(&f.workdir, "workdir", "", "working directory of its commands (default the template's, else /workspace)")
	fs.StringVar(&f.name, "name", "", "a name that no other sandbox has; it stands for the id")
	fs.StringArrayVar(&f.meta, "meta", nil, "metadata `k=v` (may be repeated)")
	fs.StringVar(&f.from, "from", "", "go on from this snapshot; its machine is as it was, see skete vm snapshots")
	fs.BoolVar(&f.noWake, "no-wake", false, "when it is paused, refuse calls instead of waking it")
	fs.BoolVar(&f.noStart, "no-start", false, "do not start what the template starts by itself (the command of its image), nor wait for it")
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
	fixed("network", egress.Profiles...)
	fixed("require", "microvm", "microvm-emulated", "user-kernel", "container", "none")
}

// request turns the flags into a request. ttl is used where none was given.
func (f *createFlags) request(ttl time.Duration) (api.CreateSandbox, error) {
	r := api.CreateSandbox{
		Name: f.name, Template: f.template, Language: app.Language(f.lang), Provider: f.provider, Require: f.require,
		CPUs: f.cpus, PidsMax: f.pids, DiskMBps: f.diskMBps, DiskIOPS: f.diskIOPS, Workdir: f.workdir, Root: f.root, Persist: f.persist,
		NoWake: f.noWake, NoStart: f.noStart, From: f.from,
		TTLMS: ttl.Milliseconds(),
	}
	if f.image != "" {
		return r, errs.New(errs.Unsupported, "OCI images are not available in this version").
			WithHint("`skete template import NAME rootfs.tar` makes a template of a root file system; then --template NAME")
	}
	switch {
	case f.from == "":
		var err error
		if r.Network, r.Egress, err = app.NetworkOf(f.network); err != nil {
			return r, err
		}
	case f.network != "":
		return r, errs.New(errs.Invalid, "a sandbox of a snapshot has the network that was saved; --network does not change it").
			WithHint("leave --network out; `skete egress` changes what leaves a sandbox")
	}
	switch {
	case len(f.models) > 0:
		r.Models = &api.ModelGrant{Models: f.models, Tokens: f.modelTokens, CostUSD: f.modelUSD}
	case f.modelTokens != 0 || f.modelUSD != 0:
		return r, errs.New(errs.Invalid, "--model-tokens and --model-usd are of models: name one with --model")
	}
	if err := app.OneOf("require", f.require, "microvm", "microvm-emulated", "user-kernel", "container", "none"); err != nil {
		return r, err
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
	r.MemoryMB, err = app.Megabytes("mem", f.mem)
	disk, e := app.Megabytes("disk", f.disk)
	r.DiskMB = disk
	set(e)
	r.Env, e = app.Environment(f.env)
	set(e)
	r.Metadata, e = app.Pairs("meta", f.meta)
	set(e)
	if f.ttl != "" {
		r.TTLMS, e = app.Milliseconds("ttl", f.ttl)
		set(e)
	}
	r.IdleTimeoutMS, e = app.Milliseconds("idle", f.idle)
	set(e)
	return r, err
}

func (a commands) vmCreate() *cobra.Command {
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
  skete vm create --template debian --disk 8g --persist --root
  skete vm create --from SNAPSHOT --name again`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(0)
			if err != nil {
				return err
			}
			req.Ephemeral = cmd.Flags().Changed("persist") && !f.persist
			sb, err := a.create(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, sb)
			}
			_, err = fmt.Fprintln(a.Out, sb.ID)
			return err
		},
	}
	f.flags(cmd)
	return cmd
}

// create makes a sandbox and tells people what they got.
func (a commands) create(ctx context.Context, req api.CreateSandbox) (api.Sandbox, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	if req.From != "" {
		if req.From, err = snapshotNamed(ctx, c, req.From); err != nil {
			return api.Sandbox{}, err
		}
	} else if err := a.Prepare(ctx, c, req); err != nil {
		return api.Sandbox{}, err
	}
	told := a.TellTurns(ctx, c)
	sb, err := c.CreateSandbox(ctx, req)
	told()
	if err != nil {
		return sb, err
	}
	a.WarnIsolation(sb)
	a.Note("%s is running: isolation %s (%s), up in %.0f ms", sb.ID, sb.Isolation, app.Cell(sb.Provider), sb.BootMS)
	for _, n := range sb.Notes {
		a.Note("note: %s", app.Printable(n))
	}
	return sb, nil
}
