// Package service has the tool `service`, by which an agent starts programs
// that are to stay up, and looks after them.
//
//	service.Add(registry)                     // it needs Env.Services
//	env.Services = guest.NewServices(client)  // the machine keeps them running
//
// A service belongs to the machine, not to the call or the run that started
// it: it goes on when they end, also when they are cancelled. Starting and
// stopping say what shall be, so they may be said twice; a restart notes first
// which run of the service it is about, and one that is run again after a crash
// of the server does not end a run that it began itself.
//
// The tool is safe for concurrent use.
package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds.
const (
	waitDefault   = 20 * time.Second
	waitMax       = 5 * time.Minute
	logTail       = 4 << 10 // of a service that did not come up
	logShown      = 16 << 10
	resultDefault = 80_000
	listedMax     = 100
	reasonMax     = 300
)

// Actions.
const (
	start   = "start"
	stop    = "stop"
	restart = "restart"
	list    = "list"
	logs    = "logs"
)

const about = `Keeps a program running in the sandbox: a dev server, a database, a worker; it stays up after you are done. ` +
	`start with a command declares a service and starts it, waits until it is ready (ready_http, ready_tcp or ready_log say when that is), ` +
	`and tells what it wrote if it is not; what ends is started again. stop, restart and logs are about a service by its name. ` +
	`For a command that ends by itself use execute. Example: {"action":"start","name":"web","command":"npm run dev","ready_http":5173}`

const schema = `{"type":"object","additionalProperties":false,"required":["action"],"properties":{` +
	`"action":{"type":"string","enum":["start","stop","restart","list","logs"]},` +
	`"name":{"type":"string","maxLength":40,"description":"a-z, 0-9 and -, from a letter on; for all but list"},` +
	`"command":{"type":"string","minLength":1,"description":"start: for bash -c, in the foreground; without it a service that there is starts again"},` +
	`"workdir":{"type":"string","maxLength":4096},` +
	`"env":{"type":"object","additionalProperties":{"type":"string"},"maxProperties":100},` +
	`"ports":{"type":"array","maxItems":32,"items":{"type":"integer","minimum":1,"maximum":65535},"description":"that it serves"},` +
	`"ready_http":{"type":"integer","minimum":1,"maximum":65535,"description":"ready when this port answers HTTP with 200 to 399"},` +
	`"ready_path":{"type":"string","maxLength":1000,"description":"for ready_http"},` +
	`"ready_tcp":{"type":"integer","minimum":1,"maximum":65535,"description":"ready when this port accepts connections"},` +
	`"ready_log":{"type":"string","minLength":1,"maxLength":1000,"description":"ready when a line of its output matches this regular expression"},` +
	`"ready_timeout_s":{"type":"number","minimum":0,"maximum":3600,"default":60,"description":"after it, it counts as not ready"},` +
	`"restart_policy":{"type":"string","enum":["always","on-failure","never"],"default":"always"},` +
	`"wait_s":{"type":"number","minimum":0,"maximum":300,"default":20,"description":"for start, stop, restart"},` +
	`"offset":{"type":"integer","minimum":0,"description":"logs: the byte to begin with; default near the end"}}}`

// Add adds the tool.
func Add(r *tool.Registry) {
	r.Add("service", func(env tool.Env) (tool.Tool, error) {
		if env.Services == nil {
			return nil, errs.New(errs.Unsupported, "service needs a machine that keeps programs running, and this agent has none")
		}
		return service{env}, nil
	})
}

type args struct {
	Action  string            `json:"action"`
	Name    string            `json:"name"`
	Command string            `json:"command"`
	Workdir string            `json:"workdir"`
	Env     map[string]string `json:"env"`
	Ports   []int             `json:"ports"`
	HTTP    int               `json:"ready_http"`
	Path    string            `json:"ready_path"`
	TCP     int               `json:"ready_tcp"`
	Log     string            `json:"ready_log"`
	Timeout float64           `json:"ready_timeout_s"`
	Policy  string            `json:"restart_policy"`
	Wait    *float64          `json:"wait_s"`
	Offset  *int64            `json:"offset"`
}

func (a args) wait() time.Duration {
	if a.Wait == nil {
		return waitDefault
	}
	return min(time.Duration(*a.Wait*float64(time.Second)), waitMax)
}

// declares reports whether there is anything of a declaration.
func (a args) declares() bool {
	return a.Workdir != "" || len(a.Env) > 0 || len(a.Ports) > 0 || a.HTTP > 0 || a.Path != "" || a.TCP > 0 || a.Log != "" || a.Timeout > 0 || a.Policy != ""
}

func parse(raw json.RawMessage) (args, *tool.Result) {
	var a args
	why := ""
	switch err := json.Unmarshal(raw, &a); {
	case err != nil:
		why = "the arguments cannot be read"
	case a.Name == "" && a.Action != list:
		why = a.Action + " needs the name of a service"
	case a.Command != "" && a.Action != start:
		why = "a command goes with start only"
	case a.Command == "" && a.declares():
		why = "start needs a command to declare a service"
	case a.Command != "" && strings.TrimSpace(a.Command) == "":
		why = "the command is empty"
	default:
		return a, nil
	}
	r := tool.Fail(tool.CodeArgs, "Error: "+why)
	return a, &r
}

type service struct{ env tool.Env }

// Spec implements tool.Tool.
func (service) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "service", Description: about, Schema: json.RawMessage(schema)}
}

// Effect implements tool.Tool. What a service touches is not known, as with a
// command. Bad arguments are answered as for the worst.
func (service) Effect(raw json.RawMessage) tool.Effect {
	if a, bad := parse(raw); bad == nil && (a.Action == list || a.Action == logs) {
		return tool.Effect{Class: tool.Read}
	}
	return tool.Effect{Class: tool.Keyed}
}

// noted stands in the log before a restart: of which run.
type noted struct {
	Run string `json:"run"`
}

// Plan implements tool.Planner.
func (t service) Plan(ctx context.Context, req tool.Request) (json.RawMessage, *tool.Result, error) {
	a, bad := parse(req.Args)
	if bad != nil || a.Action != restart {
		return nil, bad, nil
	}
	s, err := t.env.Services.Service(ctx, a.Name)
	if err != nil {
		r, err := refused(err)
		if err != nil {
			return nil, nil, err
		}
		return nil, &r, nil
	}
	plan, err := json.Marshal(noted{s.Run})
	return plan, nil, err
}

// Run implements tool.Tool.
func (t service) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := parse(req.Args)
	if bad != nil {
		return *bad, nil
	}
	var r tool.Result
	var err error
	switch a.Action {
	case list:
		r, err = t.list(ctx)
	case logs:
		r, err = t.logs(ctx, a)
	default:
		r, err = t.act(ctx, a, req)
	}
	if err != nil {
		return refused(err)
	}
	return r, nil
}

// act starts, stops or restarts one.
func (t service) act(ctx context.Context, a args, req tool.Request) (tool.Result, error) {
	var s tool.Service
	var err error
	switch {
	case a.Action == stop:
		s, err = t.env.Services.Stop(ctx, a.Name, a.wait())
	case a.Action == restart:
		s, err = t.restart(ctx, a, req)
	case a.Command != "":
		s, err = t.env.Services.Declare(ctx, tool.ServiceSpec{
			Name: a.Name, Command: a.Command, Dir: orElse(a.Workdir, t.env.Dir), Env: a.Env, Ports: a.Ports,
			ReadyHTTP: a.HTTP, ReadyPath: a.Path, ReadyTCP: a.TCP, ReadyLog: a.Log, Restart: a.Policy,
			ReadyTimeout: time.Duration(a.Timeout * float64(time.Second)),
		}, a.wait())
	default:
		s, err = t.env.Services.Start(ctx, a.Name, a.wait())
	}
	if err != nil {
		return tool.Result{}, err
	}
	return t.outcome(ctx, a, s)
}

// restart does not end a run that an earlier try of the same call began.
func (t service) restart(ctx context.Context, a args, req tool.Request) (tool.Service, error) {
	if req.Again {
		var before noted
		if err := json.Unmarshal(req.Plan, &before); err != nil {
			return tool.Service{}, errs.Wrap(errs.Internal, err, "a restart without its plan")
		}
		s, err := t.env.Services.Service(ctx, a.Name)
		if err != nil {
			return s, err
		}
		if s.Run != before.Run {
			return t.env.Services.Start(ctx, a.Name, a.wait()) // it runs: this only waits
		}
	}
	return t.env.Services.Restart(ctx, a.Name, a.wait())
}

// outcome tells how it is now; of one that did not come up, what it wrote last.
func (t service) outcome(ctx context.Context, a args, s tool.Service) (tool.Result, error) {
	text := describe(s)
	if a.wait() == 0 { // it may not have begun yet
		return tool.Text(text + " You did not wait; look again with list."), nil
	}
	wanted := s.State == "ready" || (a.Action == stop && s.State == "stopped")
	if a.Action == stop || s.State == "ready" {
		r := tool.Text(text)
		r.Failed = !wanted
		return r, nil
	}
	l, err := t.env.Services.Log(ctx, s.Name, -logTail, logTail)
	if err != nil {
		return tool.Result{}, err
	}
	if len(l.Data) > 0 {
		text += "\nIt wrote last:\n" + textOf(l.Data)
	}
	r := tool.Text(strings.TrimRight(text, "\n"))
	// A program that was to run once and did so has done what it should.
	done := a.Policy == "never" || a.Policy == "on-failure"
	r.Failed = !wanted && !(done && s.Exit != nil && *s.Exit == 0 && s.PID == 0)
	return r, nil
}

// describe is a line about a service.
func describe(s tool.Service) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s", s.Name, s.State)
	if s.Reason != "" {
		fmt.Fprintf(&b, " (%s)", clip.Line(s.Reason, reasonMax))
	}
	if s.PID > 0 {
		fmt.Fprintf(&b, ", pid %d", s.PID)
	}
	if len(s.Ports) > 0 {
		fmt.Fprintf(&b, ", ports %s", strings.Trim(fmt.Sprint(s.Ports), "[]"))
	}
	if s.Restarts > 0 {
		fmt.Fprintf(&b, ", started again %d times", s.Restarts)
	}
	if s.Exit != nil && s.PID == 0 {
		fmt.Fprintf(&b, ", exit code %d", *s.Exit)
	}
	return b.String() + "."
}

func (t service) list(ctx context.Context) (tool.Result, error) {
	all, err := t.env.Services.Services(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	if len(all) == 0 {
		return tool.Text("There are no services."), nil
	}
	var b strings.Builder
	for _, s := range all[:min(len(all), listedMax)] {
		fmt.Fprintf(&b, "%s  %s", describe(s), clip.Line(s.Command, 100))
		switch s.Source {
		case "file":
			b.WriteString("  (declared in skete.yaml)")
		case "spec":
			b.WriteString("  (declared with the sandbox)")
		}
		b.WriteByte('\n')
	}
	if more := len(all) - listedMax; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return tool.Text(strings.TrimRight(b.String(), "\n")), nil
}

func (t service) logs(ctx context.Context, a args) (tool.Result, error) {
	most := t.env.ResultBytesMax
	if most <= 0 {
		most = resultDefault
	}
	from := int64(-min(most, logShown))
	if a.Offset != nil {
		from = *a.Offset
	}
	l, err := t.env.Services.Log(ctx, a.Name, from, most)
	if err != nil {
		return tool.Result{}, err
	}
	var b strings.Builder
	switch {
	case l.Gone > 0:
		fmt.Fprintf(&b, "[%d bytes before offset %d are gone]\n", l.Gone, l.From)
	case a.Offset == nil && l.From > 0:
		fmt.Fprintf(&b, "[from offset %d on]\n", l.From)
	}
	b.WriteString(textOf(l.Data))
	next := l.From + int64(len(l.Data))
	if next < l.Size {
		fmt.Fprintf(&b, "[%d bytes in all; go on with offset=%d]", l.Size, next)
	} else {
		fmt.Fprintf(&b, "[that is all so far; go on with offset=%d]", next)
	}
	r := tool.Text(b.String())
	r.Whole = true
	return r, nil
}

// textOf is output as text that ends with its line.
func textOf(data []byte) string {
	s := strings.ToValidUTF8(string(data), "\uFFFD")
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// refused turns what the caller can do something about into a result.
func refused(err error) (tool.Result, error) {
	code := ""
	switch errs.Of(err) {
	case errs.NotFound:
		return tool.Fail(tool.CodeArgs, "Error: there is no such service; action list shows all"), nil
	case errs.Invalid:
		code = tool.CodeArgs
	case errs.Conflict, errs.Exists:
		code = tool.CodeConflict
	case errs.Limit:
		code = tool.CodeTooLarge
	case errs.Denied, errs.Unsupported:
		code = tool.CodeDenied
	default:
		return tool.Result{}, err
	}
	return tool.Fail(code, "Error: "+errs.Public(err)), nil
}
