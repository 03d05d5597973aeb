package skill

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
)

// earlier makes what an earlier release kept: records without contents, and files by version.
func earlier(t *testing.T) (records kv.Store, dir string) {
	t.Helper()
	records, dir = kvtest.NewMemory(), filepath.Join(t.TempDir(), "skills")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for key, trees := range map[string][]Tree{
		"a/forms": {large("forms", "one"), treeOf("forms", "two")}, "b/forms": {treeOf("forms", "two")}, "_server/lint": {treeOf("lint", "one")},
	} {
		r := record{V: recordForm}
		for _, tree := range trees {
			data, err := tree.Tar()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, tree.Version()+".tar"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.Versions = append(r.Versions, Version{ID: tree.Version()})
			r.Current = tree.Version()
		}
		value, err := json.Marshal(r)
		if err == nil {
			_, err = records.Create(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new-123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	return records, dir
}

// What an earlier release kept in a directory moves into the store, also when the server dies
// at any write meanwhile; then the directory is gone.
func TestAdopt(t *testing.T) {
	ctx := t.Context()
	for n, whole := 0, false; !whole; n++ {
		if n > 100 {
			t.Fatal("it never comes to its end")
		}
		records, dir := earlier(t)
		files, left := kvtest.NewMemory(), n
		s, err := Open(ctx, dying{records, &left}, dying{files, &left})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Adopt(ctx, dir)
		whole = err == nil
		if s, err = Open(ctx, records, files); err != nil {
			t.Fatal(err)
		}
		if bad, err := s.Adopt(ctx, dir); err != nil || len(bad) > 0 {
			t.Fatalf("dead after %d writes: %v, %v", n, bad, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("dead after %d writes: the directory: %v", n, err)
		}
		s.files.now = func() time.Time { return time.Now().Add(2 * putTime) }
		if err := s.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		for tenant, trees := range map[string][]Tree{"a": {large("forms", "one"), treeOf("forms", "two"), treeOf("lint", "one")}, "b": {treeOf("forms", "two")}} {
			for _, want := range trees {
				got, err := s.Tree(ctx, tenant, want.Folder, want.Version())
				if err != nil || got.Version() != want.Version() {
					t.Fatalf("dead after %d writes: %v, %v", n, got.Paths(), err)
				}
			}
		}
		if notes := strings.Count(strings.Join(keys(t, files), " "), "put/"); notes != 4 {
			t.Fatalf("dead after %d writes: %d contents", n, notes)
		}
	}
}

// What is damaged stays, and is told; what another server's directory has is waited for.
func TestAdopt_damaged(t *testing.T) {
	ctx := t.Context()
	records, dir := earlier(t)
	two := filepath.Join(dir, treeOf("forms", "two").Version()+".tar")
	if err := os.WriteFile(two, []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, treeOf("lint", "one").Version()+".tar")); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, records, kvtest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	bad, err := s.Adopt(ctx, dir)
	if err != nil || len(bad) != 2 || !strings.Contains(bad[0].Error(), "damaged") {
		t.Errorf("%v, %v", bad, err)
	}
	if _, err := os.Stat(two); err != nil {
		t.Error(err)
	}
	one := large("forms", "one")
	if _, err := s.Tree(ctx, "a", "forms", one.Version()); err != nil {
		t.Error(err)
	}
	if bad, err := s.Adopt(ctx, filepath.Join(dir, "none")); err != nil || len(bad) > 0 {
		t.Errorf("no directory: %v, %v", bad, err)
	}
}
