package tooltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
)

// Commands checks a machine's commands. Keys begin with the test's name, so
// the machine may be shared.
func Commands(t *testing.T, open func(t *testing.T) tool.Commands) {
	for name, check := range map[string]func(r *runner){
		"results": checkResults,
		"keys":    checkKeys,
		"streams": checkStreams,
		"merged":  checkMerged,
		"offsets": checkOffsets,
		"timeout": checkTimeout,
		"kill":    checkKill,
		"list":    checkCommandList,
		"follow":  checkFollow,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			check(&runner{T: t, Commands: open(t), ctx: ctx})
		})
	}
}

type runner struct {
	*testing.T
	tool.Commands
	ctx context.Context
}

func (r *runner) key(s string) string { return strings.ReplaceAll(r.Name(), "/", ".") + "." + s }

func (r *runner) start(key string, c tool.Command) tool.Process {
	r.Helper()
	p, err := r.Start(r.ctx, r.key(key), c)
	if err != nil {
		r.Fatalf("%s: %v", key, err)
	}
	return p
}

func (r *runner) output(p tool.Process, from tool.Offsets, follow bool) (out, errOut string, gaps int64) {
	r.Helper()
	var streams [2]bytes.Buffer
	err := p.Output(r.ctx, from, follow, func(c tool.Chunk) error {
		b := &streams[0]
		if c.Stderr {
			b = &streams[1]
		}
		gaps += c.Gap
		b.Write(c.Data)
		return nil
	})
	if err != nil {
		r.Fatalf("output: %v", err)
	}
	return streams[0].String(), streams[1].String(), gaps
}

func (r *runner) ended(p tool.Process) tool.Ended {
	r.Helper()
	e, err := p.Wait(r.ctx)
	if err != nil {
		r.Fatalf("wait: %v", err)
	}
	return e
}

func checkResults(r *runner) {
	for shell, want := range map[string]tool.Ended{
		"true":                            {},
		"exit 3":                          {Exit: 3},
		"printf abc; printf de >&2":       {Written: tool.Offsets{Stdout: 3, Stderr: 2}},
		"no-such-command-here 2>&-":       {Exit: 127},
		"kill -KILL $$":                   {Exit: 137, Signal: "SIGKILL"},
		"(":                               {Exit: 2},
		`[ "$A" = "b c" ] && [ -z "$1" ]`: {},
		"cat":                             {}, // no stdin
	} {
		p := r.start(fmt.Sprintf("%x", shell), tool.Command{Shell: shell, Env: map[string]string{"A": "b c"}})
		got := r.ended(p)
		if shell == "(" {
			got.Exit = min(got.Exit, 2)
			got.Written = tool.Offsets{}
		}
		if d := cmp.Diff(want, got); d != "" {
			r.Errorf("%s: %s", shell, d)
		}
		status, running, err := p.Status(r.ctx)
		if err != nil || running || status.Exit != got.Exit {
			r.Errorf("%s: %+v, %v, %v", shell, status, running, err)
		}
	}
	for i := range 10 { // what is in the pipe at the end counts too
		p := r.start(fmt.Sprintf("whole%d", i), tool.Command{Shell: "head -c 3000000 /dev/zero"})
		if e := r.ended(p); e.Written.Stdout != 3_000_000 {
			r.Errorf("of 3,000,000 bytes %d are told", e.Written.Stdout)
		}
	}
	p := r.start("pwd", tool.Command{Shell: "pwd", Dir: "/"})
	if out, _, _ := r.output(p, tool.Offsets{}, true); out != "/\n" {
		r.Errorf("in / it is %q", out)
	}
	_, err := r.Start(r.ctx, r.key("nodir"), tool.Command{Shell: "true", Dir: "/none"})
	if code(err) != tool.CodeInvalidPath {
		r.Errorf("no directory: %v", err)
	}
}

// checkKeys: a key runs once, however often and by how many it is started.
func checkKeys(r *runner) {
	if _, err := r.Find(r.ctx, r.key("nobody")); !errs.Is(err, errs.NotFound) {
		r.Errorf("an unknown key: %v", err)
	}
	for _, key := range []string{"plain", "odd key/with ünicode " + strings.Repeat("x", 200)} {
		var wg sync.WaitGroup
		outs := make(chan string, 8)
		for range cap(outs) {
			wg.Go(func() {
				p, err := r.Start(r.ctx, r.key(key), tool.Command{Shell: "echo $$ $(date +%N)"})
				if err != nil {
					r.Errorf("start: %v", err)
					return
				}
				out, _, _ := r.output(p, tool.Offsets{}, true)
				outs <- out
			})
		}
		wg.Wait()
		close(outs)
		first := ""
		for out := range outs {
			if first == "" {
				first = out
			}
			if out != first || out == "" {
				r.Errorf("%.20s ran more than once: %q and %q", key, first, out)
			}
		}
		p, err := r.Find(r.ctx, r.key(key))
		if err != nil {
			r.Fatal(err)
		}
		if out, _, _ := r.output(p, tool.Offsets{}, false); out != first {
			r.Errorf("found again, it wrote %q", out)
		}
	}
}

func checkStreams(r *runner) {
	p := r.start("x", tool.Command{Shell: "echo out; echo err >&2"})
	out, errOut, _ := r.output(p, tool.Offsets{}, true)
	if out != "out\n" || errOut != "err\n" {
		r.Errorf("%q and %q", out, errOut)
	}
}

// checkMerged: with one stream, the order is the true one.
func checkMerged(r *runner) {
	var script, want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&script, "echo %d >&%d\n", i, 1+i%2)
		fmt.Fprintf(&want, "%d\n", i)
	}
	p := r.start("x", tool.Command{Shell: script.String(), Merge: true})
	out, errOut, _ := r.output(p, tool.Offsets{}, true)
	if out != want.String() || errOut != "" {
		r.Errorf("%q, stderr %q", out, errOut)
	}
	p = r.start("syntax", tool.Command{Shell: "echo 'x", Merge: true})
	if out, errOut, _ = r.output(p, tool.Offsets{}, true); out == "" || errOut != "" {
		r.Errorf("the shell's own words: %q, stderr %q", out, errOut)
	}
}

func checkOffsets(r *runner) {
	p := r.start("x", tool.Command{Shell: "printf 0123456789; printf abc >&2"})
	r.ended(p)
	for _, c := range []struct {
		from     tool.Offsets
		out, err string
	}{
		{tool.Offsets{}, "0123456789", "abc"},
		{tool.Offsets{Stdout: 4, Stderr: 3}, "456789", ""},
		{tool.Offsets{Stdout: 10, Stderr: 1}, "", "bc"},
	} {
		for _, follow := range []bool{true, false} {
			if out, errOut, gaps := r.output(p, c.from, follow); out != c.out || errOut != c.err || gaps != 0 {
				r.Errorf("from %v: %q, %q", c.from, out, errOut)
			}
		}
	}
	if out, _, _ := r.output(p, tool.Offsets{Stdout: 99}, false); out != "" {
		r.Errorf("beyond the end there is %q", out)
	}
	stop := errors.New("stop")
	err := p.Output(r.ctx, tool.Offsets{}, true, func(tool.Chunk) error { return stop })
	if !errors.Is(err, stop) {
		r.Errorf("the visitor's error became %v", err)
	}
}

func checkTimeout(r *runner) {
	p := r.start("x", tool.Command{Shell: "sleep 600 & echo $!; wait", Timeout: 300 * time.Millisecond})
	e := r.ended(p)
	if !e.TimedOut || e.Exit == 0 {
		r.Errorf("%+v", e)
	}
	out, _, _ := r.output(p, tool.Offsets{}, true)
	r.gone(strings.TrimSpace(out))
}

// gone waits until a process of the machine is no more.
func (r *runner) gone(pid string) {
	r.Helper()
	q := r.start("gone"+pid, tool.Command{Shell: "for i in $(seq 200); do kill -0 " + pid + " 2>&- || exit 0; sleep 0.05; done; exit 1"})
	if e := r.ended(q); e.Exit != 0 {
		r.Errorf("process %s goes on", pid)
	}
}

func checkKill(r *runner) {
	p := r.start("x", tool.Command{Shell: "trap '' TERM; sleep 600 & echo $!; wait; wait"})
	pid := make(chan string, 1)
	err := p.Output(r.ctx, tool.Offsets{}, true, func(c tool.Chunk) error {
		pid <- strings.TrimSpace(string(c.Data))
		return errors.New("seen")
	})
	if err == nil {
		r.Fatal("it wrote nothing")
	}
	for range 2 {
		if err := p.Kill(r.ctx); err != nil {
			r.Errorf("kill: %v", err)
		}
	}
	if e := r.ended(p); !e.Killed || e.Exit == 0 {
		r.Errorf("%+v", e)
	}
	r.gone(<-pid)
}

func checkCommandList(r *runner) {
	a := r.start("a", tool.Command{Shell: "echo x; exit 4"})
	r.ended(a)
	b := r.start("b", tool.Command{Shell: "sleep 600"})
	list, err := r.List(r.ctx, r.key(""))
	if err != nil || len(list) != 2 {
		r.Fatalf("%v, %v", list, err)
	}
	if l := list[0]; l.Key != r.key("a") || l.Running || l.Ended.Exit != 4 || l.Command != "echo x; exit 4" || l.Ended.Written.Stdout != 2 {
		r.Errorf("%+v", l)
	}
	if l := list[1]; l.Key != r.key("b") || !l.Running || l.Command != "sleep 600" || time.Since(l.Started) > time.Minute {
		r.Errorf("%+v", l)
	}
	if err := b.Kill(r.ctx); err != nil {
		r.Error(err)
	}
}

// checkFollow: output is seen while the command runs, and an end of the
// caller's context does not end the command.
func checkFollow(r *runner) {
	p := r.start("x", tool.Command{Shell: "echo first; read line < fifo 2>&-; sleep 0.2; echo second"})
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	err := p.Output(ctx, tool.Offsets{}, true, func(tool.Chunk) error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		r.Errorf("%v", err)
	}
	if out, _, _ := r.output(p, tool.Offsets{}, true); out != "first\nsecond\n" {
		r.Errorf("it wrote %q", out)
	}
}
