package spool

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var small = Bounds{head: 64, tail: 256, segment: 32}

// appendAll fills s with data as the pump does.
func appendAll(t testing.TB, s *Spool, data []byte) {
	t.Helper()
	for len(data) > 0 {
		n, err := s.Fill(func(f *os.File, most int64) (int64, error) {
			n, err := f.Write(data[:min(int64(len(data)), most)])
			return int64(n), err
		})
		if err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
}

// readAll reads from off on; dropped bytes come as zeros, and their number.
func readAll(t testing.TB, s *Spool, off int64) (data []byte, gaps int64) {
	t.Helper()
	r := s.NewReader(off)
	defer r.Close()
	buf := make([]byte, 50)
	for {
		at := r.Off
		n, gap, err := r.Next(buf)
		switch {
		case err != nil:
			t.Fatal(err)
		case gap > 0:
			data, gaps = append(data, make([]byte, gap-at)...), gaps+gap-at
		case n == 0:
			return data, gaps
		default:
			data = append(data, buf[:n]...)
		}
	}
}

func numbered(from, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(from+int64(i))%251 + 1 // never zero: zeros stand for gaps
	}
	return b
}

// The model is the whole stream as a slice. Whatever happens, what is read is
// the stream with one cut, and the bound holds.
func TestSpool_isTheStreamWithOneCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "spool-*") //nolint:usetesting // one for each of rapid's runs
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var used atomic.Int64
		s := New(dir, "1.out", small, &used)
		var stream []byte
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch op := rapid.SampledFrom([]string{"write", "write", "write", "reopen", "shrink", "skip"}).Draw(rt, "op"); op {
			case "write":
				data := numbered(int64(len(stream)), int64(rapid.IntRange(1, 200).Draw(rt, "n")))
				appendAll(t, s, data)
				stream = append(stream, data...)
			case "reopen":
				s.closeWriter()
				used.Store(0)
				if s, err = Open(dir, "1.out", small, &used, names(t, dir)); err != nil {
					t.Fatal(err)
				}
			case "shrink":
				s.Shrink(small.segment)
			case "skip":
				n := rapid.IntRange(1, 100).Draw(rt, "n")
				s.Skip(int64(n))
				stream = append(stream, make([]byte, n)...)
			}
			checkSpool(rt, t, s, stream, int64(rapid.IntRange(0, len(stream)).Draw(rt, "from")))
			if used.Load() > small.head+small.tail || used.Load() != s.keptLocked() {
				rt.Fatalf("%d bytes kept, %d counted", s.keptLocked(), used.Load())
			}
		}
		s.Finish()
		s.Forget()
		if left := names(t, dir); len(left) > 0 || used.Load() != 0 {
			rt.Fatalf("left: %q, %d bytes", left, used.Load())
		}
	})
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func checkSpool(rt *rapid.T, t *testing.T, s *Spool, stream []byte, from int64) {
	head, tail, size, _ := s.Extent()
	if size != int64(len(stream)) || head > tail || tail > size {
		rt.Fatalf("kept [0,%d) and [%d,%d) of %d", head, tail, size, len(stream))
	}
	got, gaps := readAll(t, s, from)
	want := bytes.Clone(stream[from:])
	var cut int64
	for i := max(head, from); i < tail; i++ {
		want[i-from] = 0
		cut++
	}
	if !bytes.Equal(got, want) || gaps != cut {
		rt.Fatalf("from %d: got %v with %d of gaps, want %v with %d", from, got, gaps, want, cut)
	}
}

func TestSpool_droppedOutputRemembersItsSize(t *testing.T) {
	dir := t.TempDir()
	var used atomic.Int64
	s := New(dir, "1.out", small, &used)
	appendAll(t, s, numbered(0, 500))
	s.Finish()
	s.Drop(true)
	again, err := Open(dir, "1.out", small, &used, names(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Spool{s, again} {
		if head, tail, size, _ := s.Extent(); head != 0 || tail != 500 || size != 500 {
			t.Errorf("kept [0,%d) and [%d,%d)", head, tail, size)
		}
		if _, gaps := readAll(t, s, 0); gaps != 500 {
			t.Errorf("gaps of %d", gaps)
		}
	}
	if used.Load() != 0 {
		t.Errorf("%d bytes counted", used.Load())
	}
}

func TestSpool_readersOfADroppedSegmentGoOn(t *testing.T) {
	var used atomic.Int64
	s := New(t.TempDir(), "1.out", small, &used)
	appendAll(t, s, numbered(0, 70))
	r := s.NewReader(64)
	defer r.Close()
	buf := make([]byte, 3)
	if n, _, err := r.Next(buf); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	appendAll(t, s, numbered(70, 1000))
	if _, gap, err := r.Next(buf); err != nil || gap == 0 {
		t.Fatalf("gap %d, %v", gap, err)
	}
	s.Finish()
}

func TestSpool_waitsForTheFurthestReader(t *testing.T) {
	var used atomic.Int64
	s := New(t.TempDir(), "1.out", small, &used)
	s.Wait = true
	now := time.Now()
	written := int64(0)
	fill := func() {
		for {
			if ok, _ := s.MayFill(now); !ok || written > 10_000 {
				return
			}
			appendAll(t, s, numbered(written, small.segment))
			written += small.segment
		}
	}
	fill()
	if _, tail, size, _ := s.Extent(); tail > small.head || size > small.head+small.tail {
		t.Fatalf("without a Reader: tail starts at %d of %d", tail, size)
	}
	r := s.NewReader(0)
	defer r.Close()
	buf := make([]byte, 1000)
	for r.Off < 5000 {
		fill()
		if _, gap, err := r.Next(buf); gap > 0 || err != nil {
			t.Fatalf("at %d: gap %d, %v", r.Off, gap, err)
		}
	}
	fill()
	if ok, _ := s.MayFill(now.Add(readerWait + time.Minute)); !ok {
		t.Error("a Reader that stands still stops the process for ever")
	}
	s.Finish()
}
