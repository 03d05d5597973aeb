package declared_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/declared"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

// shop has a run's machine, one for all that tools have of their own, and a folder.
type shop struct {
	t       *testing.T
	dir     string
	s       *declared.Source
	run     *machine.Machine
	place   tool.Place
	own     *machine.Machine
	mu      sync.Mutex
	boot    string
	err     error
	weak    bool // the sandboxes do not isolate
	made    []string
	specs   []map[string]any
	wanted  declared.Wanted // the last one
	removed []string
	now     time.Time
	rates   kv.Store
}

func newShop(t *testing.T) *shop {
	t.Helper()
	x := &shop{t: t, dir: t.TempDir(), run: machine.Start(t), own: machine.Start(t), boot: "b1", now: time.Now(), rates: kvtest.NewMemory()}
	id := thread.NewID()
	x.place = tool.Place{
		Tenant: "acme", Agent: "auditor", Thread: id, Run: "run_1", Top: "run_1", By: "anna", Machine: "m1", Boot: "b1", Dir: x.run.Workdir,
		Files: guest.NewFiles(x.run.Client), Commands: guest.NewCommands(x.run.Client), Mount: mount,
	}
	x.open()
	return x
}

// open is a new server over what there is.
func (x *shop) open() {
	x.s = declared.New(declared.Config{Folder: declared.NewFolder(x.dir), Sandboxes: x, Rates: x.rates, Now: func() time.Time { return x.now }})
}

func mount(context.Context, string, []byte) error { return nil }

// Make implements declared.Sandboxes.
func (x *shop) Make(_ context.Context, tenant string, w declared.Wanted) (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if made := tenant + " " + w.Key + " " + w.Run; !slices.Contains(x.made, made) {
		x.made = append(x.made, made)
		x.specs = append(x.specs, w.Spec)
	}
	x.wanted = w
	return w.Key, x.err
}

// Open implements declared.Sandboxes.
func (x *shop) Open(context.Context, string, string) (declared.Machine, func(), error) {
	m := declared.Machine{Files: guest.NewFiles(x.own.Client), Commands: guest.NewCommands(x.own.Client), Boot: x.boot, Dir: x.own.Workdir, Mount: mount}
	if x.weak {
		m.Mount = nil
	}
	return m, func() {}, nil
}

// Remove implements declared.Sandboxes.
func (x *shop) Remove(_ context.Context, _, id string) error {
	x.removed = append(x.removed, id)
	return nil
}

// find returns a tool that a manifest declares.
func (x *shop) find(name, manifest string) tool.External {
	x.t.Helper()
	write(x.t, x.dir, name+".yaml", manifest)
	found, notes, err := x.s.Find(x.t.Context(), x.place)
	if err != nil || len(notes) > 0 {
		x.t.Fatal(notes, err)
	}
	i := slices.IndexFunc(found, func(e tool.External) bool { return e.Spec.Name == name })
	if i < 0 {
		x.t.Fatalf("no tool %s", name)
	}
	return found[i]
}

func (x *shop) request(key, args string) tool.Request {
	plan, _ := json.Marshal(tool.Started{Boot: x.place.Boot})
	return tool.Request{Key: key, Call: key, Thread: x.place.Thread, Run: x.place.Run, Args: json.RawMessage(args), Plan: plan}
}

func (x *shop) call(e tool.External, key, args string) tool.Result {
	x.t.Helper()
	r, err := x.s.Call(x.t.Context(), x.place, e, x.request(key, args))
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

func textOf(r tool.Result) string {
	if len(r.Blocks) == 0 {
		return ""
	}
	return r.Blocks[0].Text
}

// Arguments come as JSON, on standard input and in a file, and nothing of them is read by a
// shell: in the run's sandbox, and in one of the tool's own.
func TestCall_argumentsAreData(t *testing.T) {
	x := newShop(t)
	const args = `{"x":"'; touch pwned; $(touch pwned) \"","sandbox":{"network":"open","scope":"{run}"}}`
	for name, manifest := range map[string]string{
		"here": "description: d\ncommand: 'cat; cat \"$SKETE_TOOL_INPUT\"; echo err >&2; exit 3'\n",
		"away": "description: d\ncommand: [sh, -c, 'cat; cat \"$SKETE_TOOL_INPUT\"; echo err >&2; exit 3']\nsandbox: {scope: '{call}'}\n",
	} {
		r := x.call(x.find(name, manifest), name, args)
		if got := textOf(r); !strings.HasPrefix(got, args+args+"err\n") || !r.Failed || r.Exit == nil || *r.Exit != 3 {
			t.Errorf("%s: %q %+v", name, got, r)
		}
	}
	for _, dir := range []string{x.run.Workdir, x.own.Workdir} {
		if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
			t.Errorf("an argument was run in %s", dir)
		}
	}
	if len(x.specs) != 1 || fmt.Sprint(x.specs[0]) != "map[network:none]" {
		t.Errorf("what the call says changed the sandbox: %v", x.specs)
	}
}

// Calls share a sandbox if their scope is the same text.
func TestCall_scopes(t *testing.T) {
	x := newShop(t)
	for _, tt := range []struct {
		scope string
		want  int  // sandboxes for: the same call in two threads, runs, users; two calls
		run   bool // is removed with the run
	}{
		{"{call}", 4, true}, {"{run}", 2, true}, {"{thread}", 2, false}, {"{user}", 2, false}, {"{tenant}", 1, false}, {"a-{run}-{user}", 3, true},
	} {
		x.made = nil
		name := "t" + strings.Trim(strings.NewReplacer("{", "", "}", "", "-", "").Replace(tt.scope), " ")
		e := x.find(name, "description: d\ncommand: 'true'\nsandbox: {scope: '"+tt.scope+"', memory_mb: 64}\n")
		home := x.place
		for i, change := range []func(p *tool.Place){
			func(*tool.Place) {},
			func(p *tool.Place) { p.Thread = home.Thread.Sub("c1") }, // a sub-agent's is its parent's
			func(p *tool.Place) { p.Top = "run_2" },
			func(p *tool.Place) { p.By = "bert" },
		} {
			x.place = home
			change(&x.place)
			if tt.scope == "{thread}" && i == 2 {
				x.place.Thread = thread.NewID()
			}
			x.call(e, fmt.Sprint(name, i), `{}`)
		}
		x.place = home
		if (x.wanted.Keep == 24*time.Hour) == tt.run || x.wanted.Tool != name || strings.Contains(x.wanted.Scope, "{") {
			t.Errorf("%s: %+v", tt.scope, x.wanted)
		}
		with := strings.HasSuffix(x.made[0], " run_1")
		if len(x.made) != tt.want || with != tt.run {
			t.Errorf("%s: %v", tt.scope, x.made)
		}
	}
}

// A sandbox that outlives runs is kept as long as its manifest says.
func TestCall_keep(t *testing.T) {
	x := newShop(t)
	x.call(x.find("t", "description: d\ncommand: 'true'\nsandbox: {scope: '{user}', keep: 90m}\n"), "k", `{}`)
	if x.wanted.Keep != 90*time.Minute || x.wanted.Run != "" || x.wanted.Scope != "user anna" {
		t.Errorf("%+v", x.wanted)
	}
}

// A call that a person makes has a sandbox for itself, whatever run or thread it is not of,
// which is removed after it, or soon if the server dies; what is a user's is shared.
func TestCall_ofAPerson(t *testing.T) {
	x := newShop(t)
	x.place.Top = ""
	for scope, keep := range map[string]time.Duration{"{call}": 15 * time.Minute, "{run}": 15 * time.Minute, "a-{thread}": 15 * time.Minute, "{user}": 24 * time.Hour} {
		x.removed = nil
		e := x.find("t", "description: d\ncommand: 'true'\nsandbox: {scope: '"+scope+"'}\n")
		x.call(e, "k", `{}`)
		x.s.Finish(t.Context(), x.place, e, "k")
		if x.wanted.Keep != keep || x.wanted.Run != "" || (len(x.removed) == 1) != (scope != "{user}") {
			t.Errorf("%s: %+v, removed %v", scope, x.wanted, x.removed)
		}
	}
}

// A sandbox of one call is removed when its result is in the log; the others are not.
func TestFinish(t *testing.T) {
	x := newShop(t)
	call := x.find("call", "description: d\ncommand: 'true'\nsandbox: {scope: '{call}'}\n")
	run := x.find("run", "description: d\ncommand: 'true'\nsandbox: {scope: '{run}'}\n")
	x.call(call, "k1", `{}`)
	x.call(run, "k2", `{}`)
	for range 2 {
		x.s.Finish(t.Context(), x.place, call, "k1")
		x.s.Finish(t.Context(), x.place, run, "k2")
	}
	if len(x.removed) != 1 || !strings.Contains(x.made[0], x.removed[0]) {
		t.Errorf("removed %v of %v", x.removed, x.made)
	}
}

// A call that goes on in the next server attaches to its command, and does not start it
// twice; where the machine was booted meanwhile, it says that what was done is not known.
func TestCall_again(t *testing.T) {
	for _, scope := range []string{"", "sandbox: {scope: '{call}'}\n"} {
		x := newShop(t)
		e := x.find("slow", "description: d\ncommand: 'echo x >> count; while [ ! -e go ]; do sleep 0.05; done; wc -l < count'\n"+scope)
		at := x.run.Workdir
		if scope != "" {
			at = x.own.Workdir
		}
		ctx, stop := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := x.s.Call(ctx, x.place, e, x.request("k", `{}`))
			gone <- err
		}()
		patience.Until(t, 10*time.Second, "the command runs", func() bool { _, err := os.Stat(filepath.Join(at, "count")); return err == nil })
		stop() // as when the server goes down
		if err := <-gone; err == nil {
			t.Error("the call ended")
		}
		x.open()
		write(t, at, "go", "")
		req := x.request("k", `{}`)
		req.Again = true
		r, err := x.s.Call(t.Context(), x.place, e, req)
		if err != nil || !strings.HasPrefix(strings.TrimSpace(textOf(r)), "1") {
			t.Errorf("%q: %q, %v", scope, textOf(r), err)
		}
		req = x.request("never", `{}`) // the server died before the command was started
		req.Again = true
		if r, err := x.s.Call(t.Context(), x.place, e, req); err != nil || r.Failed {
			t.Errorf("%q: a command that was not started: %q, %v", scope, textOf(r), err)
		}
		if scope == "" {
			x.place.Boot = "b2"
			req.Key = "lost"
			if r, err := x.s.Call(t.Context(), x.place, e, req); err != nil || r.Code != tool.CodeInterrupted {
				t.Errorf("in a machine that was booted: %+v, %v", r, err)
			}
		}
	}
}

// Files that arguments name are copied into the tool's sandbox; what it makes is handed back.
func TestCall_files(t *testing.T) {
	x := newShop(t)
	e := x.find("copy", "description: d\ninput: {type: object, properties: {paths: {}}}\ncommand: 'true'\nsandbox: {scope: '{call}'}\nfiles: [paths]\n")
	if _, err := x.place.Files.Write(t.Context(), filepath.Join(x.run.Workdir, "in/a"), []byte("abc"), ""); err != nil {
		t.Fatal(err)
	}
	if r := x.call(e, "k", `{"paths":["in","in/a"]}`); r.Failed {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{`{"paths":"/"}`, `{"paths":[7]}`, `{"paths":"../x"}`, `{"paths":"none"}`} {
		if r := x.call(e, "k"+bad, bad); !r.Failed {
			t.Errorf("%s: %q", bad, textOf(r))
		}
	}
	made := x.find("make", "description: d\ncommand: 'echo one > out.txt; echo fine'\nsandbox: {scope: '{call}'}\nartifacts: ['*.txt']\n")
	r := x.call(made, "m", `{}`)
	found, _ := filepath.Glob(filepath.Join(x.run.Workdir, "tool-results", "make-*", "out.txt"))
	if len(found) != 1 || !strings.Contains(textOf(r), found[0]+" (4 bytes)") || !strings.HasPrefix(textOf(r), "fine\n") {
		t.Errorf("%v: %q", found, textOf(r))
	}
}

// What a tool writes has to fit its output's schema; what is written beside it does not matter.
func TestCall_output(t *testing.T) {
	x := newShop(t)
	const rest = "output: {type: object, required: [n], properties: {n: {type: integer}}}\n"
	if r := x.call(x.find("good", "description: d\ncommand: 'echo warn >&2; echo \"{\\\"n\\\": 1}\"'\n"+rest), "g", `{}`); textOf(r) != `{"n": 1}` || r.Failed {
		t.Errorf("%+v", r)
	}
	for name, says := range map[string]string{"text": "hello", "other": `{\"n\": \"x\"}`, "nothing": ""} {
		r := x.call(x.find(name, "description: d\ncommand: 'echo why >&2; echo \""+says+"\"'\n"+rest), name, `{}`)
		if r.Code != declared.CodeOutput || !strings.Contains(textOf(r), "why") {
			t.Errorf("%s: %q %+v", name, textOf(r), r)
		}
	}
	long := x.find("long", "description: d\ncommand: 'head -c 100000 /dev/zero | tr \"\\0\" x; echo; echo end'\nresult: {bytes_max: 1000}\n")
	if got := textOf(x.call(long, "l", `{}`)); len(got) > 1200 || !strings.Contains(got, "bytes are left out here") || !strings.Contains(got, "end") {
		t.Errorf("%d bytes: %.100q", len(got), got)
	}
	late := x.find("late", "description: d\ncommand: 'sleep 60'\nsandbox: {timeout: 1s}\n")
	if r := x.call(late, "late", `{}`); r.Code != tool.CodeTimeout {
		t.Errorf("%+v", r)
	}
}

// Without a sandbox that isolates a call fails, and nothing runs.
func TestCall_neverOnTheHost(t *testing.T) {
	for name, scope := range map[string]string{"the run's": "", "its own": "sandbox: {scope: '{call}'}\n"} {
		for what, change := range map[string]func(x *shop){
			"none": func(x *shop) {
				x.place.Commands, x.place.Files = nil, nil
				x.err = errs.New(errs.Unsupported, "no provider")
			},
			"no isolation": func(x *shop) { x.place.Mount = nil; x.weak = true },
			"a quota":      func(x *shop) { x.place.Mount = nil; x.err = errs.New(errs.Limit, "8 sandboxes are the most") },
			"none are made": func(x *shop) {
				x.place.Commands = nil
				x.s = declared.New(declared.Config{Folder: declared.NewFolder(x.dir)})
			},
		} {
			x := newShop(t)
			e := x.find("t", "description: d\ncommand: 'touch ran'\n"+scope)
			change(x)
			r := x.call(e, "k", `{}`)
			if !r.Failed || !strings.Contains(textOf(r), "sandbox") {
				t.Errorf("%s, %s: %q", name, what, textOf(r))
			}
			if what == "a quota" && scope != "" && (r.Code != tool.CodeLimit || !strings.Contains(textOf(r), "8 sandboxes are the most")) {
				t.Errorf("%+v", r)
			}
			for _, dir := range []string{x.run.Workdir, x.own.Workdir, "."} {
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
					t.Errorf("%s, %s: it ran in %s", name, what, dir)
				}
			}
		}
	}
}

// A tool is called as often as its rate says, by each tenant; a call that goes on counts once.
func TestCall_rate(t *testing.T) {
	x := newShop(t)
	e := x.find("t", "description: d\ncommand: 'true'\nrate: {calls: 2, per: 1m}\n")
	codes := func() (list []string) {
		for i := range 3 {
			list = append(list, x.call(e, fmt.Sprint(x.now.Unix(), i, x.place.Tenant), `{}`).Code)
		}
		return list
	}
	for _, when := range []string{"first", "a minute later"} {
		x.open() // the server was killed
		if got := strings.Join(codes(), ","); got != ",,"+tool.CodeLimit {
			t.Errorf("%s: %q", when, got)
		}
		x.now = x.now.Add(time.Minute)
	}
	codes()
	x.place.Tenant = "other"
	if got := strings.Join(codes(), ","); got != ",,"+tool.CodeLimit {
		t.Errorf("another tenant: %q", got)
	}
	req := x.request(fmt.Sprint(x.now.Unix(), 0, "acme"), `{}`)
	req.Again = true
	if r, err := x.s.Call(t.Context(), x.place, e, req); err != nil || r.Failed {
		t.Errorf("one that goes on: %+v, %v", r, err)
	}
}

// A rate is held in any stretch of its time, by calls at any times and in servers that share
// the store, and the record of what was called stays small.
func TestRate_anyStretch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := declared.Rate{Calls: rapid.IntRange(1, 200).Draw(t, "calls"), Per: time.Minute}
		store := kvtest.NewMemory()
		now := time.Unix(1_700_000_000, 0)
		var made []time.Time
		for i := range rapid.IntRange(1, 300).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			wait, size, err := declared.Take(store, limit, fmt.Sprint(i), now) // each by another server
			if err != nil || size > 8<<10 {
				t.Fatal(size, err)
			}
			recent := slices.DeleteFunc(slices.Clone(made), func(at time.Time) bool { return now.Sub(at) >= limit.Per })
			if wait == 0 {
				made = append(made, now)
				if len(recent) >= limit.Calls {
					t.Fatalf("%d calls in a minute, at most %d", len(recent)+1, limit.Calls)
				}
			} else if limit.Calls <= 64 && len(recent) < limit.Calls || wait > limit.Per {
				t.Fatalf("one that could be made waits %v after %d of %d calls", wait, len(recent), limit.Calls)
			}
		}
	})
}

// Servers that count at once count every call.
func TestRate_atOnce(t *testing.T) {
	store := kvtest.NewMemory()
	var wg sync.WaitGroup
	var free atomic.Int32
	for i := range 40 {
		wg.Go(func() {
			wait, _, err := declared.Take(store, declared.Rate{Calls: 10, Per: time.Hour}, fmt.Sprint(i), time.Unix(1_700_000_000, 0))
			if err != nil {
				t.Error(err)
			}
			if wait == 0 {
				free.Add(1)
			}
		})
	}
	wg.Wait()
	if n := free.Load(); n != 10 {
		t.Errorf("%d calls of 10 were free", n)
	}
}

// An agent has the tools that are for it.
func TestFind_forAgents(t *testing.T) {
	x := newShop(t)
	write(t, x.dir, "a.yaml", "description: d\ncommand: c\nagents: [other]\n")
	write(t, x.dir, "b.yaml", "description: d\ncommand: c\nagents: [auditor]\napproval: ask\neffect: once\n")
	write(t, x.dir, "c.yaml", "description: d\n")
	found, notes, err := x.s.Find(t.Context(), x.place)
	if err != nil || len(found) != 1 || found[0].Spec.Name != "b" || !found[0].Asks || found[0].Class != tool.Once || len(notes) != 1 {
		t.Errorf("%+v %v %v", found, notes, err)
	}
	for name, want := range map[string]bool{"a": true, "b": true, "d": false, "?": true, "d*": false} {
		if x.s.Covers("acme", name) != want {
			t.Errorf("covers %s: %v", name, !want)
		}
	}
}
