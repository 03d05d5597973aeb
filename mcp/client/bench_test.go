package client_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/tool"
)

// BenchmarkSource_call compares a call of a server in a machine (a guest that is a plain
// process) with the same call of the same program beside us, in turns: what is between is
// ours, and the guest's.
func BenchmarkSource_call(b *testing.B) {
	m := newMachine(b)
	s := source(b, client.Config{Servers: map[string]client.Server{"good": m.server("good")}})
	tools, _ := found(b, s, m.place)
	cmd := exec.Command(m.program)
	cmd.Env = []string{"TEST_MCP_SERVER=good"}
	direct, err := sdk.NewClient(&sdk.Implementation{Name: "bench"}, nil).Connect(b.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer direct.Close()
	var ours, own []time.Duration
	for b.Loop() {
		begun := time.Now()
		if _, err := s.Call(b.Context(), m.place, tools["mcp__good__look"], tool.Request{Args: []byte(`{}`)}); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if _, err := direct.CallTool(b.Context(), &sdk.CallToolParams{Name: "look"}); err != nil {
			b.Fatal(err)
		}
		ours, own = append(ours, between.Sub(begun)), append(own, time.Since(between))
	}
	p50 := func(ds []time.Duration) float64 {
		slices.Sort(ds)
		return float64(ds[len(ds)/2].Microseconds()) / 1000
	}
	b.ReportMetric(p50(ours), "p50-ms")
	b.ReportMetric(p50(own), "p50-own-ms")
	b.ReportMetric(p50(ours)-p50(own), "p50-added-ms")
}
