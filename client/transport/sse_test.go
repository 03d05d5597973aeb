package transport

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzSSE(f *testing.F) {
	f.Add([]byte("id: 1\nevent: x\ndata: {}\n\n"))
	f.Add([]byte("data\n\n:c\n\ndata:a\r\ndata: b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newEventReader(bytes.NewReader(in))
		for {
			ev, err := r.next()
			if err != nil {
				return
			}
			if len(ev.Data) > len(in) || strings.ContainsAny(ev.ID, "\n\x00") {
				t.Fatalf("%q", ev)
			}
		}
	})
}
