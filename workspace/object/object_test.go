package object_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
)

func open(t testing.TB, dir string, c object.Config) *object.Store {
	t.Helper()
	s, err := object.Open(dir, c)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, r.IntN(3000))
	for i := range b {
		b[i] = byte(r.IntN(1 + n%256)) // some compress well, some do not
	}
	return append(b, fmt.Sprint(n)...)
}

// Whatever is put, synced, compacted and reopened, in any order: what is alive
// is there, and is what it was.
func TestStore_model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "object") //nolint:usetesting // rapid has no directories
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		config := object.Config{SegmentBytes: 8 << 10}
		s, err := object.Open(dir, config)
		if err != nil {
			t.Fatal(err)
		}
		alive := map[object.Hash][]byte{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "n") {
					data := content(rapid.IntRange(0, 300).Draw(t, "content"))
					h, err := s.Put(object.Blob, data)
					if err != nil {
						t.Fatal(err)
					}
					alive[h] = data
				}
			},
			"reopen": func(t *rapid.T) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = object.Open(dir, config); err != nil {
					t.Fatal(err)
				}
			},
			"compact": func(t *rapid.T) {
				for h := range alive {
					if rapid.Bool().Draw(t, "drop") {
						delete(alive, h)
					}
				}
				if _, err := s.Compact(func(h object.Hash) bool { return alive[h] != nil }); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				for h, want := range alive {
					if got, err := s.Get(object.Blob, h); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%s: %d bytes, %v", h, len(got), err)
					}
				}
			},
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A store that was cut off anywhere after its last sync opens, and has all that
// was synced.
func TestStore_cutAnywhere(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, object.Config{})
	var synced []object.Hash
	for n := range 5 {
		h, err := s.Put(object.Blob, content(n))
		must(t, err)
		synced = append(synced, h)
	}
	must(t, s.Sync())
	at := s.Bytes()
	for n := 5; n < 8; n++ {
		_, err := s.Put(object.Tree, content(n))
		must(t, err)
	}
	must(t, s.Close())
	name := filepath.Join(dir, "00000001.seg")
	whole, err := os.ReadFile(name)
	must(t, err)
	for cut := int(at); cut < len(whole); cut += 61 {
		for _, hole := range []bool{false, true} { // a shorter file, or zeros where data never came
			data := bytes.Clone(whole)
			if hole {
				clear(data[cut:])
			} else {
				data = data[:cut]
			}
			must(t, os.WriteFile(name, data, 0o600))
			s, err := object.Open(dir, object.Config{})
			must(t, err)
			for _, h := range synced {
				if _, err := s.Get(object.Blob, h); err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
			}
			if problems, _ := s.Check(); problems != nil {
				t.Fatalf("cut at %d: %v", cut, problems)
			}
			must(t, s.Close())
		}
	}
}

// Damage that no crash can make is said, not repaired.
func TestStore_damage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, object.Config{SegmentBytes: 4 << 10})
	var all []object.Hash
	for n := range 40 {
		h, err := s.Put(object.Blob, content(n))
		must(t, err)
		all = append(all, h)
	}
	must(t, s.Close())
	name := filepath.Join(dir, "00000001.seg")
	whole, err := os.ReadFile(name)
	must(t, err)
	t.Run("payload", func(t *testing.T) {
		data := bytes.Clone(whole)
		data[16+52+1] ^= 1
		must(t, os.WriteFile(name, data, 0o600))
		s := open(t, dir, object.Config{})
		if _, err := s.Get(object.Blob, all[0]); !errs.Is(err, errs.Corrupt) {
			t.Errorf("Get = %v, want Corrupt", err)
		}
		if problems, n := s.Check(); len(problems) != 1 || n != 40 {
			t.Errorf("Check found %v of %d", problems, n)
		}
	})
	t.Run("header", func(t *testing.T) {
		data := bytes.Clone(whole)
		data[16] ^= 1
		must(t, os.WriteFile(name, data, 0o600))
		if _, err := object.Open(dir, object.Config{}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("Open = %v, want Corrupt", err)
		}
	})
	t.Run("head", func(t *testing.T) {
		data := bytes.Clone(whole)
		data[0] ^= 1
		must(t, os.WriteFile(name, data, 0o600))
		if _, err := object.Open(dir, object.Config{}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("Open = %v, want Corrupt", err)
		}
	})
}

func TestStore_refusals(t *testing.T) {
	s := open(t, t.TempDir(), object.Config{BytesMax: 4 << 10})
	h, err := s.Put(object.Blob, []byte("a"))
	must(t, err)
	for name, c := range map[string]struct {
		err  error
		want errs.Class
	}{
		"another kind": {second(s.Get(object.Tree, h)), errs.NotFound},
		"unknown":      {second(s.Get(object.Blob, object.HashOf(object.Blob, nil))), errs.NotFound},
		"too large":    {second(s.Put(object.Blob, make([]byte, object.ContentBytesMax+1))), errs.Invalid},
		"full":         {second(s.Put(object.Blob, noise(8<<10))), errs.Limit},
		"no hash":      {second(object.ParseHash("abc")), errs.Invalid},
	} {
		if !errs.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
	if _, err := s.Get(object.Blob, h); err != nil {
		t.Error("what was there before is gone: ", err)
	}
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func second[T any](_ T, err error) error { return err }

// Writers, readers and a compaction at the same time.
func TestStore_concurrent(t *testing.T) {
	s := open(t, t.TempDir(), object.Config{SegmentBytes: 16 << 10})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := range 200 {
				data := content(w*50 + n)
				h, err := s.Put(object.Blob, data)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(object.Blob, h); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d: %v", n, err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := s.Compact(func(object.Hash) bool { return true }); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	must(t, s.Sync())
	if problems, _ := s.Check(); problems != nil {
		t.Error(problems)
	}
}

// A segment file is data that another program may have changed: no content of
// it makes Open or Get do anything but answer.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir, object.Config{})
	for n := range 3 {
		_, err := s.Put(object.Blob, content(n))
		must(f, err)
	}
	must(f, s.Close())
	seed, err := os.ReadFile(filepath.Join(dir, "00000001.seg"))
	must(f, err)
	f.Add(seed)
	f.Add(seed[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "00000001.seg"), data, 0o600))
		s, err := object.Open(dir, object.Config{})
		if err != nil {
			return
		}
		defer s.Close()
		if problems, _ := s.Check(); problems != nil {
			t.Errorf("opened, and then: %v", problems)
		}
	})
}

func BenchmarkPut(b *testing.B) {
	s := open(b, b.TempDir(), object.Config{})
	data := bytes.Repeat([]byte("some source text that is like other source text\n"), 200)
	b.SetBytes(int64(len(data)))
	for n := range b.N {
		copy(data, fmt.Sprint(n))
		if _, err := s.Put(object.Blob, data); err != nil {
			b.Fatal(err)
		}
	}
}
