package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/vm"
	"github.com/skete-dev/skete/errs"
)

// graceDefault is how long a server may take to end in order: its requests
// under way have 15 s, and its parts are closed then.
const graceDefault = "60s"

// stopped is what `skete stop --json` prints.
type stopped struct {
	PID       int            `json:"pid,omitempty"` // 0 = no server ran
	Ended     bool           `json:"ended"`         // false: it still does
	Killed    bool           `json:"killed,omitempty"`
	Sandboxes map[string]int `json:"sandboxes"` // that go on without it, or wait
	Runs      map[string]int `json:"runs"`      // that wait for the next one
}

type stopFlags struct {
	wait, force bool
	timeout     string
}

func (a program) stop() *cobra.Command {
	var f stopFlags
	sandboxes := vm.Stop(a.App)
	cmd := &cobra.Command{
		Use: "stop [ID…]", Short: "End the server of this data directory, in order; or stop sandboxes",
		Long: `With a sandbox, or with --all or --vm, it is ` + "`skete vm stop`" + `: machines end, their
workspaces are kept. Alone it is about the server.

End the server of the data directory, in the background or not: it takes no new
requests, finishes those under way, and lets go of its machines. Sandboxes and
the commands in them go on, and the next server finds them; while none runs
nothing is paused, expires, or is recorded. Runs of agents wait for the next
server and go on then. ` + "`skete vm stop --all`" + ` before this ends the machines too.

It waits until the server has ended. One that does not within --timeout is left
alone, and the status is 125; with --force it is killed, which loses nothing
that was acknowledged. Where no server runs the status is 0.`,
		Example: `  skete stop
  skete stop ID
  skete stop --wait=false
  skete stop --timeout 10s --force`,
		ValidArgsFunction: sandboxes.ValidArgsFunction,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 || cmd.Flags().Changed("all") || cmd.Flags().Changed("vm") {
				return sandboxes.RunE(cmd, args)
			}
			return a.stopServer(cmd.Context(), f)
		},
	}
	cmd.Flags().AddFlagSet(sandboxes.Flags())
	cmd.Flags().BoolVar(&f.wait, "wait", true, "until it has ended")
	cmd.Flags().BoolVar(&f.force, "force", false, "kill it if it has not ended within --timeout")
	cmd.Flags().StringVar(&f.timeout, "timeout", graceDefault, "how long to wait: 30, 90s, 5m")
	return cmd
}

func (a program) stopServer(ctx context.Context, f stopFlags) error {
	ms, err := app.Milliseconds("timeout", f.timeout)
	if err != nil {
		return err
	}
	if !a.Local() {
		return errs.New(errs.Invalid, "the server at %.80q is not that of a data directory here", a.URL).
			WithHint("leave --url and SKETE_URL out, or stop it where it runs")
	}
	p, err := launch.Holder(ctx, a.Home)
	if err != nil {
		return err
	}
	if p == nil {
		return a.sayStopped(stopped{}, fmt.Sprintf("no server of %s runs", a.Home))
	}
	defer p.Close()
	result := stopped{PID: p.PID, Sandboxes: map[string]int{}, Runs: map[string]int{}}
	if st, err := a.look(ctx); err == nil {
		result.Sandboxes, result.Runs = st.Sandboxes, st.Runs
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.Signal(unix.SIGTERM); err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if !f.wait {
		return a.sayStopped(result, fmt.Sprintf("the server (pid %d) ends%s", p.PID, result.after()))
	}
	if err := a.awaitEnd(ctx, p, time.Duration(ms)*time.Millisecond, f.force, &result); err != nil {
		return err
	}
	result.Ended = true
	how := "has ended"
	if result.Killed {
		how = "was killed"
	}
	return a.sayStopped(result, fmt.Sprintf("the server (pid %d) %s%s", p.PID, how, result.after()))
}

func (a program) awaitEnd(ctx context.Context, p *launch.Process, grace time.Duration, force bool, result *stopped) error {
	patience, cancel := context.WithTimeoutCause(ctx, grace, errPatience)
	defer cancel()
	err := p.Wait(patience)
	if !errors.Is(err, errPatience) {
		return err
	}
	if !force {
		return errs.New(errs.Unavailable, "the server (pid %d) has not ended within %s", p.PID, grace).
			WithHint("it may still; its log is %s; `skete stop --force` kills it, which loses nothing that was acknowledged", launch.LogPath(a.Home))
	}
	result.Killed = true
	if err := p.Signal(unix.SIGKILL); err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	return p.Wait(ctx)
}

var errPatience = errors.New("the time to wait has run out")

// after says what there is without a server.
func (r stopped) after() string {
	var parts []string
	goOn := r.Sandboxes["running"] + r.Sandboxes["creating"]
	if goOn > 0 {
		parts = append(parts, fmt.Sprintf("%s, with the commands in %s", plural(goOn, "sandbox goes on", "sandboxes go on"), oneOrMore(goOn, "it", "them")))
	}
	n := 0
	for _, k := range r.Runs {
		n += k
	}
	if n > 0 {
		parts = append(parts, plural(n, "run waits", "runs wait")+" for the next server")
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, "; ")
}

func plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, oneOrMore(n, one, many)) }

func oneOrMore(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func (a program) sayStopped(r stopped, text string) error {
	if a.JSON {
		return app.PrintJSON(a.Out, r)
	}
	a.Note("%s", text)
	return nil
}
