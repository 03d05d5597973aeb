package runs

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

func (a commands) answer() *cobra.Command {
	var call, thread string
	cmd := &cobra.Command{
		Use: "answer RUN [TEXT]", Short: "Answer what an agent, or a program that it calls, asks",
		Long: `Answer the question that a run waits for. TEXT may be the number of one of the
options. To a form, TEXT is a JSON object, or the value of its only field.
Without TEXT the question is shown, and on a terminal the answer is read. To give
none: skete approve RUN CALL --reject WHY.`,
		Example: "  skete answer last\n  skete answer RUN 2\n  skete answer RUN 'SQLite, but keep the schema portable'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			r := c.Run(run.ID)
			p, err := a.question(ctx, r, call, thread)
			if err != nil {
				return err
			}
			text := strings.TrimSpace(strings.Join(args[1:], " "))
			if text == "" {
				if text, err = a.readAnswer(p); err != nil {
					return err
				}
			}
			return a.giveAnswer(ctx, r, p, text)
		},
	}
	cmd.Flags().StringVar(&call, "call", "", "of this call, when there are several questions")
	cmd.Flags().StringVar(&thread, "thread", "", "of this sub-agent's thread, when two calls have the same id")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

// question finds the one question that is meant.
func (a commands) question(ctx context.Context, r *client.Run, call, thread string) (api.Approval, error) {
	open, err := r.Approvals(ctx)
	if err != nil {
		return api.Approval{}, err
	}
	var questions []api.Approval
	for _, p := range open {
		if p.Ask == api.AskQuestion || p.Ask == api.AskForm {
			questions = append(questions, p)
		}
	}
	if len(questions) == 0 && len(open) > 0 {
		return api.Approval{}, errs.New(errs.NotFound, "the run asks no question, but a call waits for approval").WithHint("`skete approve %s`", r.ID)
	}
	if len(questions) == 0 {
		return api.Approval{}, errs.New(errs.NotFound, "the run asks no question")
	}
	return a.choose(questions, call, thread)
}

// readAnswer shows the question and reads a line.
func (a commands) readAnswer(p api.Approval) (string, error) {
	for _, line := range screen.AskLines(p.Ask, p.Args) {
		fmt.Fprintln(a.Out, line)
	}
	if _, ok := a.Terminal(); !ok || !a.HasKeyboard() {
		return "", usage("what is the answer?").WithHint("`skete answer %s TEXT`, or the number of an option", p.Run)
	}
	fmt.Fprint(a.Out, "> ")
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", errs.Wrap(errs.Invalid, err, "nothing was answered")
	}
	return line, nil
}

func (a commands) giveAnswer(ctx context.Context, r *client.Run, p api.Approval, text string) error {
	options := screen.QuestionOf(p.Args).Options
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		text = options[n-1]
	}
	done, err := r.Decide(ctx, api.Decide{Call: p.Call, Thread: p.Thread, Decision: api.DecisionRespond, Text: text, ArgsHash: p.ArgsHash})
	if err != nil {
		return err
	}
	if a.JSON {
		return app.PrintJSON(a.Out, done)
	}
	a.Note("%s: answered", app.Cell(p.Call))
	return nil
}
