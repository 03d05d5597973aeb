package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// This file measures calls of tools, at /mcp, beside the same calls of the API, in turns.

// tools calls tools of the server over streamable HTTP, as clients of the protocol do.
type tools struct{ http *http.Client }

// call calls a tool, which must work.
func (x tools) call(ctx context.Context, name string, args map[string]any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://skete/mcp", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	res, err := x.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && (!bytes.Contains(data, []byte(`"result"`)) || bytes.Contains(data, []byte(`"isError":true`))) {
		err = fmt.Errorf("%s: %s: %.500s", name, res.Status, data)
	}
	return err
}

func (b *bench) mcp(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	x := tools{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	}}}}
	if _, err := sb.Files().Write(b.ctx, "/workspace/f", bytes.Repeat([]byte("k"), 1000), client.WriteOptions{}); err != nil {
		return err
	}
	for _, m := range []struct {
		name         string
		native, tool func() error
	}{
		{
			"exec of true",
			func() error { return made(sb.RunCommand(b.ctx, api.RunCommand{Command: "true"})) },
			func() error {
				return x.call(b.ctx, "exec", map[string]any{"sandbox": sb.ID, "command": "true"})
			},
		},
		{
			"read of 1 kB",
			func() error { return made(sb.Files().Read(b.ctx, "/workspace/f", 1<<20)) },
			func() error {
				return x.call(b.ctx, "file_read", map[string]any{"sandbox": sb.ID, "path": "/workspace/f"})
			},
		},
	} {
		var native, tool []time.Duration
		for range b.count(200) {
			for _, one := range []struct {
				do   func() error
				into *[]time.Duration
			}{{m.native, &native}, {m.tool, &tool}} {
				d, err := timed(one.do)
				if err != nil {
					return err
				}
				*one.into = append(*one.into, d)
			}
		}
		a, c := b.Millis("API: "+m.name+", beside MCP", native, "", ""), b.Millis("MCP: "+m.name, tool, "", "over HTTP")
		b.Value("ratio: MCP / API, "+m.name, c/a, "x", "<= 1.25", "p50 / p50")
	}
	return nil
}
