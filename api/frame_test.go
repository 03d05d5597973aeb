package api

import (
	"bytes"
	"testing"
)

func TestFrames(t *testing.T) {
	frame := AppendOffsetFrame(nil, FrameStdout, 1<<40, []byte("data"))
	kind, body, err := ParseFrame(frame)
	if kind != FrameStdout || err != nil {
		t.Fatalf("%#x, %v", kind, err)
	}
	offset, data, err := ParseOffset(body)
	if offset != 1<<40 || string(data) != "data" || err != nil {
		t.Errorf("%d %q %v", offset, data, err)
	}
	for name, b := range map[string][]byte{"empty": nil, "too large": make([]byte, FrameBytesMax+1)} {
		if _, _, err := ParseFrame(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, b := range map[string][]byte{"no offset": []byte("1234567"), "negative": bytes.Repeat([]byte{0xff}, 9)} {
		if _, _, err := ParseOffset(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendOffsetFrame(nil, FrameStdin, 7, []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := ParseFrame(b)
		if err != nil {
			return
		}
		offset, data, err := ParseOffset(body)
		if err == nil && !bytes.Equal(AppendOffsetFrame(nil, kind, offset, data), b) {
			t.Errorf("%x became %#x %d %x", b, kind, offset, data)
		}
	})
}
