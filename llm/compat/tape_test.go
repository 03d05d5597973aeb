package compat_test

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/llmtest"
)

var _ = flag.Bool("update", false, "write want.json and error.json of the tapes anew")

// Every oddity of a server that we know of.
func TestTapes(t *testing.T) {
	llmtest.RunTape(t, "testdata", func(url string, options json.RawMessage) llm.Model {
		var o struct {
			NoUsage          bool   `json:"no_usage"`
			NoStream         bool   `json:"no_stream"`
			NoTextCalls      bool   `json:"no_text_calls"`
			CompletionTokens bool   `json:"completion_tokens"`
			SilenceMS        int    `json:"silence_ms"`
			Path             string `json:"path"`
		}
		if options != nil {
			if err := json.Unmarshal(options, &o); err != nil {
				t.Fatal(err)
			}
		}
		return open(t, compat.Options{
			Info: llm.Info{Name: "tape", ID: "m1"}, URL: url + o.Path, Key: llm.NewKey("sk-tape"), Origin: "tape",
			NoUsage: o.NoUsage, NoStream: o.NoStream, NoTextCalls: o.NoTextCalls, CompletionTokens: o.CompletionTokens,
			Silence: time.Duration(o.SilenceMS) * time.Millisecond,
		})
	})
}
