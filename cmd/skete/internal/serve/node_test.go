package serve

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
)

// A data directory is the same node for ever, and an external store belongs to
// the first one that uses it: a second server is told whose it is, also when
// the first one does not run.
func TestOwnStore_ofOneDataDirectory(t *testing.T) {
	url, _ := storetest.External(t)
	first, second := t.TempDir(), t.TempDir()
	start := func(home string) error {
		n, err := identity(home)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := identity(home); err != nil || again != n {
			t.Errorf("%+v, then %+v, %v", n, again, err)
		}
		s, err := store.Open(t.Context(), store.Config{Dir: home + "/store", URL: url})
		if err != nil {
			t.Fatal(err)
		}
		err = ownStore(t.Context(), s, n)
		if cerr := s.Close(); cerr != nil {
			t.Error(cerr)
		}
		return err
	}
	for range 2 {
		if err := start(first); err != nil {
			t.Error(err)
		}
	}
	err := start(second)
	n, _ := identity(first)
	if !errs.Is(err, errs.Exists) || !strings.Contains(errs.Public(err), n.ID) {
		t.Errorf("a second server: %v", err)
	}
}
