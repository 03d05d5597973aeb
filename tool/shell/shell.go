// Package shell has the tools that run commands: execute, process_output,
// process_kill and process_list, and run_command for models that only write
// strict JSON.
//
//	shell.Add(registry)
//
// Where they run is tool.Env's Commands. A command is started under a key
// made from the call's: a call that is run again, after a crash of the
// server, attaches to what the first run started and collects its true output
// and status. Only when the machine itself was lost does the model learn that
// what happened is not known.
//
// A command ends with its call when the run was cancelled (tool.ErrCancelled)
// or the call's time is over, and goes on when the server goes down.
//
// However much a command writes, its call holds outputHeadBytes and
// outputTailBytes of it; what is between them stays in the machine, and
// process_output shows it by offset, as far as the machine still has it.
//
// Tools are safe for concurrent use.
package shell

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds.
const (
	commandBytesMax   = 96 << 10
	timeoutDefault    = 2 * time.Minute
	timeoutMax        = time.Hour
	graceOfGuest      = 20 * time.Second // beyond its timeout; then the machine does not answer
	killWait          = 10 * time.Second
	outputHeadBytes   = 256 << 10
	outputTailBytes   = 256 << 10
	processBytesMax   = 80_000 // of one process_output, unless Env says otherwise
	outputWaitMax     = 5 * time.Minute
	prefix            = "proc_"
	stoppedAsking     = "the machine did not answer"
	lostAfterRestart  = "Error: interrupted: the machine was started anew while the command ran; what it did cannot be known"
	neverFoundAgain   = "Error: interrupted: the machine in which the command ran is gone; what it did cannot be known"
	backgroundTimeout = 0 // none

	// See Output.
	statusBegins  = "[Command "
	leftOutBegins = " bytes were left out above; process_output with id "
	leftOutEnds   = " shows them as far as they are kept]\n"
)

const (
	aboutExecute = `Runs a shell command in the sandbox and returns its output (stdout and stderr as they came) and exit code. ` +
		`timeout is in seconds. With background you get a process id at once, for process_output and process_kill. ` +
		`Use the file tools rather than cat, sed or find. Example: {"command":"go test ./... 2>&1 | tail -40","timeout":300}`
	schemaExecute = `{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
		`"command":{"type":"string","minLength":1,"description":"The command, for bash -c"},` +
		`"timeout":{"type":"integer","minimum":0,"maximum":3600,"description":"Seconds after which it is ended; %d unless given, 0 = as long as possible"},` +
		`"background":{"type":"boolean","default":false,"description":"Do not wait for it"}}}`

	aboutRun  = `Runs a shell command in the sandbox and returns its output and exit code.`
	schemaRun = `{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
		`"command":{"type":"string","minLength":1,"description":"The command, for bash -c"},` +
		`"timeout":{"type":"integer","minimum":0,"maximum":3600,"description":"Seconds after which it is ended; %d unless given"}}}`
)

// Add adds the tools of commands.
func Add(r *tool.Registry) {
	add := func(name string, add func(string, tool.Maker), make func(tool.Env) tool.Tool) {
		add(name, func(env tool.Env) (tool.Tool, error) {
			if env.Commands == nil {
				return nil, errs.New(errs.Unsupported, "%s needs a machine to run commands in, and this agent has none", name)
			}
			return make(complete(env)), nil
		})
	}
	add("execute", r.Add, func(env tool.Env) tool.Tool { return execute{env, spec("execute", aboutExecute, schemaExecute, env)} })
	add("process_output", r.Add, func(env tool.Env) tool.Tool { return output{env} })
	add("process_kill", r.Add, func(env tool.Env) tool.Tool { return kill{env} })
	add("process_list", r.Add, func(env tool.Env) tool.Tool { return list{env} })
	add("run_command", r.AddHidden, func(env tool.Env) tool.Tool { return execute{env, spec("run_command", aboutRun, schemaRun, env)} })
}

func complete(env tool.Env) tool.Env {
	if env.CommandTimeoutMax <= 0 {
		env.CommandTimeoutMax = timeoutMax
	}
	if env.CommandTimeout <= 0 {
		env.CommandTimeout = timeoutDefault
	}
	env.CommandTimeout = min(env.CommandTimeout, env.CommandTimeoutMax)
	if env.ResultBytesMax <= 0 {
		env.ResultBytesMax = processBytesMax
	}
	return env
}

func spec(name, about, schema string, env tool.Env) llm.ToolSpec {
	return llm.ToolSpec{Name: name, Description: about, Schema: json.RawMessage(fmt.Sprintf(schema, int(env.CommandTimeout.Seconds())))}
}

// processKey is the key in the machine, and the id that the model sees. It
// says nothing about the call's own key.
func processKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:16])
}

// Key is under what the command of a call is started in the machine.
func Key(call string) string { return processKey(call) }

// execute runs a command.
type execute struct {
	env  tool.Env
	spec llm.ToolSpec
}

type executeArgs struct {
	Command    string `json:"command"`
	Timeout    *int   `json:"timeout"`
	Background bool   `json:"background"`
}

// plan is what tool.started keeps: in which life of the machine the command
// was to be started.
type plan struct {
	Boot string `json:"boot"`
}

// Spec implements tool.Tool.
func (t execute) Spec() llm.ToolSpec { return t.spec }

// Effect implements tool.Tool. What a command touches is not known; two
// commands run at once as they would in two terminals.
func (execute) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Keyed} }

func (t execute) args(req tool.Request) (executeArgs, *tool.Result) {
	var a executeArgs
	why := ""
	switch err := json.Unmarshal(req.Args, &a); {
	case err != nil:
		why = "the arguments cannot be read"
	case strings.TrimSpace(a.Command) == "":
		why = "the command is empty"
	case strings.IndexByte(a.Command, 0) >= 0:
		why = "the command has a NUL in it"
	case len(a.Command) > commandBytesMax:
		why = fmt.Sprintf("the command has %d bytes, at most %d are possible; write a script with write_file and run it", len(a.Command), commandBytesMax)
	default:
		return a, nil
	}
	r := tool.Fail(tool.CodeArgs, "Error: "+why)
	return a, &r
}

// Plan implements tool.Planner.
func (t execute) Plan(_ context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	if _, bad := t.args(req); bad != nil {
		return nil, bad, nil
	}
	p, err := json.Marshal(plan{t.env.Boot})
	return p, nil, err
}

// Run implements tool.Tool.
func (t execute) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return *bad, nil
	}
	p, lost, err := t.start(ctx, req, processKey(req.Key), tool.Command{Shell: a.Command, Dir: t.env.Dir, Timeout: t.timeout(a), Merge: true})
	switch {
	case lost:
		return tool.Fail(tool.CodeInterrupted, neverFoundAgain), nil
	case err != nil:
		return refused(err)
	}
	return t.follow(ctx, req, a, p)
}

// Settle implements tool.Settler: it follows the command that runs or ran.
func (t execute) Settle(ctx context.Context, req tool.Request) (*tool.Result, error) {
	a, bad := t.args(req)
	if bad != nil {
		return bad, nil
	}
	p, err := t.env.Commands.Find(ctx, processKey(req.Key))
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := t.follow(ctx, req, a, p)
	return &r, err
}

// follow brings the result of a command that was started.
func (t execute) follow(ctx context.Context, req tool.Request, a executeArgs, p tool.Process) (tool.Result, error) {
	key, timeout := processKey(req.Key), t.timeout(a)
	if a.Background {
		if ended, running, err := p.Status(ctx); err == nil && !running && ended.Lost {
			return tool.Fail(tool.CodeInterrupted, lostAfterRestart), nil
		}
		return tool.Text(fmt.Sprintf("Started in the background as %s. process_output shows what it writes, process_kill ends it.", key)), nil
	}
	bound := timeout + graceOfGuest // the guest ends it before, unless it is dead
	waiting, cancel := context.WithTimeoutCause(ctx, bound, errNoAnswer)
	defer cancel()
	c := collector{emit: req.Emit}
	ended, err := c.collect(waiting, p)
	if err != nil {
		return t.broken(ctx, waiting, p, &c, err)
	}
	return t.result(key, &c, ended, timeout), nil
}

func (t execute) timeout(a executeArgs) time.Duration {
	switch {
	case a.Background && (a.Timeout == nil || *a.Timeout == 0):
		return backgroundTimeout
	case a.Timeout == nil:
		return t.env.CommandTimeout
	case *a.Timeout == 0:
		return t.env.CommandTimeoutMax
	}
	return min(time.Duration(*a.Timeout)*time.Second, t.env.CommandTimeoutMax)
}

// start starts the command, or finds it. lost: it was started in a machine
// that is gone, or may have been.
func (t execute) start(ctx context.Context, req tool.Request, key string, c tool.Command) (p tool.Process, lost bool, err error) {
	if req.Again && !t.sameLife(req.Plan) {
		p, err = t.env.Commands.Find(ctx, key)
		if errs.Is(err, errs.NotFound) {
			return nil, true, nil
		}
		return p, false, err
	}
	p, err = t.env.Commands.Start(ctx, key, c)
	return p, false, err
}

// sameLife reports that the machine is the one for which the call was
// planned, so that a key it does not know was never used.
func (t execute) sameLife(raw json.RawMessage) bool {
	var p plan
	return json.Unmarshal(raw, &p) == nil && p.Boot != "" && p.Boot == t.env.Boot
}

var errNoAnswer = errors.New(stoppedAsking)

// Output is what a command wrote whose result is r, without the lines about its end.
func Output(r tool.Result) string {
	if len(r.Blocks) == 0 {
		return ""
	}
	text := r.Blocks[0].Text
	if at := strings.LastIndex(text, statusBegins); at >= 0 {
		text = text[:at]
	}
	if at := strings.LastIndex(text, leftOutBegins); at >= 0 && strings.HasSuffix(text, leftOutEnds) {
		if line := strings.LastIndexByte(text[:at], '\n'); line >= 0 {
			text = text[:line+1]
		}
	}
	return text
}

// refused turns what the model can act on into a result.
func refused(err error) (tool.Result, error) {
	if fe, ok := errors.AsType[*tool.FileError](err); ok {
		text := "Error: " + fe.Code + ": " + fe.Path
		if fe.Hint != "" {
			text += ": " + fe.Hint
		}
		return tool.Fail(fe.Code, text), nil
	}
	switch errs.Of(err) {
	case errs.Invalid:
		return tool.Fail(tool.CodeArgs, "Error: the command cannot be started: "+errs.Public(err)), nil
	case errs.NotFound, errs.Denied:
		return tool.Fail(tool.CodeDenied, "Error: the command cannot be started: "+errs.Public(err)), nil
	case errs.Limit:
		return tool.Fail(tool.CodeTooLarge, "Error: the command cannot be started: "+errs.Public(err)), nil
	}
	return tool.Result{}, err
}

// broken answers when the command's end was not seen.
func (t execute) broken(ctx, waiting context.Context, p tool.Process, c *collector, err error) (tool.Result, error) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, tool.ErrCancelled), errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(cause, context.DeadlineExceeded):
		end(ctx, p)
	case ctx.Err() != nil:
		return tool.Result{}, cause // the server goes down: the next run of the call finds the command
	case errors.Is(context.Cause(waiting), errNoAnswer):
		end(ctx, p) // in case it hears us after all
		return tool.Fail(tool.CodeTimeout, c.text()+"[timeout: "+stoppedAsking+" in time; whether the command still runs cannot be known]"), nil
	default:
		return tool.Result{}, err
	}
	if errors.Is(cause, tool.ErrCancelled) {
		return tool.Fail(tool.CodeCancelled, c.text()+"[the run was cancelled; the command was ended]"), nil
	}
	what := "this call"
	if errors.Is(cause, tool.ErrTimeUp) {
		what = "the run"
	}
	return tool.Fail(tool.CodeTimeout, c.text()+"[the time for "+what+" is over; the command was ended]"), nil
}

// end kills a command although the call's context is over.
func end(ctx context.Context, p tool.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	_ = p.Kill(ctx) // what cannot be killed now ends by its own timeout
}

func (t execute) result(key string, c *collector, e tool.Ended, timeout time.Duration) tool.Result {
	if e.Lost {
		return tool.Fail(tool.CodeInterrupted, c.text()+lostAfterRestart)
	}
	text := c.text()
	if c.omitted > 0 {
		text += fmt.Sprintf("[%d"+leftOutBegins+"%s and offset %d"+leftOutEnds, c.omitted, key, c.gapAt)
	}
	r := tool.Text(text + status(e, timeout))
	r.Exit, r.Bytes = &e.Exit, e.Written.Stdout+e.Written.Stderr
	if c.omitted == 0 {
		r.Bytes = 0
	}
	switch {
	case e.TimedOut:
		r.Failed, r.Code = true, tool.CodeTimeout
	case e.Exit != 0:
		r.Failed, r.Code = true, tool.CodeExit
	}
	return r
}

// status is the last line of a result.
func status(e tool.Ended, timeout time.Duration) string {
	how := ""
	switch {
	case e.TimedOut && timeout > 0:
		how = fmt.Sprintf("; it was ended after its timeout of %s", timeout)
	case e.TimedOut:
		how = "; it was ended after its timeout"
	case e.OutOfMemory:
		how = "; it was killed because the machine ran out of memory"
	case e.Killed:
		how = "; it was killed"
	case e.Signal != "":
		how = "; it ended by " + e.Signal
	}
	word := "succeeded"
	if e.Exit != 0 || how != "" {
		word = "failed"
	}
	return fmt.Sprintf(statusBegins+"%s with exit code %d%s]", word, e.Exit, how)
}
