package vm

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) vmPs() *cobra.Command {
	var t app.Target
	var all bool
	cmd := &cobra.Command{
		Use: "ps [ID]", Short: "List the commands of a sandbox, oldest first",
		Long:    "List the commands of a sandbox, oldest first. Ended ones are shown with --all.",
		Example: "  skete vm ps ID\n  skete vm ps ID --all --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, sb, err := a.InOne(ctx, &t, args)
			if err != nil {
				return err
			}
			items, err := client.All(c.Sandbox(sb.ID).Processes(ctx))
			if err != nil {
				return err
			}
			if !all {
				items = slices.DeleteFunc(items, func(p api.Process) bool { return p.State != "running" })
			}
			return app.List(a.App, items, func(p api.Process) string { return p.Key },
				[]string{"KEY", "PID", "STATE", "USER", "OUTPUT", "AGE", "COMMAND"}, processRow)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "ended ones too")
	return a.WithCompletion(cmd, 1)
}

func processRow(p api.Process) []string {
	state := p.State
	if p.Exit != nil {
		state = fmt.Sprintf("exited %d", p.Exit.Code)
		if p.Exit.Reason != "" {
			state += " (" + p.Exit.Reason + ")"
		}
	}
	line := strings.Join(p.Argv, " ")
	if r := []rune(line); len(r) > 60 {
		line = string(r[:59]) + "…"
	}
	return []string{p.Key, strconv.Itoa(p.PID), state, p.User, app.BytesText(p.Stdout.Size + p.Stderr.Size), app.Age(p.StartedAt), line}
}

// idAndKey parts "ID KEY", "ID" and, with --vm or a default target, "KEY".
// Without a key it is the newest command.
func (a commands) idAndKey(ctx context.Context, t *app.Target, args []string) (*client.Sandbox, api.Process, error) {
	words, key := args, ""
	if len(args) == 2 {
		words, key = args[:1], args[1]
	}
	if len(args) == 1 && len(t.VM) > 0 {
		words, key = nil, args[0]
	}
	c, sb, err := a.InOne(ctx, t, words)
	if errs.Is(err, errs.NotFound) && len(args) == 1 && key == "" && !strings.HasPrefix(args[0], "sbx_") {
		key = args[0] // no sandbox has this name: it is a key in the default target
		c, sb, err = a.InOne(ctx, t, nil)
	}
	if err != nil {
		return nil, api.Process{}, err
	}
	s := c.Sandbox(sb.ID)
	if key != "" {
		p, err := s.Process(ctx, key)
		return s, p, err
	}
	all, err := client.All(s.Processes(ctx))
	if err != nil {
		return nil, api.Process{}, err
	}
	if len(all) == 0 {
		return nil, api.Process{}, errs.New(errs.NotFound, "%s has run no command", sb.ID)
	}
	return s, all[len(all)-1], nil
}

func (a commands) vmAttach() *cobra.Command {
	var t app.Target
	var from string
	var stdin bool
	cmd := &cobra.Command{
		Use: "attach [ID] [KEY]", Short: "Follow a command's output and take its exit status",
		Long: `Follow the output of a command, running or ended, and end with its status.
Without a key it is the newest command. --from is a byte offset of stdout (and
of stderr, as far as that goes): 0 is all of the output from the beginning, -1
only what is written from now on. What the
bounded spool dropped is said on stderr. Ending this program leaves the command
running. The command's own terminal is mirrored with -i.`,
		Example: `  skete vm attach ID build
  skete vm attach ID build --from 0
  skete vm attach ID build --from -1`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			offset, err := strconv.ParseInt(from, 10, 64)
			if err != nil || offset < -1 {
				return errs.New(errs.Invalid, "--from %.40q is no byte offset", from).WithHint("0 is the beginning, -1 the present end")
			}
			s, p, err := a.idAndKey(ctx, &t, args)
			if err != nil {
				return err
			}
			att := s.Attach(p.Key)
			att.StdoutFrom, att.StderrFrom = offset, min(offset, p.Stderr.Size)
			if stdin && p.Terminal {
				return a.mirror(ctx, s.ID, att, true)
			}
			if stdin {
				att.Stdin = a.In
			}
			return a.stream(ctx, s.ID, att) // its signals stay ours: who only looks ends nothing
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&from, "from", "0", "byte offset to begin at; -1 = the present end")
	cmd.Flags().BoolVarP(&stdin, "interactive", "i", false, "pass stdin on")
	return a.WithCompletion(cmd, 1)
}

func (a commands) vmLogs() *cobra.Command {
	var t app.Target
	var follow bool
	cmd := &cobra.Command{
		Use: "logs [ID] [KEY]", Short: "Print what a command has written so far",
		Long:    "Print what a command has written so far, stdout and stderr each on its own.\nWithout a key it is the newest command. The status is 0 whatever the command's is.",
		Example: "  skete vm logs ID build\n  skete vm logs -f ID build",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, p, err := a.idAndKey(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			return a.logsOf(cmd.Context(), s, p.Key, follow)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command ends")
	return a.WithCompletion(cmd, 1)
}

func (a commands) logsOf(ctx context.Context, s *client.Sandbox, key string, follow bool) error {
	for ev, err := range s.Output(ctx, key, 0, 0, follow) {
		if err != nil {
			return err
		}
		if a.JSON {
			if err := app.PrintJSONLine(a.Out, ev); err != nil {
				return err
			}
			continue
		}
		if ev.To > ev.From {
			a.tellGap(ev.Stream, ev.From, ev.To)
		}
		w := a.Out
		if ev.Stream == "stderr" {
			w = a.Err
		}
		if _, err := w.Write(ev.Data); err != nil {
			return err
		}
	}
	return nil
}

func (a commands) vmKill() *cobra.Command {
	var t app.Target
	var sig string
	cmd := &cobra.Command{
		Use: "kill [ID] KEY", Short: "Signal a command's process group",
		Example: "  skete vm kill ID build\n  skete vm kill ID build -s KILL",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := signalNumber(sig)
			if err != nil {
				return err
			}
			words, key := args[:len(args)-1], args[len(args)-1]
			c, sb, err := a.InOne(cmd.Context(), &t, words)
			if err != nil {
				return err
			}
			return c.Sandbox(sb.ID).SignalProcess(cmd.Context(), key, n)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVarP(&sig, "signal", "s", "TERM", "name or number")
	return a.WithCompletion(cmd, 1)
}

func signalNumber(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= 64 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, errs.New(errs.Invalid, "there is no signal %.20q", s).WithHint("for example TERM, KILL, INT, HUP, or a number 1..64")
}

func (a commands) vmForward() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "forward [ID] [[ADDRESS:]LOCAL:]REMOTE…", Short: "Reach servers inside from this machine",
		Long: `Listen here and connect everyone with a TCP port inside the sandbox; servers
that listen on its loopback only are reached too. Without LOCAL the same number
is used here; 0 takes a free one. It ends with Ctrl-C.`,
		Example: `  skete vm forward ID 5173
  skete vm forward ID 8080:5173 9229
  skete vm forward ID 0:5173 -q      # prints the address`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			words, specs := args[:1], args[1:]
			if _, err := parseForward(args[0]); err == nil {
				words, specs = nil, args
			}
			return a.forward(cmd.Context(), &t, words, specs)
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}

// forwarding is one port that is forwarded.
type forwarding struct {
	local  string // address to listen on
	remote int
}

func parseForward(s string) (forwarding, error) {
	bad := errs.New(errs.Invalid, "%.80q is no port to forward", s).WithHint("write REMOTE, LOCAL:REMOTE or ADDRESS:LOCAL:REMOTE")
	host, rest := "127.0.0.1", s
	if strings.Count(s, ":") > 1 {
		i := strings.LastIndex(s, ":")
		j := strings.LastIndex(s[:i], ":")
		host, rest = strings.Trim(s[:j], "[]"), s[j+1:]
	}
	local, remote, two := strings.Cut(rest, ":")
	if !two {
		remote = local
	}
	l, err := strconv.ParseUint(local, 10, 16)
	r, rerr := strconv.ParseUint(remote, 10, 16)
	if err != nil || rerr != nil || r == 0 || host == "" {
		return forwarding{}, bad
	}
	return forwarding{net.JoinHostPort(host, strconv.Itoa(int(l))), int(r)}, nil
}

func (a commands) forward(ctx context.Context, t *app.Target, words, specs []string) error {
	if len(specs) == 0 {
		return errs.New(errs.Invalid, "no port is named").WithHint("skete vm forward ID 8080:5173")
	}
	var list []forwarding
	for _, s := range specs {
		f, err := parseForward(s)
		if err != nil {
			return err
		}
		list = append(list, f)
	}
	c, sb, err := a.InOne(ctx, t, words)
	if err != nil {
		return err
	}
	return a.forwardAll(ctx, c.Sandbox(sb.ID), list)
}

func (a commands) forwardAll(ctx context.Context, s *client.Sandbox, list []forwarding) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(list))
	started := 0
	var first error
	for _, f := range list {
		l, err := net.Listen("tcp", f.local)
		if err != nil {
			first = errs.Wrap(errs.Conflict, err, "cannot listen on %s", f.local).WithHint("take another port: 0:%d finds a free one", f.remote)
			break
		}
		if err := a.tellForward(s.ID, l.Addr().String(), f.remote); err != nil {
			first = err
		}
		started++
		go func() {
			ended <- s.Forward(ctx, l, f.remote, func(err error) { a.Log.Warn("a connection failed", "port", f.remote, "error", err) })
		}()
	}
	if first != nil {
		cancel()
	}
	for range started {
		if err := <-ended; first == nil {
			first = err
			cancel()
		}
	}
	return first
}

func (a commands) tellForward(id, local string, remote int) error {
	switch {
	case a.JSON:
		return app.PrintJSONLine(a.Out, map[string]any{"sandbox": id, "local": local, "remote": remote})
	case a.Quiet:
		_, err := fmt.Fprintln(a.Out, local)
		return err
	}
	_, err := fmt.Fprintf(a.Err, "forwarding %s to port %d of %s; Ctrl-C ends it\n", local, remote, id)
	return err
}
