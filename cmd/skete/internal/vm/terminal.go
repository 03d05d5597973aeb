package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// loginShell runs the best shell that is there.
const loginShell = `if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi`

func (a commands) vmShell() *cobra.Command {
	var t app.Target
	f := execFlags{tty: true}
	cmd := &cobra.Command{
		Use: "shell [ID] [-- ARGV…]", Short: "Open a shell in a terminal",
		Long: `Open a shell in a real terminal: keys, sizes and colours pass through, and the
status of the shell is ours. While the connection is broken it is resumed;
Ctrl-C gives up then, as does the third one that nothing answers for two
seconds. Enter, ~ and . leave it at any time.`,
		Example: `  skete vm shell ID
  skete vm shell ID --user root
  skete vm shell ID -- python3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, argv := app.Split(cmd, args)
			ctx := cmd.Context()
			if !a.isTerminal() {
				return errs.New(errs.Invalid, "stdin is not a terminal").WithHint("`skete vm exec` runs commands without one")
			}
			c, err := a.Connect(ctx)
			if err != nil {
				return err
			}
			sb, err := a.One(ctx, c, &t, words)
			if err != nil {
				return err
			}
			if len(argv) == 0 && f.cmd == "" {
				f.cmd = loginShell
			}
			p, err := f.process(argv, sb.Language)
			if err != nil {
				return err
			}
			return a.inTerminal(ctx, app.Handle(c, sb.ID, f.noRevision), p, true)
		},
	}
	t.Flags(cmd, false)
	fs := cmd.Flags()
	fs.StringVarP(&f.cmd, "cmd", "c", "", "command line in place of a login shell")
	fs.StringVar(&f.user, "user", "", "run as this user; root needs a sandbox made with --root")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment `K=V` (may be repeated)")
	fs.StringVarP(&f.workdir, "workdir", "w", "", "working directory")
	app.NoRevision(cmd, &f.noRevision)
	return a.WithCompletion(cmd, 1)
}

func (a commands) isTerminal() bool { return a.In != nil && term.IsTerminal(int(a.In.Fd())) }

// inTerminal runs a command in a terminal of the sandbox that mirrors ours.
func (a commands) inTerminal(ctx context.Context, s *client.Sandbox, p api.StartProcess, stdin bool) error {
	p.Terminal = a.terminalSize()
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	for _, name := range []string{"TERM", "COLORTERM"} {
		if v := os.Getenv(name); v != "" && p.Env[name] == "" {
			p.Env[name] = v
		}
	}
	cmd := s.Command()
	cmd.Spec = p
	return a.mirror(ctx, s.ID, cmd, stdin)
}

// mirror connects our terminal with that of a command until the command ends.
func (a commands) mirror(whole context.Context, id string, cmd *client.Cmd, stdin bool) error {
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	echo := &heard{w: a.Out}
	cmd.Stdout = echo
	cmd.OnGap = a.tellGap
	var broken atomic.Bool
	if stdin {
		cmd.Stdin = &keyboard{r: a.In, heard: echo, giveUp: func() bool { return broken.Load() && !cmd.Connected() }, cancel: cancel}
	}
	raw := stdin && a.isTerminal()
	cmd.OnReconnect = func(error) {
		broken.Store(true)
		eol := "\n"
		if raw {
			eol = "\r\n"
		}
		fmt.Fprintf(a.Err, "%sskete: the connection broke; resuming (Ctrl-C gives up)%s", eol, eol)
	}
	restore := func() {}
	if raw {
		var err error
		if restore, err = a.rawMode(); err != nil {
			return err
		}
	}
	defer restore()
	stop := func() {}
	defer func() { stop() }()
	if !raw && !cmd.Detached {
		// With a raw terminal Ctrl-C is a byte, and a signal is for us: a login
		// shell would not end by TERM.
		cmd.OnStart = func(api.Process) { stop = a.Forward(a.signaller(ctx, cmd)) }
	}
	if err := cmd.Start(ctx); err != nil {
		return err
	}
	defer a.followSize(cmd)()
	err := cmd.Wait()
	restore() // before anything is printed
	a.tellLeft(ctx, id, cmd, err)
	if ctx.Err() != nil && whole.Err() == nil && !isEnd(err) {
		return app.Exit(128 + int(syscall.SIGINT)) // given up at the keyboard
	}
	return a.exitOf(err)
}

// rawMode makes the terminal pass every key. The returned function puts it
// back; it is called on every way out, a panic included.
func (a commands) rawMode() (restore func(), err error) {
	fd := int(a.In.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "this terminal has no raw mode")
	}
	return func() { _ = term.Restore(fd, old) }, nil
}

// terminalSize returns the size of our terminal, or a usual one.
func (a commands) terminalSize() *api.TerminalSize {
	size := &api.TerminalSize{Cols: 80, Rows: 24}
	if a.In == nil {
		return size
	}
	cols, rows, err := term.GetSize(int(a.In.Fd()))
	if err == nil && cols > 0 && rows > 0 {
		size.Cols, size.Rows = min(cols, 1000), min(rows, 1000)
	}
	return size
}

// followSize tells the command when our terminal changes its size.
func (a commands) followSize(cmd *client.Cmd) (stop func()) {
	if !a.isTerminal() {
		return func() {}
	}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-ch:
				_ = cmd.Resize(*a.terminalSize()) // a broken stream gets it when it is back
			}
		}
	})
	ch <- syscall.SIGWINCH // the size may have changed before we listened
	return func() {
		signal.Stop(ch)
		close(done)
		wg.Wait()
	}
}

// keyboard is our stdin in raw mode, where Ctrl-C is only a byte: it still
// ends us while nothing is there to receive it, and the third one does to which
// nothing has answered, not even an echo, for silentMin. A program that answers
// and does not end is left by what ssh is left by, "~." at the start of a line.
type keyboard struct {
	r      io.Reader
	heard  *heard
	giveUp func() bool
	cancel func()

	unanswered int
	since      time.Time
	written    int64 // of heard, when the first one was pressed

	typed int // bytes of leaveKeys
}

// leaveKeys leave the terminal.
const leaveKeys = "\r~."

const (
	ctrlC     = 3
	silentMin = 2 * time.Second
)

func (k *keyboard) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if k.leaves(p[:n]) {
		k.cancel()
		return n, err
	}
	presses := bytes.Count(p[:n], []byte{ctrlC})
	if presses == 0 {
		return n, err
	}
	if written := k.heard.written.Load(); k.unanswered == 0 || written != k.written {
		k.unanswered, k.since, k.written = 0, time.Now(), written
	}
	k.unanswered += presses
	if k.giveUp() || k.unanswered >= 3 && time.Since(k.since) >= silentMin {
		k.cancel()
	}
	return n, err
}

// leaves reports whether these keys, and those before, are leaveKeys.
func (k *keyboard) leaves(keys []byte) bool {
	for _, key := range keys {
		switch key {
		case leaveKeys[k.typed]:
			k.typed++
		case leaveKeys[0]:
			k.typed = 1
		default:
			k.typed = 0
		}
		if k.typed == len(leaveKeys) {
			k.typed = 0
			return true
		}
	}
	return false
}

// heard counts what is written.
type heard struct {
	w       io.Writer
	written atomic.Int64
}

func (h *heard) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	h.written.Add(int64(n))
	return n, err
}
