package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/workspace"
)

// What is wrong in the history of a sandbox is told with its tenant, also of
// one that has no runs.
func TestUpkeep_histories(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	dir, files, staging := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "staging")
	kept := filepath.Join(dir, "sbx_a", "store")
	w, err := workspace.Open(workspace.Config{Dir: files, Staging: staging, Store: kept})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(files, "f"), []byte("text"), 0o600))
	_, _, err = w.Snapshot(t.Context(), workspace.Label{})
	must(t, err)
	must(t, w.Close())
	must(t, os.WriteFile(filepath.Join(dir, "sbx_a", "tenant"), []byte("acme"), 0o600))
	u, _ := newUpkeep(t, &running{store: s}, &ended{}, dir)

	got, err := u.Check(t.Context(), "acme")
	if err != nil || got.Tenants != 1 || got.Histories != 1 || got.Revisions != 1 || len(got.Problems) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	list := filepath.Join(kept, "revisions")
	data, err := os.ReadFile(list)
	must(t, err)
	must(t, os.Remove(list))
	if got, err = u.Check(t.Context(), ""); err != nil || len(got.Problems) != 1 {
		t.Fatalf("without its list: %+v, %v", got, err)
	}
	must(t, os.WriteFile(list, data, 0o600))
	segments, err := filepath.Glob(filepath.Join(kept, "objects", "*.seg"))
	must(t, err)
	data, err = os.ReadFile(segments[0])
	must(t, err)
	data[9] ^= 1 // in the head, which no crash damages alone
	must(t, os.WriteFile(segments[0], data, 0o600))
	got, err = u.Check(t.Context(), "")
	if err != nil || len(got.Problems) == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if p := got.Problems[0]; p.Tenant != "acme" || p.Sandbox != "sbx_a" || !strings.Contains(p.Text, filepath.Base(segments[0])) {
		t.Errorf("%+v", p)
	}
	if _, err := u.Check(t.Context(), "nobody"); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}
