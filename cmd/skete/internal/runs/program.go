package runs

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// programFlags are what can be said of a program in the place of a model.
type programFlags struct {
	command, events string
	inject          []string
}

const (
	injectedAt  = "/workspace"
	programName = "program"
	// leftover is how long a sandbox with injected files outlives its program's time when
	// nothing is left that would remove it.
	leftover = 10 * time.Minute
	// removeWait is how long a run's end is shown before its sandbox is removed.
	removeWait = "1s"
	removeMax  = time.Minute
)

func (p *programFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&p.command, "program", "", "this `command` works in the place of a model; {task} stands for the task")
	fs.StringVar(&p.events, "events", "", "what the program writes: jsonl, an object a line, one of them with \"done\": true (default text)")
	fs.StringArrayVar(&p.inject, "inject", nil, "put the files of this `directory` into /workspace before, or DIR:PATH elsewhere (may be repeated)")
}

// check refuses what does not go together.
func (p *programFlags) check(f *runFlags) error {
	switch {
	case p.command == "" && (p.events != "" || len(p.inject) > 0):
		return usage("--events and --inject are of a program: --program names it")
	case p.command == "":
		return nil
	case f.definition != "" || f.req.Agent != "" || f.req.Thread != "":
		return usage("--program stands in the place of --agent, --definition and --thread")
	case f.schema != "" || f.req.Plan || len(f.images) > 0:
		return usage("--schema, --plan and --image mean nothing to a program")
	case len(p.inject) > 0 && f.sandbox != "":
		return usage("--inject is for a sandbox of its own; `skete cp` puts files into one that is there")
	}
	for _, dir := range p.inject {
		from, to := injection(dir)
		if info, err := os.Stat(from); err != nil || !info.IsDir() {
			return usage("--inject: %.100q is no directory", from)
		}
		if !strings.HasPrefix(to, "/") {
			return usage("--inject: %.100q is no absolute path", to)
		}
	}
	return nil
}

// injection is where files come from, and where they go.
func injection(s string) (from, to string) {
	if i := strings.LastIndex(s, ":/"); i > 0 {
		return s[:i], s[i+1:]
	}
	return s, injectedAt
}

// prepare makes the request one of the program. With files to inject it makes the sandbox,
// which done removes; when it is not called, the sandbox's own end comes later.
func (p *programFlags) prepare(ctx context.Context, a commands, c *client.Client, req *api.StartRun) (done func(), err error) {
	done = func() {}
	if p.command == "" {
		return done, nil
	}
	took := time.Duration(req.Budget.WallMS) * time.Millisecond
	if took == 0 {
		took = definition.ProgramTimeout
	} else {
		took += time.Minute // the run's time is over first, and says so
	}
	keys := map[string]any{
		"name": programName, "tools": []string{"execute"},
		"program": map[string]any{"command": p.command, "timeout": min(took, definition.ProgramTimeoutMax).String()},
	}
	if p.events != "" {
		keys["program"].(map[string]any)["events"] = p.events
	}
	if !req.Keep {
		keys["after_run"] = map[string]any{"sandbox": definition.AfterRemove, "wait": removeWait}
	}
	if req.Definition, err = json.Marshal(keys); err != nil {
		return nil, err
	}
	if len(p.inject) == 0 {
		return done, nil
	}
	return p.injected(ctx, a, c, req, took)
}

// granted is the model that a program may call: the one that is named, else the server's
// choice as it is for every program; "" = there is none.
func granted(ctx context.Context, c *client.Client, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	list, err := c.Models(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range list {
		if m.Default && m.Vendor != "script" {
			return m.Name, nil
		}
	}
	return "", nil
}

// injected makes a sandbox with files in it.
func (p *programFlags) injected(ctx context.Context, a commands, c *client.Client, req *api.StartRun, took time.Duration) (done func(), err error) {
	model, err := granted(ctx, c, req.Model)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(req.Spec)
	if err != nil {
		return nil, err
	}
	var spec api.CreateSandbox
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	if model != "" {
		spec.Models = &api.ModelGrant{Models: []string{model}}
	}
	keep := req.Keep
	if !keep {
		spec.TTLMS = (took + leftover).Milliseconds()
	}
	sb, err := c.CreateSandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	a.WarnIsolation(sb)
	of := c.Sandbox(sb.ID)
	done = func() {
		if keep {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeMax)
		defer cancel()
		if err := of.Destroy(ctx); err != nil && !errs.Is(err, errs.NotFound) {
			a.Note("sandbox %s is left, and ends by itself: %v", sb.ID, errs.Public(err))
		}
	}
	for _, dir := range p.inject {
		from, to := injection(dir)
		if _, err := of.Files().UploadDir(ctx, from, to); err != nil {
			done()
			return nil, err
		}
	}
	req.Sandbox, req.Spec, req.Model, req.Keep = sb.ID, nil, "", false
	return done, nil
}
