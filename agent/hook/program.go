package hook

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file runs the programs of an agent's hooks: in the thread's
// machine, or on the host.

const (
	hookOutputMax = 64 << 10
	hookInputDir  = "/tmp/skete-hooks/"
)

// Programs runs the programs of an agent's hooks. It is a hook.Runner. Without
// Commands there is no machine.
type Programs struct {
	Files    tool.Files
	Commands tool.Commands
}

// Run runs a program in the thread's machine, or on the host where the agent's
// file, of the server's own folder, says so.
func (h *Programs) Run(ctx context.Context, where string, argv []string, stdin []byte, timeout time.Duration) (stdout, stderr []byte, exit int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if where == "host" {
		return runOnHost(ctx, argv, stdin)
	}
	return h.inMachine(ctx, argv, stdin, timeout)
}

func runOnHost(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, int, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	var out, errOut bounded
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return out.b, errOut.b, exited.ExitCode(), nil
	}
	return out.b, errOut.b, 0, err
}

// inMachine gives the program its input by a file: commands have no stdin.
func (h *Programs) inMachine(ctx context.Context, argv []string, stdin []byte, timeout time.Duration) ([]byte, []byte, int, error) {
	if h.Commands == nil {
		return nil, nil, 0, errs.New(errs.Unsupported, "the agent has no machine for its hooks")
	}
	key := "hook-" + string(thread.NewRunID())
	input := hookInputDir + key
	if _, err := h.Files.Write(ctx, input, stdin, ""); err != nil {
		return nil, nil, 0, err
	}
	defer func() { _ = h.Files.Delete(context.WithoutCancel(ctx), input) }()
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = quote(a)
	}
	p, err := h.Commands.Start(ctx, key, tool.Command{Shell: strings.Join(quoted, " ") + " <" + quote(input), Timeout: timeout})
	if err != nil {
		return nil, nil, 0, err
	}
	var out, errOut bounded
	err = p.Output(ctx, tool.Offsets{}, true, func(c tool.Chunk) error {
		if c.Stderr {
			_, _ = errOut.Write(c.Data)
		} else {
			_, _ = out.Write(c.Data)
		}
		return nil
	})
	if err != nil {
		_ = p.Kill(context.WithoutCancel(ctx))
		return out.b, errOut.b, 0, err
	}
	ended, err := p.Wait(ctx)
	if err == nil && ended.TimedOut {
		err = context.DeadlineExceeded
	}
	return out.b, errOut.b, ended.Exit, err
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// bounded keeps the beginning of what is written to it.
type bounded struct{ b []byte }

func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), hookOutputMax-len(w.b))]...)
	return len(p), nil
}
