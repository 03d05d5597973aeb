package vm

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) vmRun() *cobra.Command {
	var t app.Target
	var cf createFlags
	var ef execFlags
	cmd := &cobra.Command{
		Use: "run [ID] [flags] (--cmd LINE | --code PROGRAM | --file FILE | -- ARGV…)", Short: "Run a command in a sandbox, made for it if none is named",
		Long: `Run a command. With an ID, or --vm, it runs there, as ` + "`vm exec`" + ` does. Without,
a sandbox is made for it and kept for 5 minutes (--ttl), so that its files can
be looked at; its id is on stderr.`,
		Example: `  skete vm run --lang python --code 'open("answer", "w").write("42")'
  skete vm run --vm ID --cmd 'python3 main.py' --timeout 30
  skete vm run --lang node --file app.js`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, argv := app.Split(cmd, args)
			if len(words)+len(t.VM) > 0 {
				ef.env, ef.workdir, ef.lang = cf.env, cf.workdir, cf.lang
				return a.execIn(cmd.Context(), &t, &ef, words, argv)
			}
			return a.runNew(cmd.Context(), &cf, &ef, argv, false)
		},
	}
	t.Flags(cmd, false)
	cf.flags(cmd)
	ef.flags(cmd)
	return a.WithCompletion(cmd, 1)
}

func (a commands) vmTemp() *cobra.Command {
	var cf createFlags
	var ef execFlags
	cmd := &cobra.Command{
		Use: "temp [flags] (--cmd LINE | --code PROGRAM | --file FILE | -- ARGV…)", Short: "Make a sandbox, run a command in it, destroy it",
		Long: `Make a sandbox, run a command in it and destroy it, whatever happens: also after
an error, Ctrl-C or a timeout. Should this program be killed, the sandbox ends
after 5 minutes (--ttl) by itself.`,
		Example: `  skete vm temp --lang python --cmd 'python3 -c "print(6*7)"'
  skete vm temp --lang go --file main.go --timeout 60
  echo 'print(input())' | skete vm temp -- python3 -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, argv := app.Split(cmd, args)
			if len(words) > 0 {
				return errs.New(errs.Invalid, "what does %.40q mean?", words[0]).WithHint("put -- before the command: skete vm temp -- %s", strings.Join(words, " "))
			}
			ef.noRevision = true // its files go with it
			return a.runNew(cmd.Context(), &cf, &ef, argv, true)
		},
	}
	cf.flags(cmd)
	ef.flags(cmd)
	_ = cmd.Flags().MarkHidden("no-revision") // none is made
	return cmd
}

// runNew runs a command in a sandbox of its own.
func (a commands) runNew(ctx context.Context, cf *createFlags, ef *execFlags, argv []string, destroy bool) error {
	if _, err := ef.process(argv, app.Language(cf.lang)); err != nil {
		return err // before there is a sandbox
	}
	timeout, err := app.Milliseconds("timeout", ef.timeout)
	if err != nil {
		return err
	}
	req, err := cf.request(max(runTTL, time.Duration(timeout)*time.Millisecond+time.Minute))
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	if err := a.Prepare(ctx, c, req); err != nil {
		return err
	}
	told := a.TellTurns(ctx, c)
	sb, err := c.CreateSandbox(ctx, req)
	told()
	if err != nil {
		return err
	}
	a.WarnIsolation(sb)
	if !destroy {
		a.Note("skete: %s is kept (expires %s)", sb.ID, app.Until(sb.ExpiresAt))
		return a.execute(ctx, c, sb, ef, argv)
	}
	return errors.Join(a.execute(ctx, c, sb, ef, argv), a.destroy(ctx, c, sb))
}

// destroy removes a temporary sandbox, also when ctx has ended. A failure is
// said and no more: the sandbox ends by its TTL, and the command's status stays.
func (a commands) destroy(ctx context.Context, c *client.Client, sb api.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := c.Sandbox(sb.ID).WithoutRevisions().Destroy(ctx); err != nil {
		a.Complain(err)
		a.Note("skete: %s could not be destroyed; it ends by itself (%s)", sb.ID, app.Until(sb.ExpiresAt))
	}
	return nil
}
