package openai_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/llm/openai"
)

var update = flag.Bool("update", false, "write the golden files anew")

// serve returns a model whose server answers each request with the bytes.
func serve(t *testing.T, stream []byte) *openai.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(stream) // a client that left is the test's own
	}))
	t.Cleanup(s.Close)
	return open(t, openai.Config{Info: llm.Info{ID: "gpt-5.5"}, URL: s.URL, Key: llm.NewKey("sk-test")})
}

// outcome is what a stream means, as the golden files have it.
type outcome struct {
	Response *llm.Response `json:"response,omitempty"`
	Trouble  llm.Trouble   `json:"trouble,omitempty"`
	After    string        `json:"retry_after,omitempty"`
	Cause    string        `json:"cause,omitempty"`
}

// TestStream holds recorded oddities of the wire against what they mean. Read
// the difference before you commit what -update writes.
func TestStream(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sse"), func(t *testing.T) {
			stream, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got outcome
			resp, _, err := llmtest.Ask(t.Context(), serve(t, stream), &llm.Request{Messages: []llm.Message{llm.User("hi")}})
			got.Response = resp
			if e, ok := errors.AsType[*llm.Error](err); ok {
				got.Trouble, got.Cause = e.Trouble, e.Cause.Error()
				if e.RetryAfter > 0 {
					got.After = e.RetryAfter.String()
				}
			} else if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".sse")+".json", got)
			if resp != nil {
				sameAsSDK(t, stream, resp)
			}
		})
	}
}

func golden(t *testing.T, file string, got any) {
	t.Helper()
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// sameAsSDK: the vendor's own types see in the whole response at the end what
// we made of its parts.
func sameAsSDK(t *testing.T, stream []byte, resp *llm.Response) {
	t.Helper()
	res := &http.Response{Header: http.Header{}, Body: readCloser{strings.NewReader(string(stream))}}
	events := ssestream.NewStream[responses.ResponseStreamEventUnion](ssestream.NewDecoder(res), nil)
	var end responses.Response
	for events.Next() {
		if ev := events.Current(); ev.Type == "response.completed" || ev.Type == "response.incomplete" {
			end = ev.Response
		}
	}
	if len(end.Output) == 0 {
		return // a gateway that leaves it out
	}
	if got, want := resp.Message.String(), end.OutputText(); got != want && resp.Stop != llm.StopRefusal {
		t.Errorf("text %q, the SDK has %q", got, want)
	}
	calls := resp.Message.Calls()
	for _, item := range end.Output {
		if item.Type != "function_call" {
			continue
		}
		c := item.AsFunctionCall()
		if len(calls) == 0 {
			t.Fatalf("the SDK has another call: %s", c.RawJSON())
		}
		if diff := cmp.Diff(llm.NewCall(c.CallID, c.Name, c.Arguments), calls[0]); diff != "" {
			t.Errorf("call (-SDK +ours):\n%s", diff)
		}
		calls = calls[1:]
	}
	if len(calls) > 0 {
		t.Errorf("the SDK lacks %+v", calls)
	}
	u := end.Usage
	if int64(resp.Usage.Total()) != u.TotalTokens || int64(resp.Usage.Reasoning) != u.OutputTokensDetails.ReasoningTokens || int64(resp.Usage.CacheRead) != u.InputTokensDetails.CachedTokens {
		t.Errorf("usage %+v, the SDK has %s", resp.Usage, u.RawJSON())
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
