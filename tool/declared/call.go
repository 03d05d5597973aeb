package declared

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/shell"
)

// Bounds of what is copied for a call.
const (
	copiedFilesMax = 1000
	copiedBytesMax = 16 << 20
	copiedFileMax  = 8 << 20
	artifactsMax   = 100
	stderrMax      = 16 << 10
)

// Places in the machine.
const (
	filesDir     = "/skills/.tool-" // root's: the one place that no program of the user can change
	callsDir     = ".skete-calls"   // in a sandbox of the tool's own, beneath the working directory
	resultsDir   = "tool-results"   // in the run's, likewise
	completeFile = ".complete"
)

// call is one run of a call.
type call struct {
	s    *Source
	p    tool.Place
	req  tool.Request
	what pinned
	m    Machine
	// at is where the files of a skill are, "" = they are beside a manifest; there reports
	// whether they are in the machine.
	at    string
	there func(context.Context) (bool, error)
}

func (c *call) own() bool { return c.what.Manifest.Sandbox.Scope != "" }

// scope is the text that calls share a sandbox by.
func (c *call) scope() string {
	return strings.NewReplacer(
		"{call}", "call "+c.req.Key, "{run}", "run "+string(cmp.Or(c.p.Top, c.p.Run)), "{thread}", "thread "+string(c.p.Thread.Root()), "{user}", "user "+c.p.By, "{tenant}", "tenant",
	).Replace(c.what.Manifest.Sandbox.Scope)
}

// sandboxKey is the same for calls that share a sandbox. A manifest that asks for another
// one, in the middle of its scope, gets another one.
func (c *call) sandboxKey() string {
	spec, err := json.Marshal(c.spec())
	if err != nil {
		spec = nil // of texts and numbers: it cannot be
	}
	return "tool-" + short(c.p.Tenant, c.scope(), string(spec))
}

// wanted is the sandbox of the tool's own.
func (c *call) wanted() Wanted {
	s := c.what.Manifest.Sandbox
	w := Wanted{Key: c.sandboxKey(), Tool: c.what.Manifest.Name, Scope: c.scope(), Spec: c.spec()}
	switch {
	case c.alone():
		w.Keep = aloneKeep
	case s.outlives():
		w.Keep = cmp.Or(s.Keep, keepUsual)
	default:
		w.Run = string(c.p.Top)
	}
	return w
}

// aloneKeep is how long a sandbox of a single call that is of no run is kept if its server dies.
const aloneKeep = 15 * time.Minute

// alone reports whether the sandbox is for this call alone: of a call that a person makes,
// there is no run and no thread that could have another one.
func (c *call) alone() bool {
	s := c.what.Manifest.Sandbox.Scope
	return c.p.Top == "" && (strings.Contains(s, "{call}") || strings.Contains(s, "{run}") || strings.Contains(s, "{thread}"))
}

// spec is the sandbox of the tool's own, with the keys of a request for one.
func (c *call) spec() map[string]any {
	s := c.what.Manifest.Sandbox
	spec := map[string]any{"network": "none"}
	if s.Network != "" {
		spec["network"] = s.Network
	}
	for key, v := range map[string]string{"template": s.Template, "language": s.Language} {
		if v != "" {
			spec[key] = v
		}
	}
	for key, n := range map[string]int{"memory_mb": s.MemoryMB, "disk_mb": s.DiskMB} {
		if n != 0 {
			spec[key] = n
		}
	}
	if s.CPUs != 0 {
		spec["cpus"] = s.CPUs
	}
	if len(s.Env) > 0 {
		spec["env"] = maps.Clone(s.Env)
	}
	return spec
}

// run prepares the machine and lets the command run there.
func (c *call) run(ctx context.Context) (tool.Result, error) {
	plan, fresh, err := c.begun(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	if fresh {
		if bad, err := c.prepare(ctx); bad != nil || err != nil {
			return result(bad, err)
		}
	}
	r, err := c.execute(ctx, plan)
	if err != nil {
		return r, err
	}
	return c.finish(ctx, r)
}

// begun finds out how far an earlier run of the call came: plan is what the command is
// started by, fresh says that the machine has to be prepared.
func (c *call) begun(ctx context.Context) (plan json.RawMessage, fresh bool, err error) {
	if !c.own() {
		return c.req.Plan, !c.req.Again || c.sameLife(), nil
	}
	boot := c.m.Boot
	if c.req.Again {
		noted, _, err := c.m.Files.Read(ctx, c.note("boot"), 1<<10)
		if _, theirs := errors.AsType[*tool.FileError](err); err != nil && !theirs {
			return nil, false, err
		}
		if err == nil {
			boot = string(noted)
		}
	}
	plan, err = json.Marshal(tool.Started{Boot: boot})
	return plan, boot == c.m.Boot, err
}

// sameLife reports whether the run's sandbox is the one for which the call was planned.
func (c *call) sameLife() bool {
	var s tool.Started
	return json.Unmarshal(c.req.Plan, &s) == nil && s.Boot == c.m.Boot
}

// note is a file of the call in a sandbox of the tool's own. It stays when the machine boots.
func (c *call) note(kind string) string { return path.Join(c.notes(), short(c.req.Key)+"."+kind) }

func (c *call) notes() string { return path.Join("/", c.m.Dir, callsDir) }

// input is the file with the arguments.
func (c *call) input() string {
	if c.own() {
		return c.note("json")
	}
	return "/tmp/skete-tool-" + short(c.req.Key) + ".json" // no part of the files that the run changes
}

func (c *call) stderr() string { return strings.TrimSuffix(c.input(), ".json") + ".stderr" }

// prepare puts what the command needs into the machine. It may be repeated as long as the
// command has not begun; when it has, nothing is touched.
func (c *call) prepare(ctx context.Context) (*tool.Result, error) {
	if c.req.Again {
		if _, err := c.m.Commands.Find(ctx, shell.Key(c.req.Key)); err == nil {
			return nil, nil
		} else if !errs.Is(err, errs.NotFound) {
			return nil, err
		}
	}
	if err := c.mount(ctx); err != nil {
		return nil, err
	}
	if bad, err := c.inject(ctx); bad != nil || err != nil {
		return bad, err
	}
	args := c.req.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if _, err := c.m.Files.Write(ctx, c.input(), args, ""); err != nil {
		return about(err)
	}
	if !c.own() {
		return nil, nil
	}
	_, err := c.m.Files.Write(ctx, c.note("boot"), []byte(c.m.Boot), "")
	return about(err)
}

// about makes a failure of files one that the model reads.
func about(err error) (*tool.Result, error) {
	if bad, is := errors.AsType[*tool.FileError](err); is {
		return failed(bad.Code, "%s: %s %s", bad.Path, bad.Code, bad.Hint), nil
	}
	return nil, err
}

// dir is where the files beside the manifest are in the machine.
func (c *call) dir() string {
	if c.at != "" {
		return c.at
	}
	return filesDir + c.what.Manifest.Name + "-" + (skill.Tree{Files: c.what.Files}).Version()[:12]
}

// mount puts the files beside the manifest into the machine, unless they are there.
func (c *call) mount(ctx context.Context) error {
	if len(c.what.Files) == 0 {
		return nil
	}
	defer c.s.put.Lock(c.m.Boot + c.dir())()
	if c.at != "" {
		return c.mountSkill(ctx)
	}
	_, err := c.m.Files.Stat(ctx, path.Join(c.dir(), completeFile))
	if _, theirs := errors.AsType[*tool.FileError](err); !theirs {
		return err
	}
	t := skill.Tree{Files: append(slices.Clone(c.what.Files), skill.Entry{Path: completeFile})} // the last one in the archive
	data, err := t.Tar()
	if err != nil {
		return err
	}
	return c.m.Mount(ctx, c.dir(), data)
}

// mountSkill puts the files of a skill where agents that learn it have them.
func (c *call) mountSkill(ctx context.Context) error {
	if ok, err := c.there(ctx); ok || err != nil {
		return err
	}
	data, err := skill.Tree{Files: c.what.Files}.Tar()
	if err != nil {
		return err
	}
	return c.m.Mount(ctx, c.at, data)
}

// execute starts the command, or finds it, and waits for its end.
func (c *call) execute(ctx context.Context, plan json.RawMessage) (tool.Result, error) {
	line, err := c.line()
	if err != nil {
		return tool.Result{}, err
	}
	timeout := c.what.Manifest.timeout()
	args, err := json.Marshal(map[string]any{"command": line, "timeout": int(max(timeout, time.Second).Seconds())})
	if err != nil {
		return tool.Result{}, err
	}
	registry := &tool.Registry{}
	shell.Add(registry)
	tools, err := registry.Make(tool.Env{Commands: c.m.Commands, Boot: c.m.Boot, Dir: c.m.Dir}, []string{"execute"})
	if err != nil {
		return tool.Result{}, err
	}
	req := c.req
	req.Args, req.Plan = args, plan
	return tools[0].Run(ctx, req)
}

// line is what the shell reads. All of it is the manifest's, and paths of ours.
func (c *call) line() (string, error) {
	command, err := c.what.Manifest.line()
	if err != nil {
		return "", err
	}
	line := "export SKETE_TOOL_INPUT=" + quoted(c.input()) + " SKETE_TOOL_DIR=" + quoted(c.dir()) + "\nexec <\"$SKETE_TOOL_INPUT\"\n"
	if c.what.Manifest.Output != nil { // what is written beside the output is no part of it
		line += "exec 2>" + quoted(c.stderr()) + "\n"
	}
	return line + command, nil
}

// finish makes the result that the model reads.
func (c *call) finish(ctx context.Context, r tool.Result) (tool.Result, error) {
	if c.what.Manifest.Output != nil {
		return c.structured(ctx, r, shell.Output(r))
	}
	text := r.Blocks[0].Text
	if !r.Failed && c.own() { // no other tool can show what was left out
		text = shell.Output(r)
	}
	handed, err := c.handBack(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	r.Blocks[0].Text = c.what.Manifest.clipped(text) + handed
	return r, nil
}

// structured makes the result of a command whose output has a schema.
func (c *call) structured(ctx context.Context, r tool.Result, output string) (tool.Result, error) {
	errors, _, err := c.m.Files.ReadAt(ctx, c.stderr(), 0, stderrMax)
	if _, err := about(err); err != nil {
		return tool.Result{}, err
	}
	beside := ""
	if len(errors) > 0 {
		beside = "\n[stderr]\n" + strings.ToValidUTF8(string(errors), "\uFFFD")
	}
	if r.Failed {
		r.Blocks[0].Text = c.what.Manifest.clipped(r.Blocks[0].Text + beside)
		return r, nil
	}
	if why := misfit(c.what.Manifest.Output, output); why != "" {
		return tool.Fail(CodeOutput, c.what.Manifest.clipped("Error: the tool wrote something else than it promises: "+why+"\n"+output+beside)), nil
	}
	handed, err := c.handBack(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	r.Blocks[0].Text = c.what.Manifest.clipped(strings.TrimSpace(output)) + handed
	return r, nil
}

// CodeOutput is that of an output which does not fit its schema.
const CodeOutput = "invalid_output"

// clipped is a text as long as the manifest lets it be: its head and its tail.
func (m Manifest) clipped(s string) string {
	limit := m.Result.BytesMax
	if limit == 0 {
		limit = resultBytesUsual
	}
	if len(s) <= limit {
		return s
	}
	head, tail := s[:limit/2], s[len(s)-limit/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n[… %d bytes are left out here …]\n", len(s)-len(head)-len(tail)) + strings.ToValidUTF8(tail, "")
}
