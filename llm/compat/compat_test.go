package compat_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/llmtest"
)

func open(t testing.TB, o compat.Options) *compat.Model {
	t.Helper()
	m, err := compat.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func driver(t *testing.T, noStream bool) llmtest.Driver {
	return llmtest.Driver{Dialect: llmtest.Chat{}, Whole: noStream, New: func(c llmtest.Config) llm.Model {
		return open(t, compat.Options{
			Info: llm.Info{Name: "test", ID: c.Model, Media: true, OutputTokensMax: c.OutputTokensMax}, URL: c.URL, Key: llm.NewKey(c.Key),
			Silence: c.Silence, ReplyBytesMax: c.ReplyBytesMax, NoStream: noStream,
		})
	}}
}

func TestModel(t *testing.T) { llmtest.Run(t, driver(t, false)) }

// Asked for whole answers, the same promises hold, but that deltas come early.
func TestModel_withoutStreaming(t *testing.T) {
	llmtest.Run(t, driver(t, true))
}

const oneWord = "data: {\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"

// server answers every request with text, and keeps the last one.
func server(t *testing.T, text string) (url string, last func() (http.Header, string)) {
	t.Helper()
	var mu sync.Mutex
	var header http.Header
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		mu.Lock()
		header, body = r.Header.Clone(), string(sent)
		mu.Unlock()
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() (http.Header, string) {
		mu.Lock()
		defer mu.Unlock()
		return header, body
	}
}

func ask(t *testing.T, m llm.Model, req *llm.Request) *llm.Response {
	t.Helper()
	resp, _, err := llmtest.Ask(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Plain reasoning goes back only where it came from, and only if asked for;
// what is opaque goes back where it came from always.
func TestModel_echoesReasoningToItsOwnServerOnly(t *testing.T) {
	said := `data: {"choices":[{"index":0,"delta":{"reasoning_content":"my thoughts","reasoning_details":[{"type":"reasoning.encrypted","data":"0pa+ue/="}],"content":"So.","tool_calls":[{"index":0,"id":"a","extra_content":{"google":{"thought_signature":"s1g/+="}},"function":{"name":"read","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}` + "\n\n"
	url, _ := server(t, said)
	first := open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url, Origin: "here"})
	req := &llm.Request{Messages: []llm.Message{llm.User("hi")}}
	req.Messages = append(req.Messages, ask(t, first, req).Message, llm.Results(llm.Result{CallID: "a", Blocks: []llm.Block{llm.Text("A")}}))

	for name, c := range map[string]struct {
		o             compat.Options
		plain, opaque bool
	}{
		"the same server":                 {compat.Options{Info: llm.Info{ID: "m1"}, Origin: "here"}, false, true},
		"the same server that wants it":   {compat.Options{Info: llm.Info{ID: "m1"}, Origin: "here", EchoReasoning: true}, true, true},
		"another model of the server":     {compat.Options{Info: llm.Info{ID: "m2"}, Origin: "here", EchoReasoning: true}, false, false},
		"another server of the same name": {compat.Options{Info: llm.Info{ID: "m1"}, EchoReasoning: true}, false, false},
	} {
		url, last := server(t, oneWord)
		c.o.URL = url
		ask(t, open(t, c.o), req)
		_, body := last()
		if got := strings.Contains(body, `"reasoning_content":"my thoughts"`); got != c.plain {
			t.Errorf("%s: plain reasoning sent: %v, want %v", name, got, c.plain)
		}
		for _, data := range []string{`"0pa+ue/="`, `{"google":{"thought_signature":"s1g/+="}}`} {
			if got := strings.Contains(body, data); got != c.opaque {
				t.Errorf("%s: %s sent: %v, want %v", name, data, got, c.opaque)
			}
		}
		if !strings.Contains(body, "So.") || !c.plain && strings.Contains(body, "my thoughts") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestModel_sendsKeysWhereTheyBelong(t *testing.T) {
	url, last := server(t, oneWord)
	req := &llm.Request{Messages: []llm.Message{llm.User("hi")}}
	for _, c := range []struct {
		o    compat.Options
		want map[string]string
	}{
		{compat.Options{}, map[string]string{"Authorization": "", "Content-Type": "application/json"}},
		{compat.Options{Key: llm.NewKey("k1")}, map[string]string{"Authorization": "Bearer k1"}},
		{compat.Options{Key: llm.NewKey("k1"), KeyHeader: "api-key"}, map[string]string{"Authorization": "", "Api-Key": "k1"}},
		{compat.Options{Headers: map[string]llm.Key{"X-Title": llm.NewKey("skete")}}, map[string]string{"X-Title": "skete"}},
	} {
		c.o.URL, c.o.Info.ID = url, "m1"
		ask(t, open(t, c.o), req)
		header, _ := last()
		for k, v := range c.want {
			if header.Get(k) != v {
				t.Errorf("%+v: %s is %q, want %q", c.o.KeyHeader, k, header.Get(k), v)
			}
		}
	}
}

func TestModel_boundsTheWholeCall(t *testing.T) {
	s := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("x")}, Fault: llmtest.Keepalive}))
	defer s.Close()
	m := open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: s.URL, Whole: 200 * time.Millisecond})
	_, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Messages: []llm.Message{llm.User("hi")}})
	if llm.TroubleOf(err) != llm.Transport || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("a server that only keeps the connection alive: %v", err)
	}
}

// Deltas that say nothing cost nothing but their bytes, and those are bounded; a reply
// that is sent twice over is one reply, or no reply at all.
func TestModel_emptyDeltas(t *testing.T) {
	const empty = "data: {\"choices\":[{\"delta\":{}}]}\n\n"
	url, _ := server(t, strings.Repeat(empty, 300_000)+oneWord)
	resp := ask(t, open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url}), &llm.Request{Messages: []llm.Message{llm.User("hi")}})
	if resp.Message.String() != "ok" || len(resp.Message.Blocks) != 1 {
		t.Errorf("%d blocks: %.100q", len(resp.Message.Blocks), resp.Message.String())
	}
	url, _ = server(t, strings.Repeat(empty, 1_000_000)+oneWord)
	_, _, err := llmtest.Ask(t.Context(), open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url}), &llm.Request{Messages: []llm.Message{llm.User("hi")}})
	if llm.TroubleOf(err) != llm.Malformed {
		t.Errorf("more bytes than a reply may have: %v", err)
	}
	url, _ = server(t, oneWord+oneWord)
	resp = ask(t, open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url}), &llm.Request{Messages: []llm.Message{llm.User("hi")}})
	if resp.Message.String() != "ok" {
		t.Errorf("a reply that is sent twice: %q", resp.Message.String())
	}
}

// What the caller does between two deltas is no silence of the server.
func TestModel_aSlowCallerIsNoSilence(t *testing.T) {
	s := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text(strings.Repeat("word ", 20_000))}, Piece: 5}))
	defer s.Close()
	limit := patience.Of(3 * time.Second) // a busy machine may hold up even a server on loopback
	m := open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: s.URL, Silence: limit})
	slow := true
	for _, err := range m.Stream(t.Context(), &llm.Request{Messages: []llm.Message{llm.User("hi")}}) {
		if err != nil {
			t.Fatal(err)
		}
		if slow {
			<-time.After(limit + time.Second)
			slow = false
		}
	}
}

func TestModel_errorsDoNotShowTheAddressWithItsQuery(t *testing.T) {
	m := open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: "http://127.0.0.1:1/v1?key=hunter2"})
	_, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Messages: []llm.Message{llm.User("hi")}})
	if llm.TroubleOf(err) != llm.Transport || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestModel_replacesWhatIsNoUTF8(t *testing.T) {
	url, last := server(t, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xffb\"},\"finish_reason\":\"stop\"}]}\n\n")
	resp := ask(t, open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url}), &llm.Request{Messages: []llm.Message{llm.User("c\xfed")}})
	if got := resp.Message.String(); got != "a\uFFFDb" {
		t.Errorf("answer %q", got)
	}
	if _, body := last(); !utf8.ValidString(body) || !strings.Contains(body, `c\ufffdd`) {
		t.Errorf("request %q", body)
	}
}

// A model that takes no images, and media whose data is gone, are told in words.
func TestModel_saysWhatItCannotShow(t *testing.T) {
	url, last := server(t, oneWord)
	req := &llm.Request{Messages: []llm.Message{{Role: llm.RoleUser, Blocks: []llm.Block{
		{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("12345")}},
		{Kind: llm.KindMedia, Media: &llm.Media{Type: "application/pdf", Data: []byte("123")}},
	}}}}
	ask(t, open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: url}), req)
	if _, body := last(); !strings.Contains(body, "[image/png of 5 bytes, which this model cannot be shown]") {
		t.Error(body)
	}
	ask(t, open(t, compat.Options{Info: llm.Info{ID: "m1", Media: true}, URL: url}), req)
	if _, body := last(); !strings.Contains(body, "data:image/png;base64,MTIzNDU=") || !strings.Contains(body, "[application/pdf of 3 bytes") {
		t.Error(body)
	}
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	for _, o := range []compat.Options{{}, {URL: "http://h"}, {URL: "h:1", Info: llm.Info{ID: "m"}}, {URL: "http://u:secret@h", Info: llm.Info{ID: "m"}}} {
		_, err := compat.New(o)
		if !errs.Is(err, errs.Invalid) || errs.Hint(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A server that does not know forms of replies is asked without one, from then on.
func TestSchema_refused(t *testing.T) {
	var bodies []string
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, string(sent))
		mu.Unlock()
		if strings.Contains(string(sent), "response_format") {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"response_format: extra inputs are not permitted"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, oneWord)
	}))
	t.Cleanup(s.Close)
	for range 2 {
		m := open(t, compat.Options{Info: llm.Info{ID: "m1"}, URL: s.URL})
		req := &llm.Request{Messages: []llm.Message{llm.User("hi")}, Schema: &llm.Schema{Name: "reply", Schema: []byte(`{"type":"object"}`)}}
		if _, _, err := llmtest.Ask(t.Context(), m, req); err != nil {
			t.Fatal(err)
		}
		if req.Schema == nil {
			t.Error("the caller's request was changed")
		}
	}
	if len(bodies) != 3 || strings.Contains(bodies[1]+bodies[2], "response_format") {
		t.Errorf("%d requests: %q", len(bodies), bodies)
	}
}
