package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/template/debian/debiantest"
	"github.com/skete-dev/skete/template/recipe"
)

const (
	interpreterDir    = "testdata/interpreter"
	interpreterRecipe = "../../examples/code-interpreter"
	interpreterName   = "code-interpreter"
)

var interpreters = []foreign{
	{"JavaScript 2.8.0", nodeClient(interpreterDir, "@e2b/code-interpreter"), "everything.mjs", false},
	{"Python 2.11.5", pythonClient(interpreterDir), "everything.py", false},
	{"Python 2.11.5, QEMU", pythonClient(interpreterDir), "everything.py", true},
}

// interpreterTemplate gives the server the template of examples/code-interpreter: the one
// that was built of this recipe before, if it is kept, or else a new one.
func (b *bridged) interpreterTemplate() {
	b.t.Helper()
	kept, err := filepath.Abs(filepath.Join("../../.build/template", interpreterName+"-"+recipeSum(b.t)))
	b.ok(err)
	ctx, cancel := patience.Context(b.t.Context(), 10*time.Minute)
	defer cancel()
	if bundle, err := os.Open(kept); err == nil {
		defer bundle.Close()
		_, err = b.c.ImportTemplate(ctx, interpreterName, bundle)
		b.ok(err)
		return
	}
	_, err = b.c.ImportTemplate(ctx, "debian", debiantest.Open(b.t))
	b.ok(err)
	folder, err := recipe.Open(interpreterRecipe)
	b.ok(err)
	defer folder.Close()
	tar := folder.Tar(ctx)
	defer tar.Close()
	for _, err := range b.c.BuildTemplate(ctx, client.BuildOptions{Name: interpreterName}, tar) {
		if err != nil {
			b.t.Skipf("skipped: the template cannot be built (is there a registry?): %v", err)
		}
	}
	b.ok(os.MkdirAll(filepath.Dir(kept), 0o755))
	fresh, err := os.CreateTemp(filepath.Dir(kept), ".new-*")
	b.ok(err)
	defer os.Remove(fresh.Name())
	defer fresh.Close()
	b.ok(b.c.ExportTemplate(ctx, interpreterName, fresh))
	b.ok(os.Rename(fresh.Name(), kept))
}

// recipeSum is of all that the template is built of.
func recipeSum(t *testing.T) string {
	t.Helper()
	f, err := recipe.Open(interpreterRecipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tar := f.Tar(t.Context())
	defer tar.Close()
	h := sha256.New()
	if _, err := io.Copy(h, tar); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// The code interpreter of E2B's SDKs works unmodified with the template of
// examples/code-interpreter: contexts, results, streams, errors, and kernels that hang,
// die, or say too much. What code writes is a revision by the client's key. Over kill -9
// of the server a kernel keeps its variables.
func TestInterpreter(t *testing.T) {
	if os.Getenv("SKETE_TEST_INTERPRETER") == "" {
		t.Skip("skipped: it builds a template of half a gigabyte, which takes minutes; SKETE_TEST_INTERPRETER=1 runs it")
	}
	b := newBridged(t, foreign{}, "SKETE_HOST_REGISTRIES=true")
	b.interpreterTemplate()
	results := map[string]map[string]string{}
	var methods []string
	for _, f := range interpreters {
		t.Run(f.name, func(t *testing.T) {
			at := b
			if f.qemu {
				byHand(t)
				at = newBridged(t, f, "SKETE_HOST_REGISTRIES=true")
				at.interpreterTemplate()
			}
			results[f.name] = at.methods(t, at.run(f, f.script), 10, &methods)
		})
	}
	t.Run("Undo", func(t *testing.T) { interpreterUndo(t, b) })
	t.Run("Killed", func(t *testing.T) { interpreterKilled(t, b) })
	checkTable(t, "methods: made by TestInterpreter", names(interpreters), methods, results)
}

func interpreterUndo(t *testing.T, b *bridged) {
	cmd := b.run(interpreters[0], "writes.mjs")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	b.ok(err)
	id := "sbx_" + strings.TrimSpace(string(out))
	list := b.must("history", id)
	for _, want := range []string{"their-app", `code open("notes.txt", "w")`, "code rm notes.txt"} {
		if !strings.Contains(list, want) {
			t.Errorf("the history does not tell of %q:\n%s", want, list)
		}
	}
	look := func() string {
		return b.must("vm", "exec", id, "--", "sh", "-c", "cd /workspace && ls && cat notes.txt 2>/dev/null || true")
	}
	for i, want := range []string{"made", "notes.txt\nfirst", ""} {
		if got := look(); got != want {
			t.Fatalf("after %d undos: %q, want %q\n%s", i, got, want, list)
		}
		if i < 2 {
			b.must("undo", id, "-y")
		}
	}
}

func interpreterKilled(t *testing.T, b *bridged) {
	cmd := b.run(interpreters[0], "killed.mjs")
	in, err := cmd.StdinPipe()
	b.ok(err)
	out, err := cmd.StdoutPipe()
	b.ok(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b.ok(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("it did not begin: %s", stderr.String())
	}
	b.kill()
	b.start()
	_, err = io.WriteString(in, "again\n")
	b.ok(err)
	patience.Within(t, time.Minute, "the client finds its kernel", func() {
		if !lines.Scan() || lines.Text() != "42" {
			t.Errorf("it has %q: %s\n%s", lines.Text(), stderr.String(), b.log)
		}
	})
}
