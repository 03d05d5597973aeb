package anthropic_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c anthropic.Config) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	llmtest.Run(t, llmtest.Driver{Dialect: llmtest.Anthropic{}, New: func(c llmtest.Config) llm.Model {
		return open(t, anthropic.Config{
			Info: llm.Info{ID: c.Model, OutputTokensMax: c.OutputTokensMax}, URL: c.URL, Key: llm.NewKey(c.Key),
			Silence: c.Silence, ReplyBytesMax: c.ReplyBytesMax,
		})
	}})
}
