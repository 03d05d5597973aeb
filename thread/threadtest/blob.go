package threadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

func blobs(t *testing.T, s Store) {
	b := s.Blobs(t, tenant)
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	for _, content := range [][]byte{{}, []byte("hello"), large} {
		for range 2 {
			hash, err := b.Put(t.Context(), content)
			if err != nil || hash != thread.Hash(content) {
				t.Fatalf("put %d bytes: %s, %v", len(content), hash, err)
			}
			got, err := b.Get(t.Context(), hash)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("get %d bytes: %d, %v", len(content), len(got), err)
			}
		}
	}
	hash := thread.Hash(large)
	for _, c := range []struct {
		off  int64
		n    int
		want int
		eof  bool
	}{{0, 10, 10, false}, {1 << 20, 1 << 20, 1 << 20, false}, {3<<20 - 5, 10, 5, true}, {3 << 20, 10, 0, true}, {1 << 40, 10, 0, true}} {
		p := make([]byte, c.n)
		n, size, err := b.ReadAt(t.Context(), hash, p, c.off)
		if n != c.want || size != 3<<20 || errors.Is(err, io.EOF) != c.eof || err != nil && !c.eof {
			t.Errorf("read %d at %d: %d of %d, %v", c.n, c.off, n, size, err)
		}
		if n > 0 && !bytes.Equal(p[:n], large[c.off:c.off+int64(n)]) {
			t.Errorf("read %d at %d: other bytes", c.n, c.off)
		}
	}
	_, _, err := b.ReadAt(t.Context(), hash, make([]byte, 1), -1)
	wantClass(t, "read at -1", err, errs.Invalid)
	_, err = b.Get(t.Context(), strings.Repeat("0", 64))
	wantClass(t, "no such blob", err, errs.NotFound)
	for _, bad := range []string{"", "x", strings.Repeat("A", 64), strings.Repeat("0", 63) + "/", "../../" + strings.Repeat("0", 58), hash + "\n"} {
		_, err = b.Get(t.Context(), bad)
		wantClass(t, fmt.Sprintf("get %q", bad), err, errs.Invalid)
		_, _, err = b.ReadAt(t.Context(), bad, make([]byte, 1), 0)
		wantClass(t, fmt.Sprintf("read %q", bad), err, errs.Invalid)
	}
	_, err = b.Put(t.Context(), make([]byte, thread.BlobBytesMax+1))
	wantClass(t, "a byte over the bound", err, errs.Limit)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20 {
				content := fmt.Appendf(nil, "shared %d", i)
				hash, err := b.Put(t.Context(), content)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := b.Get(t.Context(), hash); err != nil || !bytes.Equal(got, content) {
					t.Errorf("get what was just put: %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
