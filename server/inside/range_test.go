package inside

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/skete-dev/skete/errs"
)

func TestParseRange(t *testing.T) {
	for header, want := range map[string]byteRange{
		"bytes=0-0": {0, 1, 0}, "bytes=5-": {5, 0, 0}, "bytes=-7": {0, 0, 7}, "bytes= 1-2 ": {1, 2, 0},
	} {
		if got, ranged, err := parseRange(header); got != want || !ranged || err != nil {
			t.Errorf("%q: %+v %v %v", header, got, ranged, err)
		}
	}
	for _, header := range []string{"", "lines=1-2", "Bytes=0-1"} {
		if _, ranged, err := parseRange(header); ranged || err != nil {
			t.Errorf("%q: %v %v", header, ranged, err)
		}
	}
	for _, header := range []string{"bytes=", "bytes=-", "bytes=-0", "bytes=1", "bytes=2-1", "bytes=a-b", "bytes=1-2,3-4", "bytes=1- 2", "bytes=0x1-2", "bytes=9999999999999999999-", "bytes=--1"} {
		if _, _, err := parseRange(header); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", header, err)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("bytes=0-1")
	f.Add("bytes=-5")
	f.Fuzz(func(t *testing.T, header string) {
		r, ranged, err := parseRange(header)
		if err == nil && ranged && (r.from < 0 || r.length < 0 || r.suffix < 0 || r.suffix > 0 && r.from+r.length > 0 || r.from > rangeOffsetMax) {
			t.Errorf("%q became %+v", header, r)
		}
	})
}

// An end in the middle and a body that breaks off are told apart.
func TestChunks(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 600<<10)
	for name, tt := range map[string]struct {
		body   io.Reader
		chunks int
		bytes  int
		ok     bool
	}{
		"empty":          {bytes.NewReader(nil), 1, 0, true},
		"small":          {bytes.NewReader(big[:10]), 1, 10, true},
		"exactly one":    {bytes.NewReader(big[:256<<10]), 1, 256 << 10, true},
		"several":        {bytes.NewReader(big), 3, 600 << 10, true},
		"byte by byte":   {iotest.OneByteReader(bytes.NewReader(big[:1000])), 1, 1000, true},
		"data with EOF":  {iotest.DataErrReader(bytes.NewReader(big)), 3, 600 << 10, true},
		"broken at once": {iotest.ErrReader(io.ErrUnexpectedEOF), 1, 0, false},
		"broken later":   {io.MultiReader(bytes.NewReader(big), iotest.ErrReader(io.ErrUnexpectedEOF)), 3, 600 << 10, false},
	} {
		chunkCount, size := 0, 0
		err := chunks(tt.body, func(_ bool, data []byte) error { chunkCount++; size += len(data); return nil })
		if (err == nil) != tt.ok || chunkCount != tt.chunks || size != tt.bytes {
			t.Errorf("%s: %d chunks, %d bytes, %v", name, chunkCount, size, err)
		}
	}
	if err := chunks(bytes.NewReader(big), func(bool, []byte) error { return errors.New("refused") }); err != nil {
		t.Errorf("a receiver that refuses: %v", err)
	}
}
