package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// clever is a fake model that does what the rows ask.
func clever(_ int, seen llmtest.Seen) llmtest.Reply {
	req := seen.Request
	last := req.Messages[len(req.Messages)-1]
	said := last.String()
	reply := func(blocks ...llm.Block) llmtest.Reply {
		return llmtest.Reply{Blocks: blocks, Usage: llm.Usage{Input: 10, Output: 5}}
	}
	call := func(i int, city string) llm.Block {
		return llmtest.Call(fmt.Sprintf("call_%d", i), "get_weather", fmt.Sprintf(`{"city":%q}`, city))
	}
	switch {
	case seen.Model == "no-such-model-7f3a":
		return llmtest.Reply{Failure: &llmtest.Failure{Trouble: llm.BadRequest, Status: 404}}
	case last.Blocks[0].Result != nil:
		return reply(llm.Text("It is 17 there."))
	case strings.Contains(said, "all three at once"):
		return reply(call(1, "Oslo"), call(2, "Rome"), call(3, "Lima"))
	case req.Choice.Mode == llm.ChoiceTool, strings.Contains(said, "in Oslo?"):
		return reply(call(1, "Oslo"))
	case req.Schema != nil:
		return reply(llm.Text(`{"name":"Oslo","inhabitants":700000}`))
	case strings.Contains(said, "code word?"):
		return reply(llm.Text("heliotrope"))
	case strings.Contains(said, "colour"):
		return reply(llm.Text("red"))
	case strings.Contains(said, "long story"):
		return llmtest.Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("Once upon a time. ", 50))}, Fault: llmtest.Hang}
	}
	return reply(llm.Text("pong 1 2 3 4 5 6 7 8 9"))
}

func names(rows []row) (all []string) {
	for _, r := range rows {
		all = append(all, r.name)
	}
	return all
}

func verdicts(out string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		for _, name := range names(rows) {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				found[name] = strings.Fields(rest)[0]
			}
		}
	}
	return found
}

func TestRun_everyRowIsOkWithAGoodServer(t *testing.T) {
	for dialect, d := range map[string]llmtest.Dialect{"compat": llmtest.Chat{}, "anthropic": llmtest.Anthropic{}, "openai": llmtest.OpenAI{}} {
		s := llmtest.NewServer(d, clever)
		t.Setenv("TEST_MODEL_KEY", "sk-hidden")
		var out, errOut bytes.Buffer
		code := run(t.Context(), []string{s.URL, "-dialect", dialect, "-model", "m1", "-key-env", "TEST_MODEL_KEY", "-media"}, &out, &errOut)
		s.Close()
		got := verdicts(out.String())
		for _, name := range names(rows) {
			if got[name] != "ok" {
				t.Errorf("%s: %s is %q", dialect, name, got[name])
			}
		}
		if code != 0 || strings.Contains(out.String()+errOut.String(), "sk-hidden") {
			t.Errorf("%s: code %d\n%s%s", dialect, code, out.String(), errOut.String())
		}
		for _, err := range s.Wrong() {
			t.Errorf("%s: %v", dialect, err)
		}
	}
}

func TestRun_tellsAWeakModelFromABrokenServer(t *testing.T) {
	mumble := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("mumble mumble mumble")}}))
	defer mumble.Close()
	var out bytes.Buffer
	if code := run(t.Context(), []string{mumble.URL, "-model", "m1"}, &out, &out); code != 0 {
		t.Errorf("a weak model: code %d\n%s", code, out.String())
	}
	got := verdicts(out.String())
	for name, want := range map[string]string{"text": "weak", "streaming": "ok", "tool call and result": "weak", "forced tool": "weak", "image": "-", "cancel": "-", "unknown model": "-"} {
		if got[name] != want {
			t.Errorf("a weak model: %s is %q, want %q", name, got[name], want)
		}
	}
	broken := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Fault: llmtest.Garbage}))
	defer broken.Close()
	out.Reset()
	if code := run(t.Context(), []string{broken.URL, "-model", "m1"}, &out, &out); code != 1 || verdicts(out.String())["text"] != "FAIL" {
		t.Errorf("a broken server: code %d\n%s", code, out.String())
	}
}

func TestRun_asksForTheModel(t *testing.T) {
	lists := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"served"}]}`)
			return
		}
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer lists.Close()
	var out bytes.Buffer
	if code := run(t.Context(), []string{lists.URL}, &out, &out); code != 1 || !strings.HasPrefix(out.String(), "served at ") {
		t.Errorf("code %d\n%s", code, out.String())
	}
	for _, args := range [][]string{{}, {"http://127.0.0.1:1"}, {lists.URL, "extra"}, {lists.URL, "-key-env", "NOT_SET_AT_ALL"}, {lists.URL, "-model", "m", "-dialect", "x"}} {
		if code := run(t.Context(), args, &out, &out); code != 2 {
			t.Errorf("%v: code %d", args, code)
		}
	}
}
