package anthropic_test

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

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/llmtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// serve returns a model whose server answers each request with the bytes.
func serve(t *testing.T, stream []byte) *anthropic.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(stream) // a client that left is the test's own
	}))
	t.Cleanup(s.Close)
	return open(t, anthropic.Config{Info: llm.Info{ID: "claude-opus-5-5"}, URL: s.URL, Key: llm.NewKey("sk-test")})
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
	if err != nil || len(files) < 20 {
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
			// The SDK makes {} of arguments that were cut off, and knows no gateways.
			if resp != nil && !strings.Contains(file, "gateway") && !strings.Contains(file, "arguments_cut_off") {
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

// sameAsSDK: the vendor's own accumulator understands the stream as we do.
func sameAsSDK(t *testing.T, stream []byte, resp *llm.Response) {
	t.Helper()
	res := &http.Response{Header: http.Header{}, Body: http.NoBody}
	res.Body = readCloser{strings.NewReader(string(stream))}
	events := ssestream.NewStream[sdk.MessageStreamEventUnion](ssestream.NewDecoder(res), nil)
	var msg sdk.Message
	for events.Next() {
		if err := msg.Accumulate(events.Current()); err != nil {
			t.Logf("the SDK gives up: %v", err) // it is stricter about what is new
			return
		}
	}
	blocks := resp.Message.Blocks
	for _, b := range msg.Content {
		var want llm.Block
		switch v := b.AsAny().(type) {
		case sdk.TextBlock:
			want = llm.Text(v.Text)
		case sdk.ThinkingBlock:
			want = llm.Block{Kind: llm.KindReasoning, Text: v.Thinking}
		case sdk.RedactedThinkingBlock:
			want = llm.Block{Kind: llm.KindReasoning}
		case sdk.ToolUseBlock:
			want = llm.Block{Kind: llm.KindCall, Call: llm.NewCall(v.ID, v.Name, string(v.Input))}
		default:
			continue
		}
		if len(blocks) == 0 {
			t.Fatalf("the SDK has more: %+v", want)
		}
		got := blocks[0]
		blocks = blocks[1:]
		if v, is := b.AsAny().(sdk.ThinkingBlock); is && v.Signature != "" {
			echoed(t, got.Vendor.Data, v.Thinking, v.Signature)
		}
		got.Vendor = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the SDK understands (-) another block than we (+):\n%s", diff)
		}
	}
	if len(blocks) > 0 {
		t.Errorf("the SDK lacks %+v", blocks)
	}
	if int64(resp.Usage.Output) != msg.Usage.OutputTokens || int64(resp.Usage.CacheWrite) != msg.Usage.CacheCreationInputTokens {
		t.Errorf("usage %+v, the SDK has %+v", resp.Usage, msg.Usage)
	}
}

func echoed(t *testing.T, data json.RawMessage, thinking, signature string) {
	t.Helper()
	var p sdk.ContentBlockParamUnion
	if err := json.Unmarshal(data, &p); err != nil || p.OfThinking == nil || p.OfThinking.Thinking != thinking || p.OfThinking.Signature != signature {
		t.Errorf("what goes back is not what came: %s (%v)", data, err)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
