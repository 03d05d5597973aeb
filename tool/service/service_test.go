package service_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/service"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is the tool over a real guest.
type bench struct {
	t    *testing.T
	m    *machine.Machine
	tool tool.Planner
}

func newBench(t *testing.T) *bench {
	t.Helper()
	m := machine.Start(t)
	r := &tool.Registry{}
	service.Add(r)
	tools, err := r.Make(tool.Env{Services: guest.NewServices(m.Client), Dir: m.Workdir, ResultBytesMax: 4000}, r.Names())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, m, tools[0].(tool.Planner)}
}

func (b *bench) request(args string) tool.Request {
	b.t.Helper()
	req := tool.Request{Key: "k", Call: "c", Args: json.RawMessage(args)}
	plan, done, err := b.tool.Plan(b.t.Context(), req)
	if err != nil || done != nil {
		b.t.Fatalf("plan of %s: %v, %v", args, done, err)
	}
	req.Plan = plan
	return req
}

func (b *bench) run(req tool.Request) tool.Result {
	b.t.Helper()
	r, err := b.tool.Run(b.t.Context(), req)
	if err != nil {
		b.t.Fatalf("%s: %v", req.Args, err)
	}
	return r
}

// call runs a call that must work, or must not, and returns its text.
func (b *bench) call(failed bool, args string) string {
	b.t.Helper()
	r := b.run(b.request(args))
	if r.Failed != failed {
		b.t.Fatalf("%s: failed %t: %s", args, r.Failed, r.Blocks[0].Text)
	}
	return r.Blocks[0].Text
}

func (b *bench) has(text string, parts ...string) {
	b.t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.t.Errorf("no %q in: %s", p, text)
		}
	}
}

// starts counts the runs of a service that notes each.
func (b *bench) starts() int {
	data, _ := os.ReadFile(filepath.Join(b.m.Workdir, "starts"))
	return strings.Count(string(data), "\n")
}

const noting = `echo run >> starts; echo up; exec sleep 1000`

func TestService_aLifeOfOne(t *testing.T) {
	b := newBench(t)
	if got := b.call(false, `{"action":"list"}`); got != "There are no services." {
		t.Errorf("%s", got)
	}
	declare := fmt.Sprintf(`{"action":"start","name":"web","command":%q,"ports":[5173],"ready_log":"^up$","env":{"A":"b"}}`, noting)
	b.has(b.call(false, declare), "web is ready", "ports 5173", "pid ")
	b.has(b.call(false, declare), "web is ready")
	if n := b.starts(); n != 1 {
		t.Errorf("the same declaration twice: it ran %d times", n)
	}
	b.has(b.call(false, `{"action":"restart","name":"web"}`), "web is ready")
	if n := b.starts(); n != 2 {
		t.Errorf("after a restart it ran %d times", n)
	}
	b.has(b.call(false, `{"action":"logs","name":"web"}`), "up\nup\n[that is all so far; go on with offset=6]")
	b.has(b.call(false, `{"action":"logs","name":"web","offset":3}`), "up\n[that is all so far; go on with offset=6]")
	b.has(b.call(false, `{"action":"list"}`), "web is ready", "echo run")
	b.has(b.call(false, `{"action":"stop","name":"web"}`), "web is stopped")
	b.has(b.call(false, `{"action":"start","name":"web"}`), "web is ready")
	if n := b.starts(); n != 3 {
		t.Errorf("stopped and started it ran %d times", n)
	}
	b.call(false, `{"action":"stop","name":"web"}`)
}

// A call that is run again after a crash does not end what it began.
func TestService_aRestartThatIsRunAgain(t *testing.T) {
	b := newBench(t)
	b.call(false, fmt.Sprintf(`{"action":"start","name":"web","command":%q,"ready_log":"up"}`, noting))
	req := b.request(`{"action":"restart","name":"web"}`)
	b.run(req)
	req.Again = true
	b.has(b.run(req).Blocks[0].Text, "web is ready")
	if n := b.starts(); n != 2 {
		t.Errorf("it ran %d times", n)
	}
	// One that had not come so far is done.
	req = b.request(`{"action":"restart","name":"web"}`)
	req.Again = true
	b.run(req)
	if n := b.starts(); n != 3 {
		t.Errorf("a restart that had not begun: it ran %d times", n)
	}
}

func TestService_thatDoesNotComeUp(t *testing.T) {
	b := newBench(t)
	got := b.call(true, `{"action":"start","name":"bad","command":"echo no config; exit 7","ready_log":"^up","restart_policy":"never"}`)
	b.has(got, "bad is failed", "exit code 7", "It wrote last:\nno config")
	// Without a check it is believed when it has run for a second.
	got = b.call(true, `{"action":"start","name":"brief","command":"sleep 0.2; echo no module; exit 3"}`)
	b.has(got, "brief is backoff", "It wrote last:\nno module")
	b.has(b.call(false, `{"action":"start","name":"once","command":"echo made","ready_log":"^never","restart_policy":"on-failure"}`), "exit code 0", "made")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().(*net.TCPAddr).Port
	l.Close()
	b.has(b.call(true, fmt.Sprintf(`{"action":"start","name":"deaf","command":"sleep 1000","ready_tcp":%d,"wait_s":1}`, free)), "deaf is starting")
	b.has(b.call(false, fmt.Sprintf(`{"action":"start","name":"later","command":"sleep 1000","ready_tcp":%d,"wait_s":0}`, free)), "later is ", "You did not wait")
}

func TestService_logsAreCutAndGoOn(t *testing.T) {
	b := newBench(t)
	b.call(false, `{"action":"start","name":"much","command":"seq 1 3000; echo done; exec sleep 1000","ready_log":"^done"}`)
	first := b.call(false, `{"action":"logs","name":"much","offset":0}`)
	b.has(first, "1\n2\n3\n", "bytes in all; go on with offset=4000]")
	b.has(b.call(false, `{"action":"logs","name":"much","offset":4000}`), "go on with offset=8000]")
	b.has(b.call(false, `{"action":"logs","name":"much"}`), "[from offset ", "done\n[that is all so far")
	b.has(b.call(true, `{"action":"logs","name":"much","offset":99999999}`), "beyond")
}

func TestService_refuses(t *testing.T) {
	b := newBench(t)
	for args, want := range map[string]string{
		`{"action":"stop"}`: "needs the name",
		`{"action":"start","name":"web","command":"  "}`:                           "empty",
		`{"action":"stop","name":"web","command":"x"}`:                             "goes with start",
		`{"action":"start","name":"web","ports":[80]}`:                             "needs a command",
		`{"action":"grow","name":"web"}`:                                           "action",
		`{"action":"restart","name":"nobody"}`:                                     "no such service",
		`{"action":"stop","name":"nobody"}`:                                        "no such service",
		`{"action":"start","name":"nobody"}`:                                       "no such service",
		`{"action":"logs","name":"nobody"}`:                                        "no such service",
		`{"action":"start","name":"No","command":"x"}`:                             "name",
		`{"action":"start","name":"a","command":"x","ready_log":"("}`:              "regular expression",
		`{"action":"start","name":"a","command":"x","ready_path":"/x"}`:            "HTTP",
		`{"action":"start","name":"a","command":"x","ready_tcp":1,"ready_http":2}`: "several",
		`{"action":"start","name":"a","command":"x","env":{"A=":"b"}}`:             "variable",
	} {
		req := tool.Request{Args: json.RawMessage(args)}
		plan, done, err := b.tool.Plan(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if done == nil {
			req.Plan = plan
			r := b.run(req)
			done = &r
		}
		if !done.Failed || done.Code == "" || !strings.Contains(done.Blocks[0].Text, want) {
			t.Errorf("%s: %+v", args, *done)
		}
	}
	r := &tool.Registry{}
	service.Add(r)
	if _, err := r.Make(tool.Env{}, r.Names()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("without a machine: %v", err)
	}
}

func TestEffect(t *testing.T) {
	b := newBench(t)
	for args, want := range map[string]tool.Class{
		`{"action":"list"}`: tool.Read, `{"action":"logs","name":"a"}`: tool.Read, `{"action":"logs"}`: tool.Keyed,
		`{"action":"start","name":"a","command":"x"}`: tool.Keyed, `{"action":"restart","name":"a"}`: tool.Keyed, `x`: tool.Keyed,
	} {
		if got := b.tool.Effect(json.RawMessage(args)).Class; got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
