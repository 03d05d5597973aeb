package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

func testExec(s *suite) {
	_, g := s.create(s.boot())
	for _, c := range []struct {
		line string
		want Result
	}{
		{"true", Result{}},
		{"exit 3", Result{Code: 3}},
		{"exit 255", Result{Code: 255}},
		{"kill -9 $$", Result{Code: 137}},
		{"kill -TERM $$", Result{Code: 143}},
		{"echo out; echo err >&2; exit 1", Result{Stdout: "out\n", Stderr: "err\n", Code: 1}},
		{"echo $COLOUR", Result{Stdout: "green\n"}},
		{"printf 'a\\000b\\377'", Result{Stdout: "a\x00b\xff"}},
		{"cat", Result{}}, // no stdin
		{"/no/such/program", Result{Code: 127}},
	} {
		got := g.Shell(c.line)
		if c.want.Code == 127 {
			got.Stderr = ""
		}
		if got != c.want {
			s.Errorf("%q: %+v, want %+v", c.line, got, c.want)
		}
	}
	if _, err := g.Exec(s.Context(), Start("no-such-program-at-all")); !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Invalid) {
		s.Errorf("a program that is not there: %v", err)
	}
	r := Start("true")
	r.User = "root"
	if _, err := g.Exec(s.Context(), r); s.p.Capabilities().Isolation != sandbox.None && !errs.Is(err, errs.Denied) {
		s.Errorf("root that was not granted: %v", err)
	}
	big := g.Shell("head -c 20000000 /dev/zero | tr '\\0' x")
	if len(big.Stdout) != 20_000_000 && big.Code == 0 && len(big.Stdout) < 1<<20 {
		s.Errorf("20 MB of output: %d bytes came", len(big.Stdout))
	}
}

func testStdin(s *suite) {
	_, g := s.create(s.boot())
	data := make([]byte, 5<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	r := Start("/bin/sh", "-c", "cat > copy; sha256sum < copy")
	r.Key, r.Stdin = "copy", true
	if _, err := g.Process.Start(s.Context(), connect.NewRequest(r)); err != nil {
		s.Fatal(err)
	}
	for sent := 0; sent < len(data); {
		end := min(sent+1<<20, len(data))
		res, err := g.Process.Input(s.Context(), connect.NewRequest(&wire.InputRequest{
			Key: "copy", Offset: int64(sent), Data: data[sent:end], Eof: end == len(data),
		}))
		if err != nil {
			s.Fatal(wire.Err(err))
		}
		if res.Msg.Acked <= int64(sent) && end != len(data) {
			s.Fatalf("acked %d of %d", res.Msg.Acked, end)
		}
		sent = int(res.Msg.Acked)
	}
	got, err := g.AttachAll(s.Context(), "copy")
	must(s, err)
	sum := sha256.Sum256(data)
	if want := hex.EncodeToString(sum[:]); !strings.HasPrefix(got.Stdout, want) || got.Code != 0 {
		s.Errorf("hash of what arrived: %+v, want %s", got, want)
	}
}

func testTerminal(s *suite) {
	_, g := s.create(s.boot())
	r := Start("/bin/sh", "-c", "test -t 0 && test -t 1 && echo terminal; stty size; read -r x; stty size; exit 6")
	r.Key, r.Pty = "tty", &wire.PtySize{Cols: 81, Rows: 25}
	if _, err := g.Process.Start(s.Context(), connect.NewRequest(r)); err != nil {
		s.Fatal(wire.Err(err))
	}
	if _, err := g.Process.Resize(s.Context(), connect.NewRequest(&wire.ResizeRequest{Key: "tty", Size: &wire.PtySize{Cols: 100, Rows: 30}})); err != nil {
		s.Fatal(wire.Err(err))
	}
	if _, err := g.Process.Input(s.Context(), connect.NewRequest(&wire.InputRequest{Key: "tty", Data: []byte("go\n")})); err != nil {
		s.Fatal(wire.Err(err))
	}
	got, err := g.AttachAll(s.Context(), "tty")
	must(s, err)
	if !strings.Contains(got.Stdout, "terminal") || !strings.Contains(got.Stdout, "30 100") || got.Code != 6 {
		s.Errorf("%+v", got)
	}
}

func testFiles(s *suite) {
	b := s.boot()
	_, g := s.create(b)
	ctx := s.Context()
	write := func(path, data, expect string) (*wire.WriteResponse, error) {
		stream := g.File.Write(ctx)
		_ = stream.Send(&wire.WriteRequest{
			Header: &wire.WriteRequest_Header{Path: []byte(path), MakeParents: true, ExpectSha256: expect}, Data: []byte(data),
		})
		res, err := stream.CloseAndReceive()
		if err != nil {
			return nil, wire.Err(err)
		}
		return res.Msg, nil
	}
	first, err := write("dir/file", "one", "absent")
	must(s, err)
	if _, err := write("dir/file", "two", "absent"); !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists) {
		s.Errorf("create over an existing file: %v", err)
	}
	if _, err := write("dir/file", "two", first.Sha256); err != nil {
		s.Errorf("compare-and-swap: %v", err)
	}
	if _, err := write("dir/file", "three", first.Sha256); !errs.Is(err, errs.Conflict) {
		s.Errorf("compare-and-swap with an old hash: %v", err)
	}
	if got := s.read(g, "dir/file"); got != "two" {
		s.Errorf("read %q", got)
	}
	if s.p.Capabilities().HostWorkspace {
		if data, err := os.ReadFile(filepath.Join(b.Workspace, "dir/file")); err != nil || string(data) != "two" {
			s.Errorf("the host sees %q, %v", data, err)
		}
		must(s, os.WriteFile(filepath.Join(b.Workspace, "from-host"), []byte("hi"), 0o644))
		if got := s.read(g, "from-host"); got != "hi" {
			s.Errorf("from the host: %q", got)
		}
	}
	list, err := g.File.List(ctx, connect.NewRequest(&wire.ListRequest{Path: []byte("dir")}))
	must(s, err)
	if len(list.Msg.Entries) != 1 || string(list.Msg.Entries[0].Name) != "file" || list.Msg.Entries[0].Size != 3 {
		s.Errorf("list: %v", list.Msg.Entries)
	}
	if res := g.Shell("test -O dir/file && cat dir/file"); res.Stdout != "two" || res.Code != 0 {
		s.Errorf("the command sees %+v", res)
	}
}

func (s *suite) read(g Guest, path string) string {
	s.Helper()
	stream, err := g.File.Read(s.Context(), connect.NewRequest(&wire.ReadRequest{Path: []byte(path)}))
	must(s, err)
	defer stream.Close()
	var got bytes.Buffer
	for stream.Receive() {
		got.Write(stream.Msg().Data)
	}
	must(s, stream.Err())
	return got.String()
}

// testPorts reaches a server that listens on the machine's loopback only.
func testPorts(s *suite) {
	b := s.boot()
	tool := s.tool(b)
	_, g := s.create(b)
	const port = "18237"
	g.Background("server", tool, "listen", port)
	ctx, cancel := patience.Context(s.Context(), 30*time.Second)
	defer cancel()
	Eventually(s, "the server inside to listen", func() bool {
		conn, err := g.DialTCP(ctx, 18237)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "and back")
		want := "hello\nand back"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			s.Fatalf("the stream gave %q, %v", got, err)
		}
		return true
	})
	if _, err := g.DialTCP(ctx, 18238); err == nil {
		s.Error("a port that nobody listens on was opened")
	}
	for _, bad := range []uint32{0, 1 << 16, 1 << 20} {
		if _, err := g.DialTCP(ctx, bad); !errs.Is(err, errs.Invalid) {
			s.Errorf("port %d: %v", bad, err)
		}
	}
	// The control port is no TCP port: nothing inside can name it.
	if s.p.Capabilities().HidesHostNetwork {
		for _, socket := range []string{wire.HostSocket, channel.AcceptPath(wire.HostSocket)} {
			if res := g.Run(tool, "dial", "unix", socket); res.Code == 0 || !strings.Contains(res.Stderr, "permission denied") {
				s.Errorf("the host's socket %s from inside: %+v", socket, res)
			}
		}
	}
}
