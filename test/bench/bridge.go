package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/server/envd/protocol"
)

// This file measures calls of a bridge beside the same calls of the API, in turns.

// bridgeStreamMB is how many MiB a command writes for the rate of a stream.
const bridgeStreamMB = 256

// bridged is a sandbox as a client of another API has it; the token is of E2B's.
type bridged struct {
	id, token string
	base      string
	http      *http.Client
	process   protocol.ProcessClient
}

// RoundTrip implements http.RoundTripper: it adds what says for which sandbox a request is.
func (x *bridged) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range map[string]string{"E2b-Sandbox-Id": x.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": x.token} {
		r.Header.Set(name, value)
	}
	return x.http.Transport.RoundTrip(r)
}

const bridgeBase = "http://skete/e2b"

// newBridged makes a sandbox by the bridge.
func (s *server) newBridged(ctx context.Context) (*bridged, error) { return s.bridgedOf(ctx, "base") }

func (s *server) bridgedOf(ctx context.Context, template string) (*bridged, error) {
	x := &bridged{http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	}}}, base: bridgeBase}
	res, err := x.send(ctx, x.http, http.MethodPost, "/v2/sandboxes", "application/json", []byte(`{"templateID":"`+template+`","timeout":600}`))
	if err != nil {
		return nil, err
	}
	var made struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal(res, &made); err != nil {
		return nil, err
	}
	x.id, x.token = made.SandboxID, made.EnvdAccessToken
	x.process = protocol.NewProcessClient(&http.Client{Transport: x}, bridgeBase, connect.WithProtoJSON()) // as SDKs speak
	return x, nil
}

func (x *bridged) send(ctx context.Context, c *http.Client, method, path, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, x.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, data)
	}
	return data, err
}

// run runs a command and returns how many bytes it wrote.
func (x *bridged) run(ctx context.Context, argv ...string) (n int64, err error) {
	st, err := x.process.Start(ctx, connect.NewRequest(&protocol.StartRequest{Process: &protocol.ProcessConfig{Cmd: argv[0], Args: argv[1:]}}))
	if err != nil {
		return 0, err
	}
	defer st.Close()
	ended := false
	for st.Receive() {
		ev := st.Msg().GetEvent()
		n += int64(len(ev.GetData().GetStdout()))
		ended = ended || ev.GetEnd() != nil
	}
	if st.Err() == nil && !ended {
		return n, errors.New("the stream ended before the command")
	}
	return n, st.Err()
}

func (b *bench) bridge(s *server) error {
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	x, err := s.newBridged(b.ctx)
	if err != nil {
		return err
	}
	sandbox := &http.Client{Transport: x}
	path := "/files?path=" + url.QueryEscape("/workspace/f")
	kilobyte := bytes.Repeat([]byte("k"), 1000)
	err = b.inTurns("API", "bridge", "by E2B's protocol, in JSON", []calls{
		{
			"create", 20,
			func() error { return made(s.sandbox(b.ctx)) },
			func() error { return made(s.newBridged(b.ctx)) },
		},
		{
			"exec of /bin/true", 200,
			func() error { return sb.Command("/bin/true").Run(b.ctx) },
			func() error { return made(x.run(b.ctx, "/bin/true")) },
		},
		{
			"write of 1 kB", 200,
			func() error { return made(sb.Files().Write(b.ctx, "/workspace/f", kilobyte, client.WriteOptions{})) },
			func() error {
				return made(x.send(b.ctx, sandbox, http.MethodPost, path, "application/octet-stream", kilobyte))
			},
		},
		{
			"read of 1 kB", 200,
			func() error { return made(sb.Files().Read(b.ctx, "/workspace/f", 1<<20)) },
			func() error { return made(x.send(b.ctx, sandbox, http.MethodGet, path, "", nil)) },
		},
	})
	if err != nil {
		return err
	}
	var rates []float64
	for range 3 {
		var n int
		d, err := timed(func() (err error) {
			n, err = x.stream(b.ctx, fmt.Sprintf("exec dd if=/dev/zero bs=256k count=%d status=none", bridgeStreamMB*4)) // as for the API
			return err
		})
		if err == nil && n < bridgeStreamMB<<20 {
			err = fmt.Errorf("the stream had %d bytes", n)
		}
		if err != nil {
			return err
		}
		rates = append(rates, float64(n)/1e6/d.Seconds())
	}
	b.Value("bridge: stdout", slices.Max(rates), "MB/s", ">= 150", "in JSON, read and not decoded; the best of three")
	return b.vercel(s, sb)
}

// calls are one of the API and the same of a bridge.
type calls struct {
	name           string
	n              int
	native, bridge func() error
}

// inTurns measures calls of a bridge and of the API in turns.
func (b *bench) inTurns(native, bridge, note string, all []calls) error {
	for _, m := range all {
		var ours, theirs []time.Duration
		for range b.count(m.n) {
			for _, one := range []struct {
				do   func() error
				into *[]time.Duration
			}{{m.native, &ours}, {m.bridge, &theirs}} {
				d, err := timed(one.do)
				if err != nil {
					return err
				}
				*one.into = append(*one.into, d)
			}
		}
		a, c := b.Millis(native+": "+m.name, ours, "", ""), b.Millis(bridge+": "+m.name, theirs, "", note)
		b.Value("ratio: "+bridge+" / API, "+m.name, c/a, "x", "<= 1.25", "p50 / p50")
	}
	return nil
}

// vercel measures the bridge for Vercel's SDK: what its client sends for a call.
func (b *bench) vercel(s *server, sb *client.Sandbox) error {
	x := &bridged{http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	}}}, base: "http://skete/vercel"}
	post := func(path, body string) ([]byte, error) {
		return x.send(b.ctx, x.http, http.MethodPost, path, "application/json", []byte(body))
	}
	var id string
	create := func() error {
		answer, err := post("/v3/sandboxes", `{"persistent":false}`)
		_, rest, ok := bytes.Cut(answer, []byte(`"currentSessionId":"`))
		name, _, _ := bytes.Cut(rest, []byte(`"`))
		if err == nil && !ok {
			err = fmt.Errorf("the answer names no session: %s", answer)
		}
		id = string(name)
		return err
	}
	kilobyte := bytes.Repeat([]byte("k"), 1000)
	packed, err := archive("f", kilobyte)
	if err != nil {
		return err
	}
	session := func(path string) string { return "/v2/sandboxes/sessions/" + id + path }
	return b.inTurns("API beside Vercel's bridge", "Vercel's bridge", "by Vercel's protocol", []calls{
		{"create", 20, func() error { return made(s.sandbox(b.ctx)) }, create},
		{
			"exec of /bin/true", 200,
			func() error { return sb.Command("/bin/true").Run(b.ctx) },
			func() error { return made(post(session("/cmd"), `{"command":"/bin/true","wait":true,"logs":true}`)) },
		},
		{
			"write of 1 kB", 200,
			func() error { return made(sb.Files().Write(b.ctx, "/workspace/f", kilobyte, client.WriteOptions{})) },
			func() error {
				return made(x.send(b.ctx, x.http, http.MethodPost, session("/fs/write"), "application/gzip", packed))
			},
		},
		{
			"read of 1 kB", 200,
			func() error { return made(sb.Files().Read(b.ctx, "/workspace/f", 1<<20)) },
			func() error { return made(post(session("/fs/read"), `{"path":"f"}`)) },
		},
	})
}

// archive is a tar in gzip with one file.
func archive(name string, content []byte) ([]byte, error) {
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	t := tar.NewWriter(z)
	err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = t.Write(content)
	}
	err = errors.Join(err, t.Close(), z.Close())
	return to.Bytes(), err
}

// stream runs a command line and returns how many bytes of output came: of each piece
// of base64 three quarters. A client that decodes measures itself.
func (x *bridged) stream(ctx context.Context, line string) (n int, err error) {
	body, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", line}}})
	if err != nil {
		return 0, err
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, bridgeBase+protocol.ProcessStartProcedure, bytes.NewReader(append(framed, body...)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	res, err := (&http.Client{Transport: x}).Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for from := bufio.NewReaderSize(res.Body, 256<<10); ; {
		var head [5]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return n, err
		}
		size := int(binary.BigEndian.Uint32(head[1:]))
		if head[0]&2 != 0 { // the end
			return n, nil
		}
		if _, err := from.Discard(size); err != nil {
			return n, err
		}
		n += max(0, size-len(`{"event":{"data":{"stdout":""}}}`)) * 3 / 4
	}
}

// made is whether something could be done.
func made[T any](_ T, err error) error { return err }
