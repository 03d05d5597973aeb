package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/secret"
)

// This file is the command group `skete secret`: values that sandboxes use and never see.

// secretCommands are the commands of one run.
type secretCommands struct{ *app.App }

// SecretCommand returns the group.
func SecretCommand(run *app.App) *cobra.Command {
	a := secretCommands{run}
	cmd := app.Group("secret", "Keep tokens and passwords that sandboxes use and never see", `  skete secret set forge --host git.example.com --basic git < token.txt
  skete secret set search --host api.example.com --header X-Api-Key --path '/v1/**'
  skete secret set mail --oauth login.example.com/oauth/token --basic client-id --host mail.example.com
  skete secret list
  skete secret grant forge --host api.git.example.com
  skete secret rm forge`)
	cmd.AddCommand(a.set(), a.list(), a.show(), a.grant(), a.use(), a.remove())
	return cmd
}

// grantFlags are a grant as flags say it.
type grantFlags struct {
	hosts, methods, paths, agents, sandboxes []string
	oauth                                    []string
	bearer, aws                              bool
	basic, header, query, env                string
}

func (f *grantFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.hosts, "host", nil, "HOST[:PORT] that it is sent to, or *.NAME for all names beneath it (may be repeated)")
	fs.StringArrayVar(&f.oauth, "oauth", nil, "HOST[:PORT]/PATH of a token endpoint that it is sent to: the tokens stay on the host, and are sent to each --host in its place (may be repeated)")
	fs.StringArrayVar(&f.methods, "method", nil, "with these methods alone (may be repeated)")
	fs.StringArrayVar(&f.paths, "path", nil, "with these paths alone: * is a part, ** any number of parts (may be repeated)")
	fs.StringArrayVar(&f.agents, "agent", nil, "in the sandboxes of these agents' runs alone (may be repeated)")
	fs.StringArrayVar(&f.sandboxes, "sandbox", nil, "in these sandboxes alone, by name or id (may be repeated)")
	fs.StringVar(&f.env, "env", "", "set this variable of new machines to a word that stands for it, for programs that send nothing without")
	fs.BoolVar(&f.bearer, "bearer", false, "send it as Authorization: Bearer VALUE (the default)")
	fs.StringVar(&f.basic, "basic", "", "send it as the password of this user, as git does")
	fs.StringVar(&f.header, "header", "", "send it in this header")
	fs.StringVar(&f.query, "query", "", "send it in this parameter of the URL")
	fs.BoolVar(&f.aws, "aws", false, "sign requests anew with it, which programs have signed (Signature Version 4); the value is ID:SECRET or ID:SECRET:SESSION")
}

// grants are what the flags of a command say: one for each host.
func (f *grantFlags) grants(cmd *cobra.Command) ([]api.SecretGrant, error) {
	if err := app.AtMostOne(cmd, "bearer", "basic", "header", "query", "aws"); err != nil {
		return nil, err
	}
	as, key := secret.Bearer, ""
	for way, k := range map[secret.As]string{secret.Basic: f.basic, secret.Header: f.header, secret.Query: f.query} {
		if k != "" {
			as, key = way, k
		}
	}
	if f.aws {
		as = secret.AWS
	}
	if f.aws && len(f.oauth) > 0 {
		return nil, app.Usage(2, "--aws and --oauth do not go together").WithHint("tokens sign nothing; set another secret to sign")
	}
	usual := api.SecretGrant{As: string(as), Key: key, Env: f.env, Agents: f.agents, Sandboxes: f.sandboxes}
	var list []api.SecretGrant
	for _, at := range f.oauth {
		host, path, ok := strings.Cut(at, "/")
		if !ok {
			return nil, app.Usage(2, "--oauth: %.80q has no path", at).WithHint("name the token endpoint as login.example.com/oauth/token")
		}
		g := usual
		g.OAuth, g.Paths = true, []string{"/" + path}
		if err := grantAt(&g, host); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	if len(f.oauth) > 0 { // it is sent there alone, and tokens elsewhere
		usual.As, usual.Key = string(secret.Bearer), ""
	}
	usual.Methods, usual.Paths = f.methods, f.paths
	for _, h := range f.hosts {
		g := usual
		if err := grantAt(&g, h); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

// grantAt says where a grant is for: HOST[:PORT].
func grantAt(g *api.SecretGrant, at string) error {
	host, port, err := hostPort(at)
	if g.Host = host; port != 0 {
		g.Ports = []int{port}
	}
	return err
}

func (a secretCommands) set() *cobra.Command {
	var f grantFlags
	var file, ttl string
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Set a secret, or a new version of it",
		Long: `Set a secret, or a new version of it. The value is read from the standard input,
or asked for; it is never an argument, which others could see. It is not shown
again. Grants that it has stay, unless --host or --oauth says others. It is sent
over TLS alone, and where the sandbox's network policy allows the request.

With --oauth it is the secret of an OAuth client, which is sent to the token
endpoint alone, as --basic, --bearer, --header or --query says. The sandbox gets
placeholders of the tokens; each --host gets the tokens, as bearer.`,
		Example: "  skete secret set forge --host git.example.com --basic git < token.txt\n  skete secret set search --host api.example.com --header X-Api-Key --ttl 24h\n  skete secret set mail --oauth login.example.com/oauth/token --basic client-id --host mail.example.com < client-secret.txt\n  skete secret set forge --from-file token.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			grants, err := f.grants(cmd)
			if err != nil {
				return err
			}
			p := api.PutSecret{}
			if len(grants) > 0 {
				p.Grants = &grants
			}
			if p.TTLMS, err = ttlOf(ttl); err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			if p.Value, err = a.value(args[0], file); err != nil {
				return err
			}
			sec, err := c.PutSecret(cmd.Context(), args[0], p)
			if err != nil {
				return err
			}
			return a.print(sec)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&file, "from-file", "", "read the value from this file; - is the standard input")
	cmd.Flags().StringVar(&ttl, "ttl", "", "how long it is sent from now on, as 24h, or forever (default 168h)")
	return cmd
}

// ttlOf reads --ttl.
func ttlOf(s string) (int64, error) {
	if s == "forever" {
		return -1, nil
	}
	ms, err := app.Milliseconds("ttl", s)
	if err == nil && s != "" && ms <= 0 {
		err = app.Usage(2, "--ttl: %s is no time", s).WithHint("give a time as 24h, or forever")
	}
	return ms, err
}

// value reads a secret: from a file, the keyboard, or the standard input. One new line at
// its end is not part of it.
func (a secretCommands) value(name, file string) (string, error) {
	var data []byte
	var err error
	switch {
	case file != "" && file != "-":
		data, err = readValue(file)
	case a.HasKeyboard():
		_, _ = fmt.Fprintf(a.Err, "value of %s (not shown): ", name)
		data, err = term.ReadPassword(int(a.In.Fd()))
		_, _ = fmt.Fprintln(a.Err)
	case a.In == nil:
		err = errors.New("there is no standard input")
	default:
		data, err = io.ReadAll(io.LimitReader(a.In, secret.ValueMax+2))
	}
	if err != nil {
		return "", errs.Wrap(errs.Invalid, err, "the value cannot be read")
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	switch {
	case len(data) == 0:
		return "", errs.New(errs.Invalid, "the value is empty").WithHint("give it on the standard input: skete secret set %s < FILE", name)
	case len(data) > secret.ValueMax:
		return "", errs.New(errs.Invalid, "the value is longer than %d bytes", secret.ValueMax)
	}
	return string(data), nil
}

func readValue(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, secret.ValueMax+2))
}

func (a secretCommands) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the secrets, never their values",
		Example: "  skete secret list\n  skete secret list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.Secrets(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, list, func(s api.Secret) string { return s.Name }, []string{"NAME", "VERSION", "EXPIRES", "SENT TO"}, func(s api.Secret) []string {
				hosts := []string{}
				for _, g := range s.Grants {
					hosts = append(hosts, hostsText(g))
				}
				if s.Problem != "" {
					hosts = []string{s.Problem}
				}
				return []string{s.Name, strconv.Itoa(s.Version), expiryText(s), strings.Join(hosts, " ")}
			})
		},
	}
}

func expiryText(s api.Secret) string {
	switch {
	case s.ExpiresAt == nil:
		return "never"
	case time.Now().After(*s.ExpiresAt):
		return "expired"
	}
	return app.Until(s.ExpiresAt)
}

// print shows all that is known of a secret.
func (a secretCommands) print(s api.Secret) error {
	if a.JSON {
		return app.PrintJSON(a.Out, s)
	}
	lines := []string{fmt.Sprintf("secret  %s, version %d of %d kept, expires %s", s.Name, s.Version, len(s.Versions), expiryText(s))}
	if s.Problem != "" {
		lines = append(lines, "problem "+s.Problem)
	}
	for _, g := range s.Grants {
		lines = append(lines, "grant   "+grantText(g))
	}
	if len(s.Grants) == 0 {
		lines = append(lines, "it is sent nowhere: skete secret grant "+s.Name+" --host HOST")
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(a.Out, app.Printable(l)); err != nil {
			return err
		}
	}
	return nil
}

func hostsText(g api.SecretGrant) string {
	parts := []string{g.Host}
	for _, p := range g.Ports {
		parts = append(parts, strconv.Itoa(p))
	}
	return strings.Join(parts, ":")
}

// grantText is a grant on one line.
func grantText(g api.SecretGrant) string {
	parts := []string{strings.TrimSpace(hostsText(g) + " as " + g.As + " " + g.Key)}
	if g.OAuth {
		parts = append(parts, "token endpoint")
	}
	for _, part := range []struct {
		word string
		list []string
	}{{"methods", g.Methods}, {"paths", g.Paths}, {"agents", g.Agents}, {"sandboxes", g.Sandboxes}} {
		if len(part.list) > 0 {
			parts = append(parts, part.word+" "+strings.Join(part.list, " "))
		}
	}
	if g.Env != "" {
		parts = append(parts, "stands in "+g.Env)
	}
	return strings.Join(parts, ", ")
}

func (a secretCommands) show() *cobra.Command {
	return app.With(a.App, &cobra.Command{
		Use: "show NAME", Short: "Show where a secret is sent to, never its value",
		Example: "  skete secret show forge",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Secret, error) {
		return c.Secret(ctx, args[0])
	}, a.print)
}

func (a secretCommands) grant() *cobra.Command {
	var f grantFlags
	var remove bool
	var cmd *cobra.Command
	cmd = app.With(a.App, &cobra.Command{
		Use: "grant NAME", Short: "Send a secret to a host too, from the next request on",
		Long:    "Send a secret to a host too, or with --remove no more, from the next request on. A grant for a host takes the place of the one that the host had.",
		Example: "  skete secret grant forge --host api.git.example.com --method GET\n  skete secret grant forge --host git.example.com --basic git --sandbox web\n  skete secret grant forge --host git.example.com --remove",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Secret, error) {
		grants, err := f.grants(cmd)
		if err != nil {
			return api.Secret{}, err
		}
		s, err := c.Secret(ctx, args[0])
		if err != nil {
			return s, err
		}
		next, err := granted(s.Grants, grants, remove)
		if err != nil {
			return s, err
		}
		return c.ChangeSecret(ctx, args[0], api.ChangeSecret{Grants: &next})
	}, a.print)
	f.register(cmd)
	cmd.Flags().BoolVar(&remove, "remove", false, "take the grants for these hosts away")
	cmd.MarkFlagsOneRequired("host", "oauth")
	return cmd
}

// granted puts grants in the place of those for the same hosts, or takes those away.
func granted(list, grants []api.SecretGrant, remove bool) ([]api.SecretGrant, error) {
	same := func(x, y api.SecretGrant) bool {
		return x.Host == y.Host && slices.Equal(x.Ports, y.Ports) && x.OAuth == y.OAuth && (!x.OAuth || slices.Equal(x.Paths, y.Paths))
	}
	next := slices.Clone(list)
	for _, g := range grants {
		before := len(next)
		next = slices.DeleteFunc(next, func(x api.SecretGrant) bool { return same(x, g) })
		switch {
		case !remove:
			next = append(next, g)
		case len(next) == before:
			return nil, errs.New(errs.NotFound, "it is not granted for %s", hostsText(g))
		}
	}
	endpoint := func(g api.SecretGrant) bool { return g.OAuth }
	if slices.ContainsFunc(list, endpoint) && !slices.ContainsFunc(next, endpoint) && len(next) > 0 {
		return nil, errs.New(errs.Invalid, "without a token endpoint the secret itself would be sent to its other hosts").WithHint("take their grants away first, or forget the secret: `skete secret rm NAME`")
	}
	return next, nil
}

func (a secretCommands) use() *cobra.Command {
	return app.With(a.App, &cobra.Command{
		Use: "use NAME VERSION", Short: "Send another version that is kept, from the next request on",
		Example: "  skete secret use forge 2",
		Args:    cobra.ExactArgs(2),
	}, func(ctx context.Context, c *client.Client, args []string) (api.Secret, error) {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 {
			return api.Secret{}, app.Usage(2, "%.40q is no version", args[1]).WithHint("skete secret show %s says which are kept", args[0])
		}
		return c.ChangeSecret(ctx, args[0], api.ChangeSecret{Version: n})
	}, a.print)
}

func (a secretCommands) remove() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Forget secrets with all their versions",
		Example: "  skete secret rm forge search",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := c.DeleteSecret(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
