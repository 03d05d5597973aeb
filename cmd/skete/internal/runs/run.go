package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/picture"
)

// Bounds of what is read.
const (
	taskBytesMax   = 512 << 10
	schemaBytesMax = 64 << 10
)

// runFlags are what can be said about a run.
type runFlags struct {
	req                                api.StartRun
	budget                             budgetFlags
	check                              api.RunCheck
	images                             []string
	labels                             []string
	file, schema, definition           string
	sandbox, lang, mem, disk           string
	cpus                               float64
	template, provider, needs, network string
	detach                             bool
	approve                            string
	program                            programFlags
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
t answer in its place), and a question is answered (its number, or t). m writes a
message: Alt-Enter begins a new line, the arrow up recalls the one before, and Tab
goes on with a file behind @. Elsewhere the command ends with status 3, and
` + "`skete approve`" + ` decides. With -q only the result is printed.

With --plan only tools that read can be used until you have accepted a plan, whose
steps become the todos. With --check the run succeeds only when that command exits
with 0 in its sandbox, with --rubric when a critic finds that to be true; until then
the agent is told what is missing and goes on. A picture is shown to the model with
--image, or as @FILE in the task.

Its sandbox is named run- and the first characters of the run's id; ` + "`skete ls`" + `
shows it. It is stopped ten minutes after the run's end, or its last use, with
its files and their history kept. --keep leaves it as it is; the agent's
definition can say otherwise (after_run).

With --in-sandbox the agent itself works in its sandbox too, not on the server: what a
model makes it do can reach nothing else. It has at most five minutes if --timeout does
not say otherwise, and its own sandbox is removed at the end unless --keep is given.

With --program a program works in the place of a model: an agent of your own or of
somebody else's, whose output is shown as it comes. It finds the task in SKETE_TASK or
where {task} stands, and models of the server by OPENAI_BASE_URL, ANTHROPIC_BASE_URL
and GOOGLE_GEMINI_BASE_URL, without a key (skete help models). Its sandbox is removed when
it is over, unless --keep is given. --inject puts files of a directory there before.
` + exitCodes,
		Example: `  skete run 'Fix the failing test in /workspace'
  skete run --agent reviewer --file task.md --budget-cost 0.50
  git diff | skete run - --title review -q
  id=$(skete run -d 'Write a report on the logs') && skete attach $id
  skete run --plan 'Split the parser into a package of its own'
  skete run --check 'make test' 'Make the tests pass'
  skete run --image shot.png 'Why is the button cut off?'
  skete run --sandbox ID 'Say what this project does' --json
  skete run --in-sandbox 'Find out what this archive does: /workspace/a.tgz'
  skete run --program 'node agent.js' --inject ./agent 'Write a haiku into haiku.txt'
  skete run 'List three prime numbers' --schema primes.json -q`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.startRun(cmd.Context(), &f, args)
		},
	}
	flags := cmd.Flags()
	a.startFlags(cmd, &f)
	flags.StringVar(&f.definition, "definition", "", "a definition in this file (YAML, Markdown or JSON) in place of --agent, - is stdin")
	flags.StringArrayVar(&f.images, "image", nil, "show this `file` to the model: PNG, JPEG, GIF, WebP (may be repeated)")
	flags.StringVar(&f.schema, "schema", "", "JSON Schema of the result, in this file")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the run's id and leave it running")
	f.program.flags(cmd)
	flags.StringVar(&f.approve, "approve", "ask", "what to do when a call needs approval: ask, all (allow), none (reject)")
	_ = cmd.RegisterFlagCompletionFunc("approve", cobra.FixedCompletions([]string{"ask", "all", "none"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// startFlags are those of every command that asks for runs.
func (a commands) startFlags(cmd *cobra.Command, f *runFlags) {
	flags := cmd.Flags()
	flags.StringVarP(&f.req.Agent, "agent", "a", "", "which agent (default the one that is called default): see skete agent list")
	flags.StringVarP(&f.req.Model, "model", "m", "", "which model (default the agent's, then the server's choice)")
	flags.StringVar(&f.req.Thread, "thread", "", "go on with this conversation: the thread of an earlier run, see skete show --json")
	flags.StringVar(&f.req.Title, "title", "", "what lists show (default the first line of the task)")
	flags.StringArrayVar(&f.labels, "label", nil, "label `key=value` (may be repeated)")
	flags.StringVarP(&f.file, "file", "f", "", "read the task from this file, - is stdin")
	flags.BoolVar(&f.req.Plan, "plan", false, "see a plan first: only tools that read until it is accepted")
	flags.StringVar(&f.check.Command, "check", "", "succeed only when this `command` exits with 0")
	flags.StringVar(&f.check.Rubric, "rubric", "", "succeed only when a critic finds this `text` to be true of the work")
	f.budget.flags(cmd, "budget-", "at most so many")
	flags.StringVar(&f.budget.wall, "timeout", "", "at most so long, waiting for people not counted: 10m, 2h")
	flags.StringVar(&f.sandbox, "sandbox", "", "work in this sandbox: id, beginning of an id, or name")
	flags.StringVar(&f.sandbox, "vm", "", "same as --sandbox")
	flags.StringVar(&f.lang, "lang", "", "language of its own sandbox: python, node, go, ruby")
	flags.StringVar(&f.mem, "mem", "", "memory of its own sandbox: 512, 2g")
	flags.StringVar(&f.disk, "disk", "", "disk of its own sandbox: 2g")
	flags.Float64Var(&f.cpus, "cpus", 0, "cpus of its own sandbox")
	flags.StringVar(&f.template, "template", "", "template of its own sandbox")
	flags.StringVar(&f.provider, "provider", "", "provider of its own sandbox")
	flags.StringVar(&f.network, "network", "", "what leaves its own sandbox: none, default, open, or a file of rules (see skete vm create --help)")
	flags.StringVar(&f.needs, "require", "", "isolation that its own sandbox must have at least")
	flags.BoolVar(&f.req.InSandbox, "in-sandbox", false, "let the agent itself work in its sandbox too, not on the server")
	flags.BoolVar(&f.req.Keep, "keep", false, "leave its own sandbox as it is when the run is over")
	_ = flags.MarkHidden("vm")
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
	done, err := f.program.prepare(ctx, a, c, &req)
	if err != nil {
		return err
	}
	run, err := c.StartRun(ctx, req)
	if err != nil {
		done()
		if errs.Is(err, errs.Invalid) {
			err = &app.Coded{Status: exitUsage, Err: err}
		}
		return err
	}
	err = a.started(ctx, c, run, f.detach, f.approve)
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeMax)
	defer cancel()
	if now, gerr := c.Run(run.ID).Get(looking); gerr == nil && now.Final() { // else it goes on by itself
		done()
	}
	return err
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
	if req.Images, err = a.images(f.images, req.Task); err != nil {
		return req, err
	}
	if f.check != (api.RunCheck{}) {
		req.Check = &f.check
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
	if err = f.program.check(f); err != nil {
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

// images reads the files that are named, and those that stand as @FILE in the text.
func (a commands) images(files []string, text string) ([]api.Image, error) {
	var images []api.Image
	for _, name := range files {
		data, err := readImage(name)
		if err != nil {
			return nil, &app.Coded{Status: exitUsage, Err: err}
		}
		images = append(images, api.Image{Data: data})
	}
	for word := range strings.FieldsSeq(text) {
		name, is := strings.CutPrefix(strings.TrimRight(word, ".,;:?!)'\""), "@")
		if !is || !isImageName(name) {
			continue
		}
		data, err := readImage(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent may know it, in its sandbox
		}
		if err != nil {
			return nil, &app.Coded{Status: exitUsage, Err: err}
		}
		a.Note("%s is shown to the model", name)
		images = append(images, api.Image{Data: data})
	}
	return images, nil
}

func isImageName(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
		return true
	}
	return false
}

// readImage reads a file that models can look at. It reads no more than may be shown.
func readImage(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the image %.80q cannot be read", name)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > picture.BytesMax {
		return nil, errs.New(errs.Limit, "the image %.80q has %s; at most %s can be shown", name, screen.Bytes(info.Size()), screen.Bytes(picture.BytesMax)).WithHint("make a smaller copy")
	}
	data, err := io.ReadAll(io.LimitReader(f, picture.BytesMax+1))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the image %.80q cannot be read", name)
	}
	if _, err := picture.Check(data); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%.80q: %s", name, errs.Public(err)).WithHint("%s", errs.Hint(err))
	}
	return data, nil
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
	network, rules, err := app.NetworkOf(f.network)
	if err != nil {
		return nil, err
	}
	if network != "" {
		spec["network"] = network
	}
	if rules != nil {
		spec["egress"] = rules
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
