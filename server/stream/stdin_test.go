package stream

import (
	"bytes"
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
)

// Whatever pieces come, in whatever order a client that repeats itself sends
// them: the command gets each byte once and in order.
func TestStdinQueueIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "bytes")
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		s := newStdin()
		var got []byte
		sent := 0
		for sent < len(want) || rapid.Bool().Draw(t, "more") {
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0: // the next piece, or one that overlaps what was sent
				from := rapid.IntRange(0, sent).Draw(t, "from")
				if len(got) == 0 && sent == 0 {
					from = 0
				}
				to := rapid.IntRange(from, len(want)).Draw(t, "to")
				if err := s.put(context.Background(), base+int64(from), want[from:to], false); err != nil {
					t.Fatal(err)
				}
				sent = max(sent, to)
			case 1: // a hole is refused
				if s.begun {
					if err := s.put(context.Background(), base+int64(sent)+1, []byte("x"), false); !errs.Is(err, errs.Invalid) {
						t.Fatalf("a hole: %v", err)
					}
				}
			case 2: // the command takes some
				at, data, _ := s.peek()
				n := rapid.IntRange(0, len(data)).Draw(t, "taken")
				if at != base+int64(len(got)) && len(data) > 0 {
					t.Fatalf("at %d, want %d", at, base+int64(len(got)))
				}
				got = append(got, data[:n]...)
				s.ack(at+int64(n), false)
			}
		}
		_, data, _ := s.peek()
		if got = append(got, data...); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d", len(got), len(want))
		}
	})
}

func TestStdinBehindItsEnd(t *testing.T) {
	s := newStdin()
	ctx := t.Context()
	if err := s.put(ctx, 0, []byte("abc"), true); err != nil {
		t.Fatal(err)
	}
	if err := s.put(ctx, 0, []byte("abc"), true); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := s.put(ctx, 3, []byte("d"), false); !errs.Is(err, errs.Invalid) {
		t.Errorf("more behind the end: %v", err)
	}
	s.ack(3, true)
	if err := s.put(ctx, 100, []byte("late"), false); err != nil {
		t.Errorf("a command that takes no more: %v", err)
	}
	if _, data, eof := s.peek(); len(data) != 0 || eof {
		t.Errorf("%q %v is left", data, eof)
	}
}

func TestStdinWaitsWhenFull(t *testing.T) {
	s := newStdin()
	piece := make([]byte, 1<<20)
	for at := int64(0); at < queueMax; at += int64(len(piece)) {
		if err := s.put(t.Context(), at, piece, false); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.put(t.Context(), queueMax, piece, false) }()
	select {
	case err := <-done:
		t.Fatalf("a full queue took more: %v", err)
	default:
	}
	s.ack(1<<20, false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
