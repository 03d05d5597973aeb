package runs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

// approveFlags say what is decided.
type approveFlags struct {
	edit, reject, respond string
	dismiss, always, all  bool
	thread                string
}

func (a commands) approve() *cobra.Command {
	var f approveFlags
	cmd := &cobra.Command{
		Use: "approve [RUN [CALL]]", Short: "Decide about tool calls that wait",
		Long: `Decide about a tool call that waits for a person: approve it, or with a flag
change its arguments, reject it, or answer in its place. A form that a program
asks for while a call runs is filled in with --respond. Without CALL the only one
that waits is meant; on a terminal a list is shown to choose from. Without RUN
everything that waits is listed.`,
		Example: `  skete approve                      # list what waits
  skete approve RUN                  # the only one
  skete approve RUN CALL --edit '{"command":"make -n"}'
  skete approve RUN CALL --reject 'not on a Friday'
  skete approve RUN CALL --respond 'the answer is 42'
  skete approve RUN CALL --respond '{"name":"Ada"}'   # of a form
  skete approve RUN --all
  skete approve RUN CALL --always    # and the same from now on`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.decision(cmd)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.listApprovals(cmd.Context())
			}
			c, run, err := a.with(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			call := ""
			if len(args) > 1 {
				call = args[1]
			}
			return a.decideOn(cmd.Context(), c.Run(run.ID), &f, d, call)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.edit, "edit", "", "run it with these arguments, a JSON object")
	fs.StringVar(&f.reject, "reject", "", "do not run it; the agent learns why")
	fs.StringVar(&f.respond, "respond", "", "do not run it; this text is its result. Of a form: what is filled in, JSON, or the value of its only field")
	fs.BoolVar(&f.dismiss, "dismiss", false, "of a form: neither fill it in nor refuse")
	fs.BoolVar(&f.always, "always", false, "approve the same from now on in this thread")
	fs.BoolVar(&f.all, "all", false, "decide about all that wait in the run")
	fs.StringVar(&f.thread, "thread", "", "of this sub-agent's thread, when two calls have the same id")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

// decision is what the flags say, without a call.
func (f *approveFlags) decision(cmd *cobra.Command) (api.Decide, error) {
	d := api.Decide{Decision: api.DecisionApprove, Always: f.always, Thread: f.thread}
	ways := 0
	for flag, decision := range map[string]string{"edit": api.DecisionEdit, "reject": api.DecisionReject, "respond": api.DecisionRespond, "dismiss": api.DecisionDismiss} {
		if cmd.Flags().Changed(flag) {
			d.Decision = decision
			ways++
		}
	}
	if ways > 1 || ways == 1 && f.always {
		return d, usage("one of --edit, --reject, --respond, --dismiss and --always")
	}
	switch d.Decision {
	case api.DecisionEdit:
		var object map[string]any
		if json.Unmarshal([]byte(f.edit), &object) != nil || object == nil {
			return d, usage("--edit needs a JSON object").WithHint(`for example: --edit '{"command":"ls"}'`)
		}
		if f.all {
			return d, usage("--edit is for one call")
		}
		d.Args = json.RawMessage(f.edit)
	case api.DecisionReject:
		d.Text = f.reject
	case api.DecisionRespond:
		if d.Text = f.respond; d.Text == "" {
			return d, usage("--respond needs a text")
		}
	}
	return d, nil
}

func (a commands) listApprovals(ctx context.Context) error {
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	items, err := c.Approvals(ctx)
	if err != nil {
		return err
	}
	if err := app.List(a.App, items, func(p api.Approval) string { return p.Run + " " + p.Call },
		[]string{"RUN", "CALL", "AGENT", "TOOL", "ARGUMENTS", "REASON", "AGE"}, approvalRow); err != nil || a.JSON || a.Quiet {
		return err
	}
	for _, p := range items {
		if argsText(p.Args, argsWidth) != argsText(p.Args, math.MaxInt) || len(screen.ArgLines(p.Args)) > 1 { // the row hides something
			fmt.Fprintf(a.Out, "\n%s %s %s:\n", p.Run, app.Cell(p.Call), askVerb(p.Ask))
			a.writeAsk(p)
		}
	}
	return nil
}

// writeAsk prints all that a person is asked.
func (a commands) writeAsk(p api.Approval) {
	for _, line := range screen.AskLines(p.Ask, p.Args) {
		fmt.Fprintf(a.Out, "  %s\n", line)
	}
}

// askVerb is what a call does that waits.
func askVerb(ask string) string {
	switch ask {
	case api.AskQuestion:
		return "asks"
	case api.AskPlan:
		return "plans"
	case api.AskForm:
		return "runs, and it is asked"
	}
	return "would do"
}

// argsWidth is how many columns of a row arguments have.
const argsWidth = 60

func approvalRow(p api.Approval) []string {
	return []string{p.Run, p.Call, p.Agent, p.Tool, argsText(p.Args, argsWidth), screen.Cut(strings.ReplaceAll(p.Reason, "\n", " "), 40), app.Age(p.AskedAt)}
}

func argsText(args json.RawMessage, width int) string {
	var b bytes.Buffer
	if json.Compact(&b, args) != nil {
		return ""
	}
	return screen.Cut(strings.ReplaceAll(screen.Exact(b.String()), "\n", " "), width)
}

// decideOn finds the calls that are meant, and decides.
func (a commands) decideOn(ctx context.Context, r *client.Run, f *approveFlags, d api.Decide, call string) error {
	if f.all && call != "" {
		return usage("--all and a call exclude each other")
	}
	open, err := r.Approvals(ctx)
	if err != nil {
		return err
	}
	chosen := open
	if !f.all {
		one, err := a.choose(open, call, f.thread)
		if err != nil {
			return err
		}
		chosen = []api.Approval{one}
	}
	if len(chosen) == 0 {
		a.Note("nothing waits in this run")
		return nil
	}
	var list []api.Decide
	var tools []string
	for _, p := range chosen {
		if (p.Ask == api.AskQuestion || p.Ask == api.AskForm) && d.Decision == api.DecisionApprove {
			if f.all {
				a.Note("%s asks a question: `skete answer %s TEXT`", app.Cell(p.Call), p.Run)
				continue
			}
			return usage("%s asks a question: it is answered, not approved", app.Cell(p.Call)).WithHint("`skete answer %s TEXT`", p.Run)
		}
		one := d
		one.Call, one.Thread, one.ArgsHash = p.Call, p.Thread, p.ArgsHash
		if d.Decision == api.DecisionApprove && !a.JSON && !a.Quiet {
			fmt.Fprintf(a.Out, "%s %s:\n", app.Cell(p.Call), app.Cell(p.Tool))
			a.writeAsk(p)
		}
		list, tools = append(list, one), append(tools, p.Tool)
	}
	if len(list) == 0 {
		return nil
	}
	done, err := r.Decide(ctx, list...)
	if a.JSON && done != nil {
		if perr := app.PrintJSON(a.Out, done); perr != nil {
			return perr
		}
		return err
	}
	for i, one := range list {
		if i < len(done) && done[i].OK {
			a.Note("%s: %s %s", app.Cell(one.Call), d.Decision, app.Cell(tools[i]))
		}
	}
	return err
}

// choose finds the one call that is meant.
func (a commands) choose(open []api.Approval, call, thread string) (api.Approval, error) {
	var fits []api.Approval
	for _, p := range open {
		if (call == "" || p.Call == call) && (thread == "" || p.Thread == thread) {
			fits = append(fits, p)
		}
	}
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) == 0 && call != "":
		return api.Approval{}, errs.New(errs.NotFound, "no call %.64q waits in this run", call).WithHint("`skete approve` lists what waits")
	case len(fits) == 0:
		return api.Approval{}, errs.New(errs.NotFound, "nothing waits in this run")
	case call != "":
		return api.Approval{}, usage("two sub-agents have a call %.64q that waits", call).WithHint("say which with --thread")
	}
	if _, ok := a.Terminal(); ok && a.HasKeyboard() {
		return a.ask(fits)
	}
	var names []string
	for _, p := range fits {
		names = append(names, p.Call)
	}
	return api.Approval{}, usage("%d calls wait", len(fits)).WithHint("name one, or --all: %s", strings.Join(names, " "))
}

// ask lets a person choose from a list.
func (a commands) ask(list []api.Approval) (api.Approval, error) {
	for i, p := range list {
		fmt.Fprintf(a.Out, "%2d  %s  %s\n", i+1, app.Cell(p.Tool), app.Cell(p.Reason))
		a.writeAsk(p)
	}
	fmt.Fprintf(a.Out, "which one (1 to %d)? ", len(list))
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil {
		return api.Approval{}, errs.New(errs.Invalid, "nothing was chosen")
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || n < 1 || n > len(list) {
		return api.Approval{}, usage("%.20q is none of them", strings.TrimSpace(line))
	}
	return list[n-1], nil
}
