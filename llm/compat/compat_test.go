package compat_test

import (
	"testing"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/llm/llmtest/chat"
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
	return llmtest.Driver{Dialect: chat.Dialect{}, New: func(c llmtest.Config) llm.Model {
		return open(t, compat.Options{
			Info: llm.Info{Name: "test", ID: c.Model, Media: true}, URL: c.URL, Key: llm.NewKey(c.Key),
			Silence: c.Silence, ReplyBytesMax: c.ReplyBytesMax, NoStream: noStream,
		})
	}}
}

func TestModel(t *testing.T) { llmtest.Run(t, driver(t, false)) }
