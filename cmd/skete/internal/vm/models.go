package vm

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) vmModels() *cobra.Command {
	var t app.Target
	var set api.SetSandboxModels
	var none bool
	cmd := &cobra.Command{
		Use: "models [ID]", Short: "See and change which models the programs of a sandbox may use",
		Long: `Show which models of the host the programs of a sandbox may use, and what they have
used. With flags, change that from the next call on: what no flag names stays. Budgets
count all calls, those before too. Programs find models by OPENAI_BASE_URL,
ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL, which a machine has from its next start
on if it began without any. See skete help models.`,
		Example: "  skete vm models web\n  skete vm models web --model fast --model careful --usd 5\n  skete vm models web --usd 10\n  skete vm models web --none",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := app.AtMostOne(cmd, "none", "model"); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, sb, err := a.InOne(ctx, &t, args)
			if err != nil {
				return err
			}
			of := c.Sandbox(sb.ID)
			m, err := of.Models(ctx)
			if err != nil {
				return err
			}
			fs := cmd.Flags()
			changed := none
			for name, keep := range map[string]func(){
				"model": func() { set.Models = m.Models }, "tokens": func() { set.Tokens = m.Tokens },
				"usd": func() { set.CostUSD = m.CostUSD }, "per-minute": func() { set.PerMinute = m.PerMinute },
			} {
				if fs.Changed(name) {
					changed = true
				} else {
					keep()
				}
			}
			switch {
			case none:
				set = api.SetSandboxModels{Models: []string{}}
			case changed && len(set.Models) == 0:
				return errs.New(errs.Invalid, "sandbox %s may use no model: name one with --model", sb.ID)
			}
			if changed {
				if m, err = of.SetModels(ctx, set); err != nil {
					return err
				}
			}
			return a.printModels(m)
		},
	}
	t.Flags(cmd, false)
	fs := cmd.Flags()
	fs.StringArrayVar(&set.Models, "model", nil, "a model that they may use, in place of those before (may be repeated)")
	fs.Int64Var(&set.Tokens, "tokens", 0, "tokens that all calls may use; 0 = no bound")
	fs.Float64Var(&set.CostUSD, "usd", 0, "US dollars that all calls may cost; 0 = no bound")
	fs.IntVar(&set.PerMinute, "per-minute", 0, "calls in a minute; 0 = no bound")
	fs.BoolVar(&none, "none", false, "they may use none")
	return a.WithCompletion(cmd, 1)
}

func (a commands) printModels(m api.SandboxModels) error {
	if a.JSON {
		return app.PrintJSON(a.Out, m)
	}
	of := func(bound bool, format string, v any) string {
		if !bound {
			return ""
		}
		return " of " + fmt.Sprintf(format, v)
	}
	may := "none"
	if len(m.Models) > 0 {
		may = app.Printable(strings.Join(m.Models, ", "))
	}
	if m.PerMinute > 0 {
		may += fmt.Sprintf(", %d calls a minute", m.PerMinute)
	}
	_, err := fmt.Fprintf(a.Out, "models  %s\nused    %d calls, %d%s tokens, $%.4f%s\n", may, m.Used.Calls,
		m.Used.Tokens, of(m.Tokens > 0, "%d", m.Tokens), m.Used.CostUSD, of(m.CostUSD > 0, "$%.2f", m.CostUSD))
	return err
}
