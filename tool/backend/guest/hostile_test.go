package guest_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
)

// liar is a guest that was taken over.
type liar struct {
	wire.UnimplementedFileHandler
	wire.UnimplementedProcessHandler
	list   []*wire.Entry
	glob   []*wire.Entry
	grep   []*wire.GrepMatch
	read   []*wire.ReadResponse
	sha    string
	attach []*wire.AttachEvent
	info   *wire.ProcessInfo
}

func (l *liar) client(t *testing.T) *wire.Client {
	mux := http.NewServeMux()
	mux.Handle(wire.NewFileHandler(files{l}))
	mux.Handle(wire.NewProcessHandler(processes{l}))
	srv := httptest.NewServer(mux)
	c := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	})
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

type files struct{ *liar }

func (l files) List(context.Context, *connect.Request[wire.ListRequest]) (*connect.Response[wire.ListResponse], error) {
	return connect.NewResponse(&wire.ListResponse{Entries: l.list, NextPageToken: []byte("for ever")}), nil
}

func (l files) Stat(context.Context, *connect.Request[wire.StatRequest]) (*connect.Response[wire.StatResponse], error) {
	return connect.NewResponse(&wire.StatResponse{Sha256: l.sha}), nil
}

func (l files) Glob(_ context.Context, _ *connect.Request[wire.GlobRequest], st *connect.ServerStream[wire.GlobResponse]) error {
	for {
		if err := st.Send(&wire.GlobResponse{Entries: l.glob}); err != nil || len(l.glob) == 0 {
			return err
		}
	}
}

func (l files) Grep(_ context.Context, _ *connect.Request[wire.GrepRequest], st *connect.ServerStream[wire.GrepResponse]) error {
	for {
		if err := st.Send(&wire.GrepResponse{Matches: l.grep}); err != nil || len(l.grep) == 0 {
			return err
		}
	}
}

func (l files) Read(_ context.Context, _ *connect.Request[wire.ReadRequest], st *connect.ServerStream[wire.ReadResponse]) error {
	for {
		for _, m := range l.read {
			if err := st.Send(m); err != nil {
				return err
			}
		}
	}
}

func (l files) Write(_ context.Context, st *connect.ClientStream[wire.WriteRequest]) (*connect.Response[wire.WriteResponse], error) {
	for st.Receive() {
	}
	return connect.NewResponse(&wire.WriteResponse{Sha256: l.sha}), nil
}

type processes struct{ *liar }

func (l processes) Attach(_ context.Context, _ *connect.Request[wire.AttachRequest], st *connect.ServerStream[wire.AttachEvent]) error {
	for _, e := range l.attach {
		if err := st.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func (l processes) Get(context.Context, *connect.Request[wire.GetProcessRequest]) (*connect.Response[wire.GetProcessResponse], error) {
	return connect.NewResponse(&wire.GetProcessResponse{Process: l.info}), nil
}

func (l processes) List(context.Context, *connect.Request[wire.ListProcessesRequest]) (*connect.Response[wire.ListProcessesResponse], error) {
	return connect.NewResponse(&wire.ListProcessesResponse{Processes: []*wire.ProcessInfo{l.info}, NextPageToken: "for ever"}), nil
}

func entry(name, path string) *wire.Entry {
	return &wire.Entry{Name: []byte(name), Path: []byte(path), Type: wire.FileType_FILE_TYPE_REGULAR, Size: -5}
}

func TestHostile_namesThatAreNone(t *testing.T) {
	l := &liar{}
	for _, n := range []string{"", ".", "..", "a/b", "../x", "/etc", "a\x00", strings.Repeat("n", 300)} {
		l.list = append(l.list, entry(n, "/w/"+n))
	}
	for _, p := range []string{"", "/w", "/etc/passwd", "/w/../etc", "/w//a", "/w/a\x00", "/w/\xff", "w/a", "/wx/a", "/w/" + strings.Repeat("a/", 4000)} {
		l.glob = append(l.glob, entry("x", p))
		if p != "/w" { // that could be the one file that was searched
			l.grep = append(l.grep, &wire.GrepMatch{Path: []byte(p), Line: 1, Text: []byte("x")})
		}
	}
	l.list = append(l.list, entry("good", ""))
	l.glob = append(l.glob, entry("", "/w/good"))
	l.grep = append(l.grep, &wire.GrepMatch{Path: []byte("/w/good"), Line: 1 << 31, Text: []byte(strings.Repeat("\xff", 100_000))})
	f := guest.NewFiles(l.client(t))
	list, err := f.List(t.Context(), "/w")
	if err != nil || len(list) != tool.ListMax || list[0].Path != "/w/good" || list[0].Bytes != 0 || list[tool.ListMax-1].Path != "/w/good" {
		t.Errorf("list: %d, %v", len(list), err)
	}
	found, more, err := f.Glob(t.Context(), "/w", "*", 3) // the guest sends for ever
	if err != nil || !more || len(found) != 3 || found[0].Path != "/w/good" {
		t.Errorf("glob: %v, %v, %v", found, more, err)
	}
	lines, more, err := f.Grep(t.Context(), "/w", tool.Pattern{Text: "x"}, "*", 3)
	if err != nil || !more || len(lines) != 3 || lines[2].Path != "/w/good" || len(lines[0].Text) > 3*tool.LineBytesMax {
		t.Errorf("grep: %v, %v", more, err)
	}
}

func TestHostile_moreThanWasAskedFor(t *testing.T) {
	l := &liar{read: []*wire.ReadResponse{{Entry: &wire.Entry{Size: 1 << 60}, Data: make([]byte, 200<<10)}}}
	f := guest.NewFiles(l.client(t))
	if _, _, err := f.Read(t.Context(), "/f", 1<<20); !errs.Is(err, errs.Corrupt) {
		t.Errorf("read: %v", err)
	}
	if content, _, err := f.ReadAt(t.Context(), "/f", 0, 10); !errs.Is(err, errs.Corrupt) {
		t.Errorf("read at: %d, %v", len(content), err)
	}
}

func TestHostile_hashes(t *testing.T) {
	for _, sha := range []string{"", "absent", strings.Repeat("A", 64), strings.Repeat("0", 64), "x"} {
		l := &liar{sha: sha}
		f := guest.NewFiles(l.client(t))
		if hash, err := f.Write(t.Context(), "/f", []byte("content"), ""); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %s, %v", sha, hash, err)
		}
		if info, err := f.Stat(t.Context(), "/f"); err != nil || info.Hash != "" {
			t.Errorf("%s: %+v, %v", sha, info, err)
		}
	}
}

func output(offset int64, data string) *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Output{Output: &wire.Output{Stream: wire.Stream_STREAM_STDOUT, Offset: offset, Data: []byte(data)}}}
}

func gap(from, to int64) *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Gap{Gap: &wire.Gap{Stream: wire.Stream_STREAM_STDOUT, From: from, To: to}}}
}

var exited = &wire.AttachEvent{Event: &wire.AttachEvent_Exited{Exited: &wire.ProcessInfo{}}}

func TestOutput_offsetsHaveToMakeSense(t *testing.T) {
	for name, c := range map[string]struct {
		events []*wire.AttachEvent
		want   string
		class  errs.Class
	}{
		"good":         {[]*wire.AttachEvent{output(0, "ab"), gap(2, 5), output(5, "c"), exited}, "0:ab 5+3:c ", ""},
		"gap at end":   {[]*wire.AttachEvent{output(0, "ab"), gap(2, 5), exited}, "0:ab 5+3: ", ""},
		"two gaps":     {[]*wire.AttachEvent{gap(0, 2), gap(2, 5), output(5, "c"), exited}, "5+5:c ", ""},
		"jump":         {[]*wire.AttachEvent{output(0, "ab"), output(7, "c"), exited}, "0:ab ", errs.Corrupt},
		"back":         {[]*wire.AttachEvent{output(0, "ab"), output(0, "ab"), exited}, "0:ab ", errs.Corrupt},
		"negative":     {[]*wire.AttachEvent{output(-4, "ab"), exited}, "", errs.Corrupt},
		"gap backward": {[]*wire.AttachEvent{output(0, "ab"), gap(2, -5), exited}, "0:ab ", errs.Corrupt},
		"gap ahead":    {[]*wire.AttachEvent{gap(4, 5), exited}, "", errs.Corrupt},
		"never ends":   {[]*wire.AttachEvent{}, "", errs.Unavailable},
		"empty events": {[]*wire.AttachEvent{{}, output(0, ""), exited}, "", ""},
	} {
		l := &liar{attach: c.events, info: &wire.ProcessInfo{}}
		p, err := guest.NewCommands(l.client(t)).Find(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		err = p.Output(t.Context(), tool.Offsets{}, true, func(c tool.Chunk) error {
			got += strings.TrimSuffix(itoa(c.Offset)+"+"+itoa(c.Gap), "+0") + ":" + string(c.Data) + " "
			return nil
		})
		if got != c.want || errs.Of(err) != c.class {
			t.Errorf("%s: %q, %v (%s)", name, got, err, errs.Of(err))
		}
	}
}

func itoa(n int64) string {
	if n < 0 {
		return "negative"
	}
	return string(rune('0' + n))
}

func TestHostile_processes(t *testing.T) {
	l := &liar{info: &wire.ProcessInfo{
		Key: "k", Argv: [][]byte{nil}, State: 99, Exit: &wire.Exit{Code: -7, Signal: 4_000_000_000, Reason: strings.Repeat("x", 1<<20)},
		Stdout: &wire.Spool{Size: -1}, StartedUnixNs: -1 << 63,
	}}
	c := guest.NewCommands(l.client(t))
	list, err := c.List(t.Context(), "")
	if err != nil || len(list) > tool.ListMax || len(list) == 0 || list[0].Key != "k" || list[0].Ended.Written.Stdout != 0 || list[0].Ended.Signal != "" {
		t.Errorf("%d, %v", len(list), err)
	}
	if _, err := c.Start(t.Context(), "k", tool.Command{}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("start: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Find(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context is over: %v", err)
	}
}
