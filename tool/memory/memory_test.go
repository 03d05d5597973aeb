package memory_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/memory"
	"github.com/skete-dev/skete/tool/place"
)

func TestLoad(t *testing.T) {
	m := place.NewMap(thread.NewMemory())
	ctx := tool.WithRecorder(t.Context(), func(thread.FileChange) {})
	for p, text := range map[string]string{
		"/w/AGENTS.md": "# Project\n<!-- for\npeople -->\nuse tabs\n", memory.File: "likes <b>tea</b>\n", "/memories/empty": " \n", "/memories/comment": "<!-- x -->",
		"/memories/long": strings.Repeat("ä", 40<<10), "/dir/x": "x",
	} {
		if _, err := m.Write(ctx, p, []byte(text), ""); err != nil {
			t.Fatal(err)
		}
	}
	got, err := memory.Load(ctx, m, append(memory.Files("/w"), "/none", "/memories/empty", "/memories/comment", "/dir", "relative", "/memories/long"))
	if err != nil {
		t.Fatal(err)
	}
	want := []thread.ContextFile{
		{Path: "/w/AGENTS.md", Text: "# Project\n\nuse tabs"},
		{Path: memory.File, Text: "likes <b>tea</b>"},
		{Path: "/memories/long", Text: strings.Repeat("ä", 32<<10) + "\n[the file goes on; read it for the rest]"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

type broken struct{ tool.Files }

func (broken) ReadAt(context.Context, string, int64, int) ([]byte, int64, error) {
	return nil, 0, errors.New("gone")
}

func TestLoad_doesNotForgetWhenThePlaceIsGone(t *testing.T) {
	if got, err := memory.Load(t.Context(), broken{}, memory.Files("")); err == nil {
		t.Errorf("%v", got)
	}
}
