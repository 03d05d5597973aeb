package proxy

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// pieces is a body that comes in pieces.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	*p = (*p)[1:]
	return n, nil
}

func (p *pieces) Close() error { return nil }

// In whatever pieces a body comes, all that is in a secret is hidden and nothing else is
// changed.
func TestMasked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := func(least, most int) *rapid.Generator[[]byte] {
			return rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), least, most)
		}
		needles := rapid.SliceOfN(few(1, 6), 1, 3).Draw(t, "needles")
		body := pieces(rapid.SliceOfN(few(1, 9), 0, 9).Draw(t, "pieces"))
		whole := bytes.Join(body, nil)
		want := bytes.Clone(whole)
		stars(want, marks(whole, needles))
		ended := false
		m := newMasked(&body, needles, func() { ended = true })
		got, err := io.ReadAll(iotest.OneByteReader(m))
		if err != nil || !bytes.Equal(got, want) || !ended {
			t.Fatalf("%q without %q is %q, want %q, %v", whole, needles, got, want, err)
		}
	})
}

// What cannot be the beginning of a secret is passed on at once.
func TestMasked_isPrompt(t *testing.T) {
	body := pieces{[]byte("data: 1\n\n"), []byte("data: sec"), []byte("ond\n\n"), []byte("a secret"), []byte("s\n")}
	m := newMasked(&body, [][]byte{[]byte("secret"), []byte("something longer")}, func() {})
	for _, want := range []string{"data: 1\n\n", "data: ", "second\n\n", "a ******", "s\n"} {
		b := make([]byte, 100)
		if n, err := m.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("%q, %v, not %q", b[:n], err, want)
		}
	}
}
