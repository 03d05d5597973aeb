package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plug puts examples of plug-ins into the server's folder.
func (w *world) plug(names ...string) {
	w.t.Helper()
	for _, name := range names {
		from := filepath.Join("..", "..", "examples", "plugins", name)
		if err := os.CopyFS(filepath.Join(w.home, "plugins", name), os.DirFS(from)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A plug-in is a model for an agent, from a sandbox of its own.
func TestPlugin_model(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plug("echo-model")
	w.start()
	if out := w.must("model", "list"); !strings.Contains(out, "echo-model/parrot") {
		t.Error(out)
	}
	if out := w.must("run", "-q", "--model", "echo-model/parrot", "Say it again."); strings.TrimSpace(out) != "Say it again." {
		t.Error(out)
	}
}
