package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// execFlags describe a command in a sandbox.
type execFlags struct {
	cmd, code, lang, key, user, workdir, timeout string
	files, env                                   []string
	tty, stdin, noStdin, detach, noRevision      bool
}

func (f *execFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.cmd, "cmd", "c", "", "command line for a shell")
	fs.StringVar(&f.code, "code", "", "program in the sandbox's language")
	fs.StringArrayVar(&f.files, "file", nil, "copy this file into the working directory; alone it is also run (may be repeated)")
	fs.StringVar(&f.timeout, "timeout", "", "end the command after this long: 30 (seconds), 5m; the status is the command's")
	fs.StringVar(&f.user, "user", "", "run as this user; root needs a sandbox made with --root")
	fs.BoolVarP(&f.tty, "tty", "t", false, "run in a terminal")
	fs.BoolVarP(&f.stdin, "interactive", "i", false, "pass stdin on although it is a terminal")
	app.NoRevision(cmd, &f.noRevision)
	fs.BoolVarP(&f.noStdin, "no-stdin", "n", false, "pass no stdin on (for loops that read it)")
}

// process makes the request for what the flags and argv ask to run.
func (f *execFlags) process(argv []string, lang string) (api.StartProcess, error) {
	p := api.StartProcess{Key: f.key, User: f.user, Cwd: f.workdir, Argv: argv, Command: f.cmd, Code: f.code}
	var err error
	if p.TimeoutMS, err = app.Milliseconds("timeout", f.timeout); err != nil {
		return p, err
	}
	if p.Env, err = app.Environment(f.env); err != nil {
		return p, err
	}
	if strings.HasPrefix(f.key, "e2b_") {
		return p, errs.New(errs.Invalid, "--key is the name of a command here, not an API key").WithHint("give API keys with --api-key or SKETE_KEY")
	}
	ways := 0
	for _, set := range []bool{len(argv) > 0, f.cmd != "", f.code != ""} {
		if set {
			ways++
		}
	}
	if ways == 0 && len(f.files) > 0 {
		p.Argv, err = interpreter(filepath.Base(f.files[0]), lang)
		return p, err
	}
	if ways != 1 {
		return p, errs.New(errs.Invalid, "one of --cmd, --code, --file and -- argv… is needed, and only one").
			WithHint("for example: skete vm exec ID -- python3 -V")
	}
	if f.code != "" {
		p.Language = app.Language(f.lang)
	}
	return p, nil
}

// check refuses what no sandbox could run, before a server is asked.
func (f *execFlags) check(argv []string) error {
	for _, path := range f.files {
		if info, err := os.Stat(path); err != nil {
			return errs.Wrap(errs.Invalid, err, "--file")
		} else if !info.Mode().IsRegular() {
			return errs.New(errs.Invalid, "--file %s: not a regular file", filepath.Base(path)).WithHint("`skete cp` copies directories")
		}
	}
	_, err := f.process(argv, "python") // which language is known in the sandbox alone
	return err
}

// interpreter returns the command that runs a file.
func interpreter(name, lang string) ([]string, error) {
	byExt := map[string]string{".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".go": "go", ".rb": "ruby", ".sh": "sh"}
	if l, ok := byExt[strings.ToLower(filepath.Ext(name))]; ok {
		lang = l
	}
	file := "./" + name
	switch lang {
	case "python":
		return []string{"python3", file}, nil
	case "node", "ruby", "sh":
		return []string{lang, file}, nil
	case "go":
		return []string{"go", "run", file}, nil
	}
	return nil, errs.New(errs.Invalid, "how to run %.80q is not known", name).
		WithHint("say it with --cmd, or give the sandbox a language")
}

func (a commands) vmExec() *cobra.Command {
	var t app.Target
	var f execFlags
	cmd := &cobra.Command{
		Use: "exec [ID] [flags] (--cmd LINE | --code PROGRAM | --file FILE | -- ARGV…)", Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox. Its output comes as it is written; what is piped into
skete is its stdin (a terminal only with -i or -t); signals go to its process
group; its exit status becomes that of skete. A broken connection is resumed: no byte is lost or repeated.

With several sandboxes (--vm twice, or --all) they run one after the other and
the status is the first that is not 0.

A command that --timeout ended has the status of its death (usually 143), and
stderr says so.`,
		Example: `  skete vm exec ID --cmd 'echo hi >&2; exit 3'
  skete vm exec ID -- python3 -V
  skete vm exec --code 'print(6*7)'                # in the only sandbox that runs
  tar c . | skete vm exec ID -- tar x
  skete vm exec ID -d --key build --cmd 'make -j2' # in the background; prints the key
  skete vm exec ID -t -- top
  skete vm exec --all --cmd 'uname -r'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, argv := app.Split(cmd, args)
			if len(words) > 1 {
				return errs.New(errs.Invalid, "what does %.40q mean?", words[1]).WithHint("put -- before the command: skete vm exec %s -- %s", words[0], strings.Join(words[1:], " "))
			}
			return a.execIn(cmd.Context(), &t, &f, words, argv)
		},
	}
	t.Flags(cmd, true)
	f.flags(cmd)
	fs := cmd.Flags()
	fs.BoolVarP(&f.detach, "detach", "d", false, "leave it running and print its key")
	fs.StringVar(&f.key, "key", "", "name of the command; the same key never runs twice, not after a restart of the sandbox either")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment `K=V`; K alone has the value it has here (may be repeated)")
	fs.StringVarP(&f.workdir, "workdir", "w", "", "working directory")
	fs.StringVar(&f.lang, "lang", "", "language of --code, if not the sandbox's")
	return a.WithCompletion(cmd, 1)
}

func (a commands) execIn(ctx context.Context, t *app.Target, f *execFlags, words, argv []string) error {
	if err := errors.Join(t.Check(words), f.check(argv)); err != nil {
		return err
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	found, err := a.Sandboxes(ctx, c, t, words, in("running"))
	if err != nil {
		return err
	}
	var first error
	for _, sb := range found {
		a.WarnIsolation(sb)
		if len(found) > 1 && !a.JSON {
			fmt.Fprintf(a.Err, "==> %s <==\n", sb.ID)
			f.noStdin = true // one input cannot feed several
		}
		if err := a.execute(ctx, c, sb, f, argv); err != nil {
			if _, ok := errors.AsType[app.Exit](err); !ok {
				return err
			}
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// execute runs one command in one sandbox.
func (a commands) execute(ctx context.Context, c *client.Client, sb api.Sandbox, f *execFlags, argv []string) error {
	p, err := f.process(argv, sb.Language)
	if err != nil {
		return err
	}
	s := app.Handle(c, sb.ID, f.noRevision)
	for _, file := range f.files {
		if err := copyIn(ctx, s, file, f.workdir); err != nil {
			return err
		}
	}
	if f.detach {
		return a.detach(ctx, s, p)
	}
	if f.tty {
		return a.inTerminal(ctx, s, p, a.hasStdin(f))
	}
	cmd := s.Command()
	cmd.Spec = p
	if a.hasStdin(f) {
		cmd.Stdin = a.In
	}
	return a.stream(ctx, sb.ID, cmd)
}

// copyIn copies a file of ours into the directory where the command runs.
func copyIn(ctx context.Context, s *client.Sandbox, path, dir string) error {
	r, err := os.Open(path)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "--file")
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errs.New(errs.Invalid, "--file %s: not a regular file", filepath.Base(path)).WithHint("`skete cp` copies directories")
	}
	_, err = s.Files().WriteFrom(ctx, filepath.Join(dir, filepath.Base(path)), r, client.WriteOptions{Mode: uint32(info.Mode().Perm())})
	return err
}

// detach starts a command and does not wait for it.
func (a commands) detach(ctx context.Context, s *client.Sandbox, p api.StartProcess) error {
	p.Background = true
	started, err := s.StartProcess(ctx, p)
	if err != nil {
		return err
	}
	if started.Existed {
		a.Note("the key %s was known: nothing was started, it is %s", app.Cell(started.Key), started.State)
	}
	if a.JSON {
		return app.PrintJSON(a.Out, started)
	}
	_, err = fmt.Fprintln(a.Out, started.Key)
	return err
}

// hasStdin reports whether our stdin is meant for the command.
func (a commands) hasStdin(f *execFlags) bool {
	if f.noStdin || f.detach || a.In == nil {
		return false
	}
	if f.stdin || f.tty {
		return true
	}
	info, err := a.In.Stat()
	if err != nil {
		return false // closed
	}
	// A terminal and /dev/null are devices; a pipe, file or socket is input.
	return info.Mode()&os.ModeCharDevice == 0
}

// stream runs a command with our streams and signals.
func (a commands) stream(ctx context.Context, id string, cmd *client.Cmd) error {
	began := time.Now()
	var out, errOut capped
	cmd.Stdout, cmd.Stderr = a.Out, a.Err
	if a.JSON {
		cmd.Stdout, cmd.Stderr = &out, &errOut
	}
	cmd.OnGap = a.tellGap
	cmd.OnReconnect = func(err error) { a.Log.Warn("the connection broke; resuming", "error", err) }
	stop := func() {}
	defer func() { stop() }()
	cmd.OnStart = func(p api.Process) { // a signal that answers to output is for the command
		if !cmd.Detached {
			stop = a.Forward(a.signaller(ctx, cmd))
		}
		if p.Existed && p.State != "lost" && !a.JSON {
			a.Note("the key %s was known: nothing was started; this is the command that has it", app.Cell(p.Key))
		}
	}
	if err := cmd.Start(ctx); err != nil {
		return err
	}
	err := cmd.Wait()
	a.tellLeft(ctx, id, cmd, err)
	if a.JSON && isEnd(err) {
		if perr := app.PrintJSON(a.Out, resultOf(id, cmd.Process(), &out, &errOut, time.Since(began))); perr != nil {
			return perr
		}
	}
	return a.exitOf(err)
}

// signaller passes a signal on without holding up the ones behind it.
func (a commands) signaller(ctx context.Context, cmd *client.Cmd) func(syscall.Signal) {
	return func(sig syscall.Signal) {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := cmd.Signal(ctx, sig); err != nil && !errs.Is(err, errs.NotFound) {
				a.Log.Debug("the signal did not arrive", "signal", sig, "error", err)
			}
		}()
	}
}

// lookTimeout is how long we look what became of a command that we left.
const lookTimeout = 3 * time.Second

// tellLeft says what became of a command that was not waited for, and how it
// is reached if it goes on.
func (a commands) tellLeft(ctx context.Context, id string, cmd *client.Cmd, err error) {
	if ctx.Err() == nil || isEnd(err) || cmd.Key() == "" {
		return
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	key, where := app.Cell(cmd.Key()), ""
	if cmd.Detached {
		fmt.Fprintf(a.Err, "skete: the command %s goes on; `skete vm attach %s %s` shows it again\n", key, id, key)
		return
	}
	p, err := cmd.Look(look)
	switch {
	case err == nil && p.State != "running" || errs.Is(err, errs.NotFound):
		fmt.Fprintf(a.Err, "skete: the command %s was killed\n", key)
		return
	case err == nil:
		where = "goes on"
	default:
		where = "may go on: nothing answers"
	}
	fmt.Fprintf(a.Err, "skete: the command %s %s; `skete vm attach %s %s` shows it, `skete vm kill %s %s -s KILL` ends it\n", key, where, id, key, id, key)
}

func (a commands) tellGap(stream string, from, to int64) {
	fmt.Fprintf(a.Err, "skete: %d bytes of %s were dropped (%d to %d)\n", to-from, stream, from, to)
}

// isEnd reports whether the command ended with a status.
func isEnd(err error) bool {
	var exit *client.ExitError
	return err == nil || errors.As(err, &exit)
}

// exitOf turns the end of a command into ours.
func (a commands) exitOf(err error) error {
	var exit *client.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if reason := exit.Process.Exit.Reason; reason != "" && !a.JSON {
		fmt.Fprintf(a.Err, "skete: the command ended by: %s\n", app.Cell(reason))
	}
	return app.Exit(exit.Code())
}

// result is what --json prints of a command.
type result struct {
	Sandbox     string  `json:"sandbox"`
	Key         string  `json:"key"`
	ExitCode    int     `json:"exit_code"`
	Signal      int     `json:"signal,omitempty"`
	Reason      string  `json:"reason,omitempty"`
	Stdout      string  `json:"stdout"`
	Stderr      string  `json:"stderr"`
	StdoutBytes []byte  `json:"stdout_bytes,omitempty"` // base64, where stdout is not UTF-8
	StderrBytes []byte  `json:"stderr_bytes,omitempty"`
	Truncated   bool    `json:"truncated,omitempty"`
	DurationMS  float64 `json:"duration_ms"`
	Existed     bool    `json:"existed,omitempty"` // the key was known: nothing was started
}

func resultOf(id string, p api.Process, out, errOut *capped, took time.Duration) result {
	r := result{Sandbox: id, Key: p.Key, DurationMS: float64(took.Microseconds()) / 1000, Truncated: out.cut || errOut.cut, Existed: p.Existed}
	if p.Exit != nil {
		r.ExitCode, r.Signal, r.Reason = p.Exit.Code, p.Exit.Signal, p.Exit.Reason
	}
	r.Stdout, r.StdoutBytes = text(out.Bytes())
	r.Stderr, r.StderrBytes = text(errOut.Bytes())
	return r
}

func text(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), b
}

// cappedMax bounds the output that --json puts into one object.
const cappedMax = 16 << 20

// capped keeps the beginning of what is written to it.
type capped struct {
	bytes.Buffer
	cut bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := cappedMax - c.Len()
	if len(p) > room {
		c.cut = true
		_, _ = c.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return c.Buffer.Write(p)
}

var _ io.Writer = (*capped)(nil)
