package store_test

import (
	"testing"

	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/thread/threadtest"
)

func threadStore(s *store.Store) threadtest.Store {
	return threadtest.Store{
		Log: func(t *testing.T, tenant string) thread.Log {
			t.Helper()
			l, err := s.Threads().Log(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Blobs: func(t *testing.T, tenant string) thread.Blobs {
			t.Helper()
			b, err := s.Threads().Blobs(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Fail: func(t *testing.T, tenant string, f threadtest.Fault) { s.Threads().FailNext(t, tenant, f) },
	}
}

func TestThreads_passTheSuite(t *testing.T) {
	threadtest.Suite(t, func(t *testing.T) threadtest.Store { return threadStore(open(t, store.Config{})) })
}
