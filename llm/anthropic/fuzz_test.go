package anthropic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/llmtest"
)

// canned answers each request with the bytes, and wants requests to be JSON.
type canned struct {
	t      *testing.T
	stream []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		c.t.Errorf("%v: a request that is no JSON: %s", err, body)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(bytes.NewReader(c.stream)), Request: r,
	}, nil
}

// FuzzStream: whatever a server sends, the answer has its form, or there is one
// error of a model, and what an answer holds can be sent back.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		m, err := anthropic.New(anthropic.Config{
			Info: llm.Info{ID: "claude-opus-5-5"}, URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: canned{t, stream}}, ReplyBytesMax: 1 << 16,
		})
		if err != nil {
			t.Fatal(err)
		}
		req := &llm.Request{Messages: []llm.Message{llm.User("hi")}}
		resp, _, err := llmtest.Ask(t.Context(), m, req)
		if err != nil {
			if _, ok := errors.AsType[*llm.Error](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		req.Messages = append(req.Messages, resp.Message)
		for range m.Stream(t.Context(), req) {
			break
		}
	})
}
