package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/skete-dev/skete/egress"
)

// late sends the head of a request with a body of one byte, and the body a while after it has
// the head of the answer. It returns whether the answer, or its stream, ended before.
func (w *world) late(host string, sends bool) (status string, before bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	conn := tls.Client(w.dial(netip.AddrPortFrom(w.address(host), 443)), &tls.Config{RootCAs: w.roots, ServerName: host, NextProtos: []string{"h2"}})
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	must(w.t, conn.HandshakeContext(ctx))
	_, err := io.WriteString(conn, http2.ClientPreface)
	must(w.t, err)
	f := http2.NewFramer(conn, conn)
	must(w.t, f.WriteSettings())
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", host}, {":path", "/b"}, {"content-length", "1"}} {
		must(w.t, enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	must(w.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	dec := hpack.NewDecoder(4096, func(h hpack.HeaderField) {
		if h.Name == ":status" {
			status = h.Value
		}
	})
	var sent atomic.Bool
	for {
		frame, err := f.ReadFrame()
		must(w.t, err)
		if h, is := frame.(*http2.HeadersFrame); is {
			_, err = dec.Write(h.HeaderBlockFragment())
			must(w.t, err)
			if status == "" {
				continue
			}
			if sends {
				time.AfterFunc(50*time.Millisecond, func() {
					sent.Store(true)
					_ = f.WriteData(1, true, []byte("x"))
				})
			}
		}
		if h := frame.Header(); h.StreamID == 1 && (h.Flags.Has(http2.FlagDataEndStream) || h.Type == http2.FrameRSTStream) {
			return status, !sent.Load()
		}
	}
}

// A refusal, which comes at once, does not end before the client has sent a short body: the
// stream would be reset under it. Nor does what a host answers before it has the body.
func TestAnswerBeforeTheBody(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "early.example.com"}}})
	w.serve(443, func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "at once")
		_ = http.NewResponseController(rw).Flush()
	}, "early.example.com")
	w.at(443, "refused.example.com")
	for host, want := range map[string]string{"early.example.com": "200", "refused.example.com": "403"} {
		if status, before := w.late(host, true); status != want || before {
			t.Errorf("%s: %s, it ended before the body was sent: %v", host, status, before)
		}
	}
	// A client that never sends it gets the answer all the same.
	if status, _ := w.late("refused.example.com", false); status != "403" {
		t.Errorf("without the body: %s", status)
	}
}
