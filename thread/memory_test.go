package thread_test

import (
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/thread/threadtest"
)

func TestMemory(t *testing.T) {
	threadtest.Suite(t, func(t *testing.T) threadtest.Store {
		var ms thread.Memories
		var mu sync.Mutex
		next := map[string]threadtest.Fault{}
		fail := func(tenant string, at threadtest.Fault) func(string, thread.ID) error {
			return func(op string, _ thread.ID) error {
				mu.Lock()
				defer mu.Unlock()
				if op != "append" || next[tenant] != at {
					return nil
				}
				delete(next, tenant)
				return errs.New(errs.Unavailable, "a fault of the test: %s", at)
			}
		}
		of := func(tenant string) *thread.Memory {
			m := ms.Of(tenant)
			mu.Lock()
			defer mu.Unlock()
			if m.Before == nil {
				m.Before, m.After = fail(tenant, threadtest.Lost), fail(tenant, threadtest.Mute)
			}
			return m
		}
		return threadtest.Store{
			Log:   func(t *testing.T, tenant string) thread.Log { return of(tenant) },
			Blobs: func(t *testing.T, tenant string) thread.Blobs { return of(tenant) },
			Fail: func(t *testing.T, tenant string, f threadtest.Fault) {
				if f == threadtest.Later {
					f = threadtest.Mute // nothing is on its way in memory
				}
				mu.Lock()
				defer mu.Unlock()
				next[tenant] = f
			},
		}
	})
}
