package vm

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
)

// This file is the command group `skete egress`: what may leave a sandbox.

// egressCommands are the commands of one run.
type egressCommands struct{ *app.App }

// EgressCommand returns the group.
func EgressCommand(run *app.App) *cobra.Command {
	a := egressCommands{run}
	cmd := app.Group("egress", "See and change what may leave a sandbox", `  skete vm create --network open
  skete egress log ID
  skete egress allow ID api.example.com
  skete egress allow ID '*.example.com' --read
  skete egress deny ID telemetry.example.com
  skete egress show ID`)
	cmd.AddCommand(a.show(), a.log(), a.change("allow"), a.change("deny"))
	return cmd
}

// ruleText is a rule on one line.
func ruleText(r api.NetworkRule) string {
	return egress.Rule{Host: r.Host, Ports: r.Ports, Access: egress.Access(r.Access), Methods: r.Methods, Paths: r.Paths, Pinned: r.Pinned}.String()
}

func (a egressCommands) show() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "show [ID]", Short: "Show what may leave a sandbox",
		Example: "  skete egress show ID\n  skete egress show ID --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.sandbox(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			p, err := sb.Network(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(p)
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}

func (a egressCommands) sandbox(ctx context.Context, t *app.Target, args []string) (*client.Sandbox, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := a.One(ctx, c, t, args)
	if err != nil {
		return nil, err
	}
	return c.Sandbox(sb.ID), nil
}

func (a egressCommands) print(p api.NetworkPolicy) error {
	if a.JSON {
		return app.PrintJSON(a.Out, p)
	}
	what := map[string]string{
		egress.None:    "nothing leaves it but what is allowed here",
		egress.Default: "it reads where packages and public repositories are, and nothing else but what is allowed here",
		egress.Open:    "everything to public addresses leaves it but what is denied here",
	}[p.Profile]
	if _, err := fmt.Fprintf(a.Out, "profile %s: %s\n", p.Profile, what); err != nil {
		return err
	}
	for _, r := range p.Usual {
		if _, err := fmt.Fprintf(a.Out, "usual   %s\n", app.Printable(ruleText(r))); err != nil {
			return err
		}
	}
	for _, r := range p.Allow {
		if _, err := fmt.Fprintf(a.Out, "allow   %s\n", app.Printable(ruleText(r))); err != nil {
			return err
		}
	}
	for _, r := range p.Deny {
		if _, err := fmt.Fprintf(a.Out, "deny    %s\n", app.Printable(ruleText(r))); err != nil {
			return err
		}
	}
	return nil
}

func (a egressCommands) log() *cobra.Command {
	var t app.Target
	var refused bool
	cmd := &cobra.Command{
		Use: "log [ID]", Short: "List the last decisions about what a sandbox sent",
		Long:    "List the last decisions about what a sandbox sent, the oldest first; those alike in a row are one line.",
		Example: "  skete egress log ID\n  skete egress log ID --refused\n  skete egress log ID --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, err := a.sandbox(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			list, err := sb.NetworkLog(cmd.Context(), 0)
			if err != nil {
				return err
			}
			if refused {
				list = slices.DeleteFunc(list, func(d api.NetworkDecision) bool { return d.Allowed })
			}
			return app.List(a.App, list, func(d api.NetworkDecision) string { return d.Host }, []string{"AGE", "TIMES", "", "HOST", "REQUEST", "WHY"}, func(d api.NetworkDecision) []string {
				verdict, why := "allowed", d.Rule
				if !d.Allowed {
					verdict, why = "refused", d.Why
				}
				return []string{app.Age(d.Time), strconv.Itoa(d.Times), verdict, net.JoinHostPort(d.Host, strconv.Itoa(d.Port)), strings.TrimSpace(d.Method + " " + d.Path), why}
			})
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().BoolVar(&refused, "refused", false, "those alone that were refused")
	return a.WithCompletion(cmd, 1)
}

func (a egressCommands) change(verb string) *cobra.Command {
	var t app.Target
	var r api.NetworkRule
	var read, remove bool
	short := map[string]string{"allow": "Allow a host, from the next request on", "deny": "Deny a host, from the next request on"}[verb]
	cmd := &cobra.Command{
		Use: verb + " [ID] HOST[:PORT]", Short: short,
		Long: short + `. HOST is a name, *.NAME for all names beneath it, or an
address. A rule that denies wins over those that allow.`,
		Example: "  skete egress " + verb + " ID api.example.com\n  skete egress " + verb + " ID '*.example.com' --method GET --path '/v1/**'\n  skete egress " + verb + " ID api.example.com --remove",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			host, port, err := hostPort(args[last])
			if err != nil {
				return err
			}
			if r.Host = host; port != 0 {
				r.Ports = append(r.Ports, port)
			}
			if read {
				r.Access = string(egress.Read)
			}
			sb, err := a.sandbox(cmd.Context(), &t, args[:last])
			if err != nil {
				return err
			}
			p, err := sb.Network(cmd.Context())
			if err != nil {
				return err
			}
			list := &p.Allow
			if verb == "deny" {
				list = &p.Deny
			}
			*list, err = changed(*list, r, remove)
			if err != nil {
				return err
			}
			if p, err = sb.SetNetwork(cmd.Context(), p); err != nil {
				return err
			}
			return a.print(p)
		},
	}
	t.Flags(cmd, false)
	fs := cmd.Flags()
	fs.StringArrayVar(&r.Methods, "method", nil, "these methods alone (may be repeated)")
	fs.StringArrayVar(&r.Paths, "path", nil, "these paths alone: * is a part, ** any number of parts (may be repeated)")
	fs.BoolVar(&remove, "remove", false, "take the rules about this host away")
	if verb == "allow" {
		fs.BoolVar(&read, "read", false, "reading alone: GET, HEAD, OPTIONS, and what git fetches with")
		fs.BoolVar(&r.Pinned, "pinned", false, "pass connections on as they are, for programs that insist on the host's own certificate")
	}
	return a.WithCompletion(cmd, 1)
}

// hostPort splits HOST[:PORT]; an address of IPv6 has no port without brackets.
func hostPort(s string) (host string, port int, err error) {
	h, p, err := net.SplitHostPort(s)
	if err != nil || strings.Contains(s, "/") { // a URL: what is wrong with it is said where hosts are known
		return strings.Trim(s, "[]"), 0, nil
	}
	port, err = strconv.Atoi(p)
	if err != nil {
		return "", 0, errs.New(errs.Invalid, "%.40q is no port", p)
	}
	return h, port, nil
}

// changed adds a rule, unless it is there, or takes those about its host away.
func changed(list []api.NetworkRule, r api.NetworkRule, remove bool) ([]api.NetworkRule, error) {
	if !remove {
		if slices.ContainsFunc(list, func(x api.NetworkRule) bool { return ruleText(x) == ruleText(r) }) {
			return list, nil
		}
		return append(list, r), nil
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(x api.NetworkRule) bool { return x.Host == r.Host })
	if len(rest) == len(list) {
		return nil, errs.New(errs.NotFound, "no such rule is about %s", r.Host)
	}
	return rest, nil
}
