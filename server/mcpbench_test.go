package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/client"
)

// BenchmarkMCP compares a tool's call with the API's that it makes, in turns.
func BenchmarkMCP(b *testing.B) {
	w := newWorld(b)
	id := w.sandbox()
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(b, err)
	defer c.Close()
	files := c.Sandbox(id).Files()
	_, err = files.Write(b.Context(), "f", bytes.Repeat([]byte("k"), 1000), client.WriteOptions{})
	must(b, err)
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_read","arguments":{"sandbox":%q,"path":"f"}}}`, id)
	var native, tool []time.Duration
	for b.Loop() {
		start := time.Now()
		_, err := files.Read(b.Context(), "f", 1<<20)
		must(b, err)
		native = append(native, time.Since(start))
		start = time.Now()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, w.base+"/mcp", strings.NewReader(call))
		must(b, err)
		req.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2025-11-25"}, "Authorization": {"Bearer " + w.admin},
		}
		res, err := hc.Do(req)
		must(b, err)
		data, err := io.ReadAll(res.Body)
		must(b, err)
		must(b, res.Body.Close())
		tool = append(tool, time.Since(start))
		if !bytes.Contains(data, []byte("kkk")) {
			b.Fatalf("%s", data)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(native), "native-us")
	b.ReportMetric(median(tool), "tool-us")
	b.ReportMetric(median(tool)/median(native), "ratio")
}
