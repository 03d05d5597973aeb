package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

const offers = `
hooks: [{event: PreToolUse}]
models: [{name: m, window_tokens: 1000}]
`

// begin is the first half of a program that answers initialize and does what a case says.
const begin = `
import json, os, sys, time
def send(**m):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **m}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "initialize":
        send(id=m["id"], result={"protocol": 1})
        continue
    if m["method"] == "shutdown":
        break
    if "id" not in m:
        continue
    i = m["id"]
    said = json.dumps(m["params"])
`

// play makes a host with one plug-in, whose program does this with each call.
func play(t *testing.T, does string) (*Host, *here) {
	t.Helper()
	needPython(t)
	dir, p := written(t, "odd", offers, begin+"    "+strings.ReplaceAll(strings.TrimSpace(does), "\n", "\n    ")+"\n")
	l := &here{dir: dir}
	h := NewHost(Config{Plugins: []*Plugin{p}, Launcher: l})
	t.Cleanup(func() { _ = h.Close() })
	return h, l
}

func (h *Host) asked(t *testing.T, said string) (json.RawMessage, error) {
	t.Helper()
	return h.Hook(t.Context(), "a", "odd", json.RawMessage(`{"x":"`+said+`"}`), patience.Of(20*time.Second))
}

func (h *Host) generate(t *testing.T, said string) (*llm.Response, error) {
	t.Helper()
	m, err := h.Model("a", "odd/m")
	if err != nil {
		t.Fatal(err)
	}
	m.(*model).silence = patience.Of(20 * time.Second)
	if said == "silence" { // the plug-in says nothing at all
		m.(*model).silence = 50 * time.Millisecond
	}
	resp, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Messages: []llm.Message{llm.User(said)}})
	return resp, err
}

// A plug-in that lies, floods, dies or hangs fails the call under way, as a retryable error of a
// model or as one of a hook; the next call is answered by a new process.
func TestHost_faults(t *testing.T) {
	const ok = `send(id=i, result={"message": {"role": "assistant", "blocks": [{"kind": "text", "text": "ok"}]}})`
	cases := []struct{ name, does, want string }{
		{"an answer to what was not asked", `send(id=i + 1000, result={})`, "which was not sent"},
		{"an id that is none", `send(id="x", result={})`, "is no id"},
		{"an id below 1", `send(id=-4, result={})`, "is no id"},
		{"no JSON", `print("{", flush=True)`, "is no message"},
		{"text", `print("hello", flush=True)`, "is no JSON object"},
		{"a list", `print("[1]", flush=True)`, "is no JSON object"},
		{"another version", `print('{"jsonrpc":"1.0","id":1,"result":1}', flush=True)`, "not 2.0"},
		{"neither result nor error", `send(id=i)`, "a result or an error"},
		{"both", `send(id=i, result={}, error={"code": 1, "message": "x"})`, "a result or an error"},
		{"a request of its own", `send(id=7, method="sampling", params={})`, "answers no requests"},
		{"a piece of nothing", `send(method="model/delta", params={"kind": "text", "text": "x"})`, "without the id"},
		{"a piece of an unknown kind", `send(method="model/delta", params={"id": i, "kind": "smell"})`, "of kind"},
		{"100 MB in a line", `
for _ in range(1600): sys.stdout.write("x" * 65536)
sys.stdout.flush()`, "a line is longer than"},
		{"notifications for ever", `
while True: send(method="noise", params="x" * 1000)`, "belong to no request"},
		{"its death", `os._exit(3)`, "ended"},
		{"its death in the middle", `
send(method="model/delta", params={"id": i, "kind": "text", "text": "half"})
os._exit(3)`, "ended"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			does := "if 'bad' in said:\n    " + strings.ReplaceAll(strings.TrimSpace(c.does), "\n", "\n    ") + "\nelse: " + ok
			h, l := play(t, does)
			_, err := h.generate(t, "bad")
			e, is := errors.AsType[*llm.Error](err)
			if !is || !e.Retryable() || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the model: %v", err)
			}
			if resp, err := h.generate(t, "good"); err != nil || resp.Message.String() != "ok" {
				t.Errorf("the next call: %+v %v", resp, err)
			}
			if _, err := h.asked(t, "bad"); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the hook: %v", err)
			}
			if n, _ := l.count(); n < 2 {
				t.Errorf("%d processes were started", n)
			}
		})
	}
}

// What belongs to one answer alone fails that one, and the process goes on.
func TestHost_answersThatMakeNoSense(t *testing.T) {
	cases := []struct {
		name, does string
		want       llm.Trouble
	}{
		{"an error", `send(id=i, error={"code": 1, "message": "slow down", "data": {"trouble": "rate_limited", "retry_after_ms": 7000}})`, llm.RateLimited},
		{"an error of an unknown trouble", `send(id=i, error={"code": 1, "message": "x", "data": {"trouble": "boredom"}})`, llm.Overloaded},
		{"a number", `send(id=i, result=7)`, llm.Malformed},
		{"another role", `send(id=i, result={"message": {"role": "user", "blocks": []}})`, llm.Malformed},
		{"a block of an unknown kind", `send(id=i, result={"message": {"role": "assistant", "blocks": [{"kind": "smell"}]}})`, llm.Malformed},
		{"a call without a name", `send(id=i, result={"message": {"role": "assistant", "blocks": [{"kind": "tool_call", "call": {}}]}})`, llm.Malformed},
		{"usage below 0", `send(id=i, result={"usage": {"input": -5}})`, llm.Malformed},
		{"too much usage", `send(id=i, result={"usage": {"input": 10 ** 12}})`, llm.Malformed},
		{"an unknown stop", `send(id=i, result={"stop": "lunch"})`, llm.Malformed},
		{"arguments of no call", `send(method="model/delta", params={"id": i, "kind": "tool_args", "index": 3, "text": "x"})`, llm.Malformed},
		{"a call that is skipped", `send(method="model/delta", params={"id": i, "kind": "tool_call", "index": 3, "name": "x"})`, llm.Malformed},
		{"other pieces than words", `
send(method="model/delta", params={"id": i, "kind": "text", "text": "yes"})
send(id=i, result={"message": {"role": "assistant", "blocks": [{"kind": "text", "text": "no"}]}})`, llm.Malformed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, l := play(t, c.does)
			for range 2 {
				if _, err := h.generate(t, "x"); llm.TroubleOf(err) != c.want {
					t.Errorf("trouble %q: %v", llm.TroubleOf(err), err)
				}
			}
			if n, _ := l.count(); n != 1 {
				t.Errorf("%d processes were started, one is enough", n)
			}
		})
	}
}

// A process that breaks again and again is started ever later, and calls fail at once meanwhile.
func TestHost_backsOff(t *testing.T) {
	h, l := play(t, `os._exit(1)`)
	failed := 0
	for range 10 {
		_, err := h.generate(t, "x")
		if e, ok := errors.AsType[*llm.Error](err); ok && e.RetryAfter > 0 {
			failed++
		}
	}
	if n, _ := l.count(); n > 4 || failed < 6 {
		t.Errorf("%d processes, %d calls were put off", n, failed)
	}
}

// Of each process it is told how it is, and why it broke.
func TestHost_tellsHowProcessesAre(t *testing.T) {
	h, _ := play(t, `
if "bad" in said: os._exit(3)
send(id=i, result={})`)
	if list := h.Processes("odd"); list != nil || Worst(list) != Idle {
		t.Errorf("before the first call: %+v", list)
	}
	is := func(when string, state State, starts, failures int, why string) {
		t.Helper()
		list := h.Processes("odd")
		if len(list) != 1 || len(h.Processes("other")) != 0 {
			t.Fatalf("%s: %+v", when, list)
		}
		p := list[0]
		if p.Tenant != "a" || p.State != state || p.Starts != starts || p.Failures != failures || p.Calls != 0 || !strings.Contains(p.Error, why) || (why == "") != (p.Error == "") || Worst(list) != state {
			t.Errorf("%s: %+v", when, p)
		}
		if p.Started.IsZero() || p.Used.Before(p.Started) || p.RetryAt.IsZero() != (failures < 2) {
			t.Errorf("%s: %+v", when, p)
		}
	}
	_, _ = h.asked(t, "good")
	is("after a call", Running, 1, 0, "")
	_, _ = h.asked(t, "bad")
	is("after its death", Broken, 1, 1, "ended")
	_, _ = h.asked(t, "good")
	is("after the next call", Running, 2, 0, "")
	for range 3 {
		_, _ = h.asked(t, "bad")
	}
	is("after three calls that broke it", Broken, 3, 2, "ended")
	h.runner(h.c.Plugins[0], "a").rest(time.Now().Add(2 * IdleDefault))
	if p := h.Processes("odd")[0]; p.State != Broken {
		t.Errorf("at rest: %+v", p)
	}
}

// Processes are apart by tenant: what one keeps of a tenant, another does not see.
func TestHost_keepsTenantsApart(t *testing.T) {
	h, l := play(t, `send(id=i, result={"tenant": os.environ["TENANT"], "pid": os.getpid()})`)
	seen := map[string]bool{}
	for _, tenant := range []string{"a", "b", "a"} {
		out, err := h.Hook(t.Context(), tenant, "odd", json.RawMessage(`{}`), patience.Of(20*time.Second))
		if err != nil || !strings.Contains(string(out), fmt.Sprintf(`"tenant": %q`, tenant)) {
			t.Errorf("%s: %s %v", tenant, out, err)
		}
		seen[string(out)] = true
	}
	if n, _ := l.count(); n != 2 || len(seen) != 2 {
		t.Errorf("%d processes, answers %v", n, seen)
	}
	if _, err := h.Model("", "odd/m"); err != nil {
		t.Error(err)
	}
	m, _ := h.Model("", "odd/m")
	if _, _, err := llmtest.Ask(t.Context(), m, &llm.Request{}); !errs.Is(err, errs.Internal) {
		t.Errorf("for no tenant: %v", err)
	}
}

// A process is ended, and its sandbox removed, when it was idle; not while it works.
func TestHost_endsWhatIsIdle(t *testing.T) {
	h, l := play(t, `send(id=i, result={})`)
	if _, err := h.asked(t, "x"); err != nil {
		t.Fatal(err)
	}
	r := h.runner(h.c.Plugins[0], "a")
	r.rest(time.Now().Add(IdleDefault - time.Minute))
	if _, dropped := l.count(); dropped != 0 {
		t.Error("it was ended too early")
	}
	_, done, err := r.use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.rest(time.Now().Add(2 * IdleDefault))
	if _, dropped := l.count(); dropped != 0 {
		t.Error("it was ended while it worked")
	}
	done(true)
	r.rest(time.Now().Add(2 * IdleDefault))
	if _, dropped := l.count(); dropped != 1 {
		t.Errorf("dropped %d times", dropped)
	}
	if _, err := h.asked(t, "x"); err != nil {
		t.Error(err)
	}
	if started, _ := l.count(); started != 2 {
		t.Errorf("%d processes", started)
	}
}

// stderr goes to the log: quoted, and not more than a bound of lines.
func TestHost_boundsStderr(t *testing.T) {
	needPython(t)
	dir, p := written(t, "odd", offers, begin+`
    for n in range(5000): sys.stderr.write("noise\n")
    sys.stderr.flush()
    send(id=i, result={})
`)
	var log lockedBuffer
	h := NewHost(Config{Plugins: []*Plugin{p}, Launcher: &here{dir: dir}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := h.asked(t, "x"); err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	text := log.String()
	if n := strings.Count(text, `stderr="noise\n"`); n != logLinesMax {
		t.Errorf("%d lines are in the log", n)
	}
	if !strings.Contains(text, "lines_left_out=4940") {
		t.Errorf("it is not told how much is missing: %.2000s", text)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A model that says nothing for too long is given up.
func TestHost_aModelThatIsSilent(t *testing.T) {
	h, l := play(t, `if "silence" not in said: send(id=i, result={})`)
	if _, err := h.generate(t, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.generate(t, "silence"); llm.TroubleOf(err) != llm.Transport {
		t.Error(err)
	}
	if n, _ := l.count(); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// A hook that takes too long is the context's error, and the plug-in is told to stop.
func TestHost_aHookThatHangs(t *testing.T) {
	h, _ := play(t, `
if "hang" in said: continue
send(id=i, result={"ok": True})`)
	if _, err := h.asked(t, "x"); err != nil {
		t.Fatal(err)
	}
	_, err := h.Hook(t.Context(), "a", "odd", json.RawMessage(`"hang"`), 100*time.Millisecond)
	if !errors.Is(err, errSilent) {
		t.Error(err)
	}
	if out, err := h.asked(t, "x"); err != nil || string(out) != `{"ok": true}` {
		t.Errorf("%s %v", out, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":{"trouble":"auth"}}}`,
		`{"jsonrpc":"2.0","method":"model/delta","params":{"id":1,"kind":"text","text":"x"}}`, `{}`, `[`, `{"jsonrpc":"2.0","id":null,"error":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parse(data)
		if err != nil {
			if !errs.Is(err, errs.Unavailable) {
				t.Error(err)
			}
			return
		}
		switch {
		case h.Method != nil:
			_, _ = parseDelta(h.Params) // does not panic
		case h.id <= 0 || (h.Result == nil) == (h.Error == nil):
			t.Errorf("%s was taken as %+v", data, h)
		case h.Error != nil:
			if e := h.Error.ofModel("m", nil); !troubles[e.Trouble] {
				t.Errorf("trouble %q", e.Trouble)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"id":1,"kind":"text","text":"x"}`), []byte(`{"usage":{"input":1},"stop":"end"}`))
	f.Add([]byte(`{"id":1,"kind":"tool_call","index":0,"name":"x"}`), []byte(`{"message":{"role":"assistant","blocks":[{"kind":"tool_call","call":{"name":"x","args":{}}}]}}`))
	f.Fuzz(func(t *testing.T, piece, last []byte) {
		var a answer
		var deltas []llm.Delta
		if d, err := a.piece(piece); err == nil {
			deltas = append(deltas, d)
		}
		resp, rest, err := a.whole(last, "m")
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Error(err)
			}
			return
		}
		deltas = append(append(deltas, rest...), llm.Delta{Kind: llm.DeltaDone, Response: resp})
		if err := llmtest.CheckDeltas(deltas, resp); err != nil {
			t.Errorf("%s, %s: %v", piece, last, err)
		}
	})
}
