package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c openai.Config) *openai.Model {
	t.Helper()
	m, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	llmtest.Run(t, llmtest.Driver{Dialect: llmtest.OpenAI{}, New: func(c llmtest.Config) llm.Model {
		return open(t, openai.Config{
			Info: llm.Info{ID: c.Model, OutputTokensMax: c.OutputTokensMax}, URL: c.URL, Key: llm.NewKey(c.Key),
			Silence: c.Silence, ReplyBytesMax: c.ReplyBytesMax,
		})
	}})
}
