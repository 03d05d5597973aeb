package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

func (s *Service) checked(t *testing.T, tenant string) (all []Checked) {
	t.Helper()
	must(t, s.Check(t.Context(), tenant, func(c Checked) error {
		all = append(all, c)
		return nil
	}))
	return all
}

// A bit that flips in a history is found and named, while the history is open,
// and nothing of the check stays.
func TestCheck(t *testing.T) {
	h, s := newHouse(t)
	if all := s.checked(t, ""); all != nil {
		t.Fatalf("without any: %+v", all)
	}
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	for i := range 3 {
		h.write(t, "a", fmt.Sprint("text ", i))
		_, _, err = his.Snapshot(t.Context(), workspace.Label{})
		must(t, err)
	}
	if all := s.checked(t, ""); len(all) != 1 || all[0].ID != id || all[0].Tenant != tenant || all[0].Report.Revisions != 3 || !all[0].Report.Whole() {
		t.Fatalf("%+v", all)
	}
	if all := s.checked(t, "other"); all != nil {
		t.Errorf("another tenant's: %+v", all)
	}
	segments, err := filepath.Glob(filepath.Join(s.store(id), "objects", "*.seg"))
	must(t, err)
	data, err := os.ReadFile(segments[0])
	must(t, err)
	data[len(data)/2] ^= 4
	must(t, os.WriteFile(segments[0], data, 0o600))
	all := s.checked(t, tenant)
	if len(all) != 1 || all[0].Report.Whole() {
		t.Fatalf("%+v", all)
	}
	if first := all[0].Report.Problems[0].String(); !strings.Contains(first, "objects/"+filepath.Base(segments[0])) {
		t.Errorf("the file is not named: %s", first)
	}
	if _, err := os.Lstat(filepath.Join(s.dir(id), "check")); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}

// A check, however long its history and however slow its client, holds up no
// other's, and no other tenant's end.
func TestCheck_holdsUpNoOther(t *testing.T) {
	h, s := newHouse(t)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	h.write(t, "a", "text")
	_, _, err = his.Snapshot(t.Context(), workspace.Label{})
	must(t, err)
	must(t, s.Check(t.Context(), tenant, func(Checked) error { // the client has not read it yet
		if all := s.checked(t, tenant); len(all) != 1 {
			t.Errorf("another check meanwhile: %+v", all)
		}
		return nil
	}))
	defer s.checking.Lock(id)() // it is checked
	const gone = sandbox.ID("sbx_goneeeeeeeeeeeeeeeee")
	must(t, s.own("other", gone))
	n, err := s.Erase("other")
	if err != nil || n != 1 {
		t.Errorf("erased %d: %v", n, err)
	}
}

// Revisions are made, and old ones dropped, while a check goes on; it finds
// nothing wrong and disturbs none of that.
func TestCheck_meanwhile(t *testing.T) {
	h, s := newHouse(t)
	store := filepath.Join(s.dir(id), "store")
	must(t, s.own(tenant, id))
	w, err := workspace.Open(workspace.Config{
		Dir: filepath.Join(h.disk, "files"), Staging: filepath.Join(h.disk, "staging"), Store: store, SegmentBytes: 4 << 10,
	})
	must(t, err)
	defer func() { must(t, w.Close()) }()
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			must(t, os.WriteFile(filepath.Join(h.disk, "files", "a"), fmt.Append(nil, "text ", i, strings.Repeat(fmt.Sprint(i), 500)), 0o600))
			if _, _, err := w.Snapshot(t.Context(), workspace.Label{}); err != nil {
				t.Error(err)
				return
			}
			if i%10 == 9 {
				if _, err := w.Prune(t.Context(), workspace.Policy{All: 1, Borders: 1}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	looked := 0
	for range 60 {
		err := s.Check(t.Context(), "", func(c Checked) error {
			looked++
			for _, p := range c.Report.Problems {
				t.Error(p)
			}
			return nil
		})
		if err != nil && !errs.Is(err, errs.Conflict) {
			t.Error(err)
		}
	}
	close(stop)
	done.Wait()
	if looked < 30 {
		t.Errorf("looked %d times", looked)
	}
}
