package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/thread"
)

const run = thread.RunID("run_aaaaaaaaaaaaaaaaaaaa")

func call(id, name, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: name, Args: json.RawMessage(args)}}
}

func answer(blocks ...llm.Block) thread.ModelCompleted {
	stop := llm.StopEnd
	m := llm.Assistant(blocks...)
	if len(m.Calls()) > 0 {
		stop = llm.StopTools
	}
	return thread.ModelCompleted{Message: m, Model: "m-1", Stop: stop, Usage: llm.Usage{Input: 10, Output: 2}}
}

func done(id, text string, exit int) thread.ToolCompleted {
	return thread.ToolCompleted{Call: id, Blocks: []llm.Block{llm.Text(text)}, Exit: &exit, Failed: exit != 0}
}

func events(bodies ...thread.Body) []thread.Event {
	var list []thread.Event
	for i, b := range bodies {
		list = append(list, thread.Event{Seq: uint64(i + 1), Run: run, Body: b})
	}
	return list
}

func recorded() []thread.Event {
	return events(
		thread.RunStarted{},
		thread.Input{From: "user", Blocks: []llm.Block{llm.Text("go")}},
		answer(llm.Block{Kind: llm.KindReasoning, Text: "hm"}, llm.Text("Look."), call("c1", "execute", `{"command":"ls"}`), call("c2", "ls", `{}`)),
		thread.ToolStarted{Call: "c1", Tool: "execute", Key: "k1"},
		done("c2", "a\n", 0), done("c1", "x\ny\nz\n", 0),
		thread.Compacted{Summary: "so far"},
		answer(call("c3", "execute", `{"command":"make"}`)),
		done("c3", "ok", 0),
		answer(llm.Text("Done.")),
		thread.RunEnded{State: thread.RunSucceeded, Reason: "done"},
	)
}

func model(t *testing.T, list []thread.Event) *replay.Model {
	t.Helper()
	m, err := replay.New(t.Context(), list, thread.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(t *testing.T, m llm.Model, req *llm.Request) llm.Message {
	t.Helper()
	resp, list, err := llmtest.Ask(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := llmtest.CheckDeltas(list, resp); err != nil {
		t.Error(err)
	}
	return resp.Message
}

func TestModel_saysWhatWasSaidInTheStepThatIsAsked(t *testing.T) {
	list := recorded()
	m := model(t, list)
	want := []llm.Message{list[2].Body.(thread.ModelCompleted).Message, list[7].Body.(thread.ModelCompleted).Message, llm.Assistant(llm.Text("Done."))}
	// Any order, any number of times: a replay that crashed goes on.
	for _, step := range []int{1, 2, 3, 2, 1, 3, 3} {
		if d := cmp.Diff(want[step-1], ask(t, m, &llm.Request{Step: step})); d != "" {
			t.Errorf("step %d: %s", step, d)
		}
	}
	if got := ask(t, m, &llm.Request{Step: 4}).String(); got != "[The recorded run ends here after 3 answers: succeeded.]" {
		t.Errorf("behind the end: %q", got)
	}
	if got := ask(t, m, &llm.Request{}).String(); got != "so far" {
		t.Errorf("a summary: %q", got)
	}
	if info := m.Info(); info.ID != "m-1" || info.Price != (llm.Price{}) {
		t.Errorf("%+v", info)
	}
}

func TestModel_findsMessagesThatAreBlobs(t *testing.T) {
	memory := thread.NewMemory()
	whole := llm.Assistant(call("c1", "write_file", `{"content":"`+strings.Repeat("x", 20<<10)+`"}`))
	content, _ := json.Marshal(whole)
	hash, err := memory.Put(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	shape := answer(call("c1", "write_file", `{}`))
	shape.Blob = hash
	m, err := replay.New(t.Context(), events(shape), memory)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, ask(t, m, &llm.Request{Step: 1})); d != "" {
		t.Error(d)
	}
	shape.Blob = strings.Repeat("0", 64)
	if _, err := replay.New(t.Context(), events(shape), memory); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing blob: %v", err)
	}
	bad, _ := memory.Put(t.Context(), []byte("no message"))
	shape.Blob = bad
	if _, err := replay.New(t.Context(), events(shape), memory); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a bad blob: %v", err)
	}
	if _, err := replay.New(t.Context(), events(thread.RunStarted{}), memory); !errs.Is(err, errs.NotFound) {
		t.Errorf("nothing said: %v", err)
	}
}

func TestModel_writesActionsWhereTheyAreWanted(t *testing.T) {
	specs := []llm.ToolSpec{{Name: "execute", Schema: json.RawMessage(`{}`)}}
	m := model(t, events(
		answer(llm.Text("not an action")), thread.Input{From: "skete", Name: "format"},
		answer(call("c1", "execute", `{"command":"ls"}`)), done("c1", "a", 0),
		answer(llm.Text("Done.")),
	))
	req := func(step int) *llm.Request {
		return &llm.Request{Step: step, System: []llm.Block{llm.Text(action.New(specs).System(specs))}}
	}
	if got := ask(t, m, req(1)).String(); got != "not an action" {
		t.Errorf("a malformed answer is played as %q", got)
	}
	if a, p := action.Parse(ask(t, m, req(2)).String(), specs); p != "" || a.Name != "execute" {
		t.Errorf("%q, %+v", p, a)
	}
	if a, p := action.Parse(ask(t, m, req(3)).String(), specs); p != "" || !a.Done || a.Text() != "Done." {
		t.Errorf("%q, %+v", p, a)
	}
}

func TestModel_knowsTheRunsOfAThread(t *testing.T) {
	list := events(answer(llm.Text("1-1")), answer(llm.Text("1-2")), answer(llm.Text("2-1")), answer(llm.Text("2-2")))
	list[2].Run, list[3].Run = "run_b", "run_b"
	m := model(t, list)
	for n, want := range []string{"1-1", "1-2", "2-1", "2-2"} {
		req := &llm.Request{Step: n%2 + 1}
		for range n {
			req.Messages = append(req.Messages, llm.User("x"), llm.Assistant(llm.Text("y")))
		}
		if got := ask(t, m, req).String(); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestModel_endsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range model(t, recorded()).Stream(ctx, &llm.Request{Step: 1}) {
		if err == nil {
			t.Error("it goes on")
		}
	}
}

func TestCompare_seesNothingInTheSame(t *testing.T) {
	r := replay.Compare(recorded(), recorded())
	if !r.Same || len(r.Steps) != 3 || len(r.Steps[0].Calls) != 2 {
		t.Errorf("%+v", r)
	}
	want := `step 1   execute {"command":"ls"}  same
step 1   ls {}  same
step 2   execute {"command":"make"}  same
step 3   same
old run: succeeded, new run: succeeded
same in all of 3 steps
`
	if d := cmp.Diff(want, r.String()); d != "" {
		t.Error(d)
	}
}

func TestCompare_saysWhatDiffers(t *testing.T) {
	// edit changes the recorded run.
	edit := func(at int, body thread.Body) []thread.Event {
		list := recorded()
		list[at].Body = body
		return list
	}
	long := strings.Repeat("line\n", 20)
	blob := func(hash string) thread.ToolCompleted {
		c := done("c1", "preview", 0)
		c.Blob, c.Bytes = hash, 100
		return c
	}
	media := done("c1", "x\ny\nz\n", 0)
	media.Blocks = append(media.Blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: "1"}})
	cases := []struct {
		name     string
		old, now []thread.Event
		want     string // a part of the text
	}{
		{"the exit code", recorded(), edit(8, done("c3", "ok", 2)), "execute {\"command\":\"make\"}  exit code, failure\n         exit 0, now 2\n"},
		{"one line", recorded(), edit(5, done("c1", "x\nY\nz\n", 0)), "  output\n         line 2:\n         -y\n         +Y\nstep 1   ls {}  same\n"},
		{"many lines", recorded(), edit(5, done("c1", long, 0)), "         -x\n         -y\n         -z\n         +line\n         +line\n         +line\n         +line\n         +line\n         + … 15 more lines\n"},
		{"trailing space", recorded(), edit(8, done("c3", "ok ", 0)), "         -ok\n         +ok \n"},
		{"the code of a failure", recorded(), edit(8, thread.ToolCompleted{Call: "c3", Failed: true, Code: "timeout", Blocks: []llm.Block{llm.Text("ok")}}), "exit code, failure, code\n         exit 0, now none\n"},
		{"arguments", recorded(), edit(7, answer(call("c3", "execute", `{"command":"make -B"}`))), "step 2   execute {\"command\":\"make\"}  arguments\n"},
		{"arguments that a person changed", recorded(), edit(3, thread.ToolStarted{Call: "c1", Args: json.RawMessage(`{"command":"ls -a"}`)}), "arguments"},
		{"another tool", recorded(), edit(7, answer(call("c3", "ls", `{"command":"make"}`))), "another tool: ls"},
		{"no result", recorded(), edit(8, thread.Bound{}), "one has no result"},
		{"words", recorded(), edit(9, answer(llm.Text("Failed."))), "step 3   the model said something else"},
		{"a call more", edit(7, answer(call("c3", "execute", `{"command":"make"}`), call("c4", "ls", `{}`))), recorded(), "step 2   ls {}  only in the old run"},
		{"a shorter run", recorded(), recorded()[:6], "step 2   only the old run has this step\nstep 2   execute {\"command\":\"make\"}  only in the old run"},
		{"a longer run", recorded()[:6], recorded(), "step 3   only the new run has this step"},
		{"the end", recorded(), edit(10, thread.RunEnded{State: thread.RunFailed, Reason: "steps"}), "old run: succeeded, new run: failed (steps)"},
		{"a whole text in a blob", edit(5, blob("1")), edit(5, blob("2")), "output"},
		{"a blob and a text of another size", edit(5, blob("1")), recorded(), "output"},
		{"an image", recorded(), edit(5, media), "output"},
	}
	for _, c := range cases {
		r := replay.Compare(c.old, c.now)
		if r.Same || !strings.Contains(r.String(), c.want) {
			t.Errorf("%s: same %v\n%s\nwant %s", c.name, r.Same, r, c.want)
		}
		if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"same":false`) {
			t.Errorf("%s: %s, %v", c.name, b, err)
		}
	}
	for _, same := range [][2][]thread.Event{
		{edit(5, blob("1")), edit(5, blob("1"))},
		{recorded(), edit(7, answer(call("c3", "execute", `{ "command": "make" }`)))},
		{nil, nil},
	} {
		if r := replay.Compare(same[0], same[1]); !r.Same {
			t.Errorf("%s", r)
		}
	}
}

func TestCompare_isBounded(t *testing.T) {
	now := recorded()
	now[5].Body = done("c1", strings.Repeat(strings.Repeat("y", 10_000)+"\n", 1000), 0)
	if s := fmt.Sprint(replay.Compare(recorded(), now)); len(s) > 4<<10 {
		t.Errorf("a report of %d bytes", len(s))
	}
}
