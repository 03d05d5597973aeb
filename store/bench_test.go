package store_test

import (
	"fmt"
	"testing"

	"github.com/skete-dev/skete/store"
)

func BenchmarkKV(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	kv, err := s.KV(b.Context(), "b")
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 1024)
	b.Run("create", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := kv.Create(b.Context(), fmt.Sprintf("%d/%d", b.N, i), value); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		rev, err := kv.Put(b.Context(), "u", value)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if rev, err = kv.Update(b.Context(), "u", value, rev); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		if _, err := kv.Put(b.Context(), "g", value); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, _, err := kv.Get(b.Context(), "g"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
