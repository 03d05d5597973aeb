package server_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
)

// BenchmarkExec compares an exec through the server with one of the guest
// itself: what lies between is what the server adds.
func BenchmarkExec(b *testing.B) {
	w := newWorld(b)
	id := w.sandbox()
	c, release, err := w.manager.Guest(b.Context(), "default", sandbox.ID(id))
	must(b, err)
	defer release()
	// The two take turns, so that both see the same machine.
	var guest, server []time.Duration
	for b.Loop() {
		start := time.Now()
		st, err := c.Process.Exec(b.Context(), connect.NewRequest(&wire.StartRequest{Argv: [][]byte{[]byte("/bin/true")}}))
		must(b, err)
		for st.Receive() {
		}
		must(b, st.Close())
		guest = append(guest, time.Since(start))
		start = time.Now()
		s := w.exec(b, api.StartProcess{Argv: []string{"/bin/true"}})
		for f := s.next(); f.kind != api.FrameExited; f = s.next() {
		}
		server = append(server, time.Since(start))
		_ = s.ws.CloseNow()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(guest), "guest-us")
	b.ReportMetric(median(server), "server-us")
	b.ReportMetric(median(server)-median(guest), "added-us")
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds())
}

// BenchmarkStdout measures the bytes of a command's output through the server,
// beside the guest's own stream.
func BenchmarkStdout(b *testing.B) {
	w := newWorld(b)
	const size = 256 << 20
	argv := []string{"/usr/bin/head", "-c", strconv.Itoa(size), "/dev/zero"}
	b.Run("guest", func(b *testing.B) {
		c, release, err := w.manager.Guest(b.Context(), "default", sandbox.ID(w.sandbox()))
		must(b, err)
		defer release()
		b.SetBytes(size)
		for b.Loop() {
			st, err := c.Process.Exec(b.Context(), connect.NewRequest(&wire.StartRequest{
				Argv: [][]byte{[]byte(argv[0]), []byte(argv[1]), []byte(argv[2]), []byte(argv[3])}, Overflow: wire.Overflow_OVERFLOW_WAIT,
			}))
			must(b, err)
			n := 0
			for st.Receive() {
				n += len(st.Msg().GetOutput().GetData())
			}
			must(b, st.Close())
			if n != size {
				b.Fatalf("%d bytes", n)
			}
		}
	})
	b.Run("server", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			s := w.exec(b, api.StartProcess{Wait: true, Argv: argv})
			buf := make([]byte, api.FrameBytesMax)
			n := 0
			for {
				_, r, err := s.ws.Reader(b.Context())
				must(b, err)
				m, err := io.ReadFull(r, buf)
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					must(b, err)
				}
				if kind := api.FrameKind(buf[0]); kind == api.FrameStdout {
					n += m - 9
				} else if kind == api.FrameExited {
					break
				} else if kind != api.FrameStarted {
					b.Fatalf("%q", buf[:m])
				}
			}
			if n != size {
				b.Fatalf("%d bytes", n)
			}
			_ = s.ws.CloseNow()
		}
	})
}

// BenchmarkStat measures the smallest JSON route.
func BenchmarkStat(b *testing.B) {
	w := newWorld(b)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.base+"/v1/sandboxes/"+w.sandbox()+"/files/stat?path=/etc/passwd", nil)
	must(b, err)
	req.Header.Set("Authorization", "Bearer "+w.admin)
	for b.Loop() {
		res, err := c.Do(req)
		must(b, err)
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
	}
}
