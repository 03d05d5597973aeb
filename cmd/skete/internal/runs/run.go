package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// Bounds of what is read.
const (
	taskBytesMax   = 512 << 10
	schemaBytesMax = 64 << 10
)

// runFlags are what can be said about a run.
type runFlags struct {
	req                       api.StartRun
	budget                    budgetFlags
	labels                    []string
	file, schema, definition  string
	sandbox, lang, mem, disk  string
	cpus                      float64
	template, provider, needs string
	detach                    bool
	approve                   string
}

// budgetFlags read a budget; prefix is "budget-" or "add-".
type budgetFlags struct {
	b    api.Budget
	wall string
}

func (f *budgetFlags) flags(cmd *cobra.Command, prefix, what string) {
	fs := cmd.Flags()
	fs.IntVar(&f.b.Steps, prefix+"steps", 0, what+" model calls")
	fs.IntVar(&f.b.Tokens, prefix+"tokens", 0, what+" tokens, in and out")
	fs.Float64Var(&f.b.CostUSD, prefix+"cost", 0, what+" US dollars")
}

func (f *budgetFlags) budget(flag string) (api.Budget, error) {
	var err error
	if f.b.WallMS, err = app.Milliseconds(flag, f.wall); err != nil {
		return f.b, &app.Coded{Status: exitUsage, Err: err}
	}
	if f.b.Steps < 0 || f.b.Tokens < 0 || f.b.CostUSD < 0 {
		return f.b, usage("a budget is not negative")
	}
	return f.b, nil
}

func (a commands) run() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run TASK", Short: "Let an agent work on a task",
		Long: `Let an agent work on a task in a sandbox of its own, and watch it. The run
belongs to the server: it goes on when this terminal is closed, when the
connection breaks and when the server is restarted. Ctrl-C asks whether to
leave it running or to cancel it.

On a terminal a call that needs approval asks here (a approve, e edit, r reject,
t answer in its place). Elsewhere the command ends with status 3, and
` + "`skete approve`" + ` decides. With -q only the result is printed.

Its sandbox is named run- and the first characters of the run's id; ` + "`skete ls`" + `
shows it. It is stopped ten minutes after the run's end, or its last use, with
its files and their history kept. --keep leaves it as it is; the agent's
definition can say otherwise (after_run).
` + exitCodes,
		Example: `  skete run 'Fix the failing test in /workspace'
  skete run --agent reviewer --file task.md --budget-cost 0.50
  git diff | skete run - --title review -q
  id=$(skete run -d 'Write a report on the logs') && skete attach $id
  skete run --sandbox ID 'Say what this project does' --json
  skete run 'List three prime numbers' --schema primes.json -q`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.startRun(cmd.Context(), &f, args)
		},
	}
	fs := cmd.Flags()
	a.startFlags(cmd, &f)
	fs.StringVar(&f.definition, "definition", "", "a definition in this file (YAML, Markdown or JSON) in place of --agent, - is stdin")
	fs.StringVar(&f.schema, "schema", "", "JSON Schema of the result, in this file")
	fs.BoolVarP(&f.detach, "detach", "d", false, "print the run's id and leave it running")
	fs.StringVar(&f.approve, "approve", "ask", "what to do when a call needs approval: ask, all (allow), none (reject)")
	_ = cmd.RegisterFlagCompletionFunc("approve", cobra.FixedCompletions([]string{"ask", "all", "none"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// startFlags are those of every command that asks for runs.
func (a commands) startFlags(cmd *cobra.Command, f *runFlags) {
	fs := cmd.Flags()
	fs.StringVarP(&f.req.Agent, "agent", "a", "", "which agent (default the one that is called default): see skete agent list")
	fs.StringVarP(&f.req.Model, "model", "m", "", "which model (default the agent's, then the server's choice)")
	fs.StringVar(&f.req.Thread, "thread", "", "go on with this conversation: the thread of an earlier run, see skete show --json")
	fs.StringVar(&f.req.Title, "title", "", "what lists show (default the first line of the task)")
	fs.StringArrayVar(&f.labels, "label", nil, "label `key=value` (may be repeated)")
	fs.StringVarP(&f.file, "file", "f", "", "read the task from this file, - is stdin")
	f.budget.flags(cmd, "budget-", "at most so many")
	fs.StringVar(&f.budget.wall, "timeout", "", "at most so long, waiting for people not counted: 10m, 2h")
	fs.StringVar(&f.sandbox, "sandbox", "", "work in this sandbox: id, beginning of an id, or name")
	fs.StringVar(&f.sandbox, "vm", "", "same as --sandbox")
	fs.StringVar(&f.lang, "lang", "", "language of its own sandbox: python, node, go, ruby")
	fs.StringVar(&f.mem, "mem", "", "memory of its own sandbox: 512, 2g")
	fs.StringVar(&f.disk, "disk", "", "disk of its own sandbox: 2g")
	fs.Float64Var(&f.cpus, "cpus", 0, "cpus of its own sandbox")
	fs.StringVar(&f.template, "template", "", "template of its own sandbox")
	fs.StringVar(&f.provider, "provider", "", "provider of its own sandbox")
	fs.StringVar(&f.needs, "require", "", "isolation that its own sandbox must have at least")
	fs.BoolVar(&f.req.Keep, "keep", false, "leave its own sandbox as it is when the run is over")
	_ = fs.MarkHidden("vm")
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.Complete(0))
}

func (a commands) startRun(ctx context.Context, f *runFlags, args []string) error {
	if err := checkPolicy(f.approve); err != nil {
		return err
	}
	req, err := a.request(f, args)
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	if req.Sandbox, err = a.named(ctx, c, f.sandbox); err != nil {
		return err
	}
	run, err := c.StartRun(ctx, req)
	if errs.Is(err, errs.Invalid) {
		return &app.Coded{Status: exitUsage, Err: err}
	}
	if err != nil {
		return err
	}
	return a.started(ctx, c, run, f.detach, f.approve)
}

// named is the id of the sandbox that --sandbox names; "" = none.
func (a commands) named(ctx context.Context, c *client.Client, sandbox string) (string, error) {
	if sandbox == "" {
		return "", nil
	}
	sb, err := a.Find(ctx, c, sandbox)
	if err != nil {
		return "", err
	}
	a.WarnIsolation(sb)
	return sb.ID, nil
}

// started prints a run that was started, or watches it.
func (a commands) started(ctx context.Context, c *client.Client, run api.Run, detach bool, policy string) error {
	if !detach {
		return watchRun(ctx, a.App, c, run, watchOptions{Policy: policy, Begun: true})
	}
	if a.JSON {
		return app.PrintJSON(a.Out, run)
	}
	a.Note("the run goes on by itself: `skete attach %s` shows it", run.ID)
	_, err := fmt.Fprintln(a.Out, run.ID)
	return err
}

// request reads everything that can be wrong without a server.
func (a commands) request(f *runFlags, args []string) (req api.StartRun, err error) {
	req = f.req
	if req.Model, err = modelName(req.Model); err != nil {
		return req, err
	}
	if req.Task, err = a.task(f.file, args); err != nil {
		return req, err
	}
	if req.Labels, err = app.Pairs("label", f.labels); err != nil {
		return req, &app.Coded{Status: exitUsage, Err: err}
	}
	if req.Budget, err = f.budget.budget("timeout"); err != nil {
		return req, err
	}
	if req.Schema, err = a.object(f.schema, "--schema"); err != nil {
		return req, err
	}
	if req.Definition, err = a.definition(f.definition); err != nil {
		return req, err
	}
	req.Spec, err = f.spec()
	return req, err
}

// definition reads an agent's file: what is wrong with it is said with its place
// before a server is asked.
func (a commands) definition(name string) (json.RawMessage, error) {
	if name == "" {
		return nil, nil
	}
	text, err := a.read(name, definition.FileBytesMax)
	if err != nil {
		return nil, err
	}
	if name == "-" {
		name = "definition.yaml"
	}
	d, err := definition.JSON(filepath.ToSlash(name), []byte(text))
	if err != nil {
		return nil, &app.Coded{Status: exitUsage, Err: err}
	}
	return d, nil
}

// modelName makes the path of a script absolute: the server has another folder.
func modelName(name string) (string, error) {
	const prefix = "script/"
	file, is := strings.CutPrefix(name, prefix)
	if !is || file == "" {
		return name, nil
	}
	file, err := filepath.Abs(file)
	return prefix + file, err
}

// task is what the words, a file or stdin say.
func (a commands) task(file string, words []string) (string, error) {
	if len(words) == 1 && words[0] == "-" {
		words, file = nil, "-"
	}
	text := strings.Join(words, " ")
	if file != "" {
		if text != "" {
			return "", usage("the task stands on the command line or in a file, not both")
		}
		var err error
		if text, err = a.read(file, taskBytesMax); err != nil {
			return "", err
		}
	}
	if strings.TrimSpace(text) == "" {
		return "", usage("there is no task").WithHint("for example: skete run 'Fix the failing test'; - reads it from stdin")
	}
	return text, nil
}

// object reads a JSON object from a file.
func (a commands) object(name, flag string) (json.RawMessage, error) {
	if name == "" {
		return nil, nil
	}
	text, err := a.read(name, schemaBytesMax)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return nil, usage("%s: %.80q holds no JSON object", flag, name)
	}
	return json.RawMessage(text), nil
}

// spec is what was said of the run's own sandbox, by the names of the API.
func (f *runFlags) spec() (map[string]any, error) {
	spec := map[string]any{}
	for name, v := range map[string]string{"language": app.Language(f.lang), "template": f.template, "provider": f.provider, "require": f.needs} {
		if v != "" {
			spec[name] = v
		}
	}
	for _, size := range []struct{ flag, name, v string }{{"mem", "memory_mb", f.mem}, {"disk", "disk_mb", f.disk}} {
		mb, err := app.Megabytes(size.flag, size.v)
		if err != nil {
			return nil, &app.Coded{Status: exitUsage, Err: err}
		}
		if mb > 0 {
			spec[size.name] = mb
		}
	}
	if f.cpus != 0 {
		spec["cpus"] = f.cpus
	}
	if len(spec) == 0 && !f.req.Keep {
		return nil, nil
	}
	if f.sandbox != "" {
		return nil, usage("--sandbox names one that is there: flags about a new one do not go with it")
	}
	if len(spec) == 0 {
		return nil, nil
	}
	return spec, nil
}

func (a commands) attach() *cobra.Command {
	policy := "ask"
	all := false
	cmd := &cobra.Command{
		Use: "attach RUN", Short: "Watch a run, and steer it",
		Long:    "Watch a run until it ends, as `skete run` does. RUN is its id, the beginning of it, or last.\n" + exitCodes,
		Example: "  skete attach last\n  skete attach RUN --all\n  skete attach RUN --json | jq -c .event.kind",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPolicy(policy); err != nil {
				return err
			}
			c, run, err := a.with(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return watchRun(cmd.Context(), a.App, c, run, watchOptions{Policy: policy, All: all})
		},
	}
	cmd.Flags().StringVar(&policy, "approve", policy, "what to do when a call needs approval: ask, all (allow), none (reject)")
	cmd.Flags().BoolVar(&all, "all", false, "show everything from the beginning")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func checkPolicy(p string) error {
	if p != "ask" && p != "all" && p != "none" {
		return usage("--approve %.20q is none of ask, all, none", p)
	}
	return nil
}
