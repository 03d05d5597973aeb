package envd

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/server/envd/protocol"
)

type flood struct {
	protocol.UnimplementedProcessHandler
	n    int
	data []byte
}

func (e *flood) Start(_ context.Context, _ *connect.Request[protocol.StartRequest], to *connect.ServerStream[protocol.StartResponse]) error {
	for range e.n {
		ev := &protocol.ProcessEvent{Event: &protocol.ProcessEvent_Data{Data: &protocol.ProcessEvent_DataEvent{Output: &protocol.ProcessEvent_DataEvent_Stdout{Stdout: e.data}}}}
		if err := to.Send(&protocol.StartResponse{Event: ev}); err != nil {
			return err
		}
	}
	return nil
}

// What sending output costs, with what a client costs that reads it and no more.
func BenchmarkOutput(b *testing.B) {
	h := &flood{n: b.N, data: make([]byte, 256<<10)}
	_, handler := protocol.NewProcessHandler(h, connect.WithCodec(codec{}))
	srv := httptest.NewUnstartedServer(handler)
	at := filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", at)
	if err != nil {
		b.Fatal(err)
	}
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", at) }, ReadBufferSize: 256 << 10}}
	b.SetBytes(int64(len(h.data)))
	b.ReportAllocs()
	b.ResetTimer()
	req, _ := http.NewRequest(http.MethodPost, "http://x"+protocol.ProcessStartProcedure, strings.NewReader("\x00\x00\x00\x00\x02{}"))
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	res, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err != nil || n < int64(b.N)*int64(len(h.data)) {
		b.Fatal(n, err)
	}
}
