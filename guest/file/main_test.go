package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sandbox user of these tests. Without root, calls act as the user
// that runs the tests.
const uid, gid = 1000, 1000

func isRoot() bool { return os.Geteuid() == 0 }

func needRoot(t testing.TB) {
	t.Helper()
	if !isRoot() {
		t.Skip("needs root: only root can act as another user")
	}
}

// guest is a file service behind a real connection.
type guest struct {
	t    testing.TB
	c    wire.FileClient
	svc  *file.Service
	home string
	work string
}

// newGuest makes a home and a working directory that belong to the user.
func newGuest(t testing.TB, change ...func(*file.Config)) *guest {
	t.Helper()
	top := tempDir(t)
	g := &guest{t: t, home: filepath.Join(top, "home"), work: filepath.Join(top, "work")}
	for _, dir := range []string{g.home, g.work} {
		must(t, os.Mkdir(dir, 0o755))
		g.own(dir)
	}
	cfg := file.Config{User: "user", UID: uid, GID: gid, Home: g.home, Workdir: g.work}
	for _, c := range change {
		c(&cfg)
	}
	svc, err := file.New(cfg)
	must(t, err)
	g.svc = svc
	g.serve(top, svc)
	return g
}

func (g *guest) serve(dir string, svc *file.Service) {
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(g.t, err)
	mux := http.NewServeMux()
	mux.Handle(wire.NewFileHandler(svc, connect.WithReadMaxBytes(wire.MessageBytesMax)))
	srv := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	c := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", ln.Addr().String())
	})
	g.c = c.File
	g.t.Cleanup(func() {
		c.Close()
		ctx, cancel := patience.Context(context.Background(), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-served
		_ = svc.Close()
	})
}

// tempDir is like t.TempDir, but others may pass through it.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "file") //nolint:usetesting // the sandbox user must get there
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (g *guest) own(name string) {
	if isRoot() {
		must(g.t, os.Lchown(name, uid, gid))
	}
}

// put writes a file of the user's directly.
func (g *guest) put(name, content string) string {
	g.t.Helper()
	full := filepath.Join(g.work, name)
	g.mkdir(filepath.Dir(name))
	must(g.t, os.WriteFile(full, []byte(content), 0o644))
	g.own(full)
	return full
}

func (g *guest) mkdir(name string) {
	g.t.Helper()
	at := g.work
	for _, part := range splitPath(name) {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err == nil {
			g.own(at)
		} else if !errors.Is(err, os.ErrExist) {
			g.t.Fatal(err)
		}
	}
}

func splitPath(name string) []string {
	var parts []string
	for p := range bytes.SplitSeq([]byte(filepath.Clean(name)), []byte("/")) {
		if len(p) > 0 && string(p) != "." {
			parts = append(parts, string(p))
		}
	}
	return parts
}

func (g *guest) content(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.work, name))
	must(g.t, err)
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantClass checks who is to act on an error; "" wants none.
func wantClass(t testing.TB, err error, want errs.Class) {
	t.Helper()
	if got := errs.Of(wire.Err(err)); got != want {
		t.Fatalf("class %q, want %q (error: %v)", got, want, err)
	}
}

// --- short forms of the calls

func call[Req, Res any](do func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), m *Req) (*Res, error) {
	res, err := do(context.Background(), connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (g *guest) stat(m *wire.StatRequest) (*wire.StatResponse, error) { return call(g.c.Stat, m) }

func (g *guest) list(m *wire.ListRequest) (*wire.ListResponse, error) { return call(g.c.List, m) }

func (g *guest) read(m *wire.ReadRequest) ([]byte, *wire.Entry, error) {
	in, err := g.c.Read(context.Background(), connect.NewRequest(m))
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	var data []byte
	var entry *wire.Entry
	for in.Receive() {
		if e := in.Msg().Entry; e != nil {
			entry = e
		}
		data = append(data, in.Msg().Data...)
	}
	return data, entry, in.Err()
}

func (g *guest) readFile(name string) (string, error) {
	b, _, err := g.read(&wire.ReadRequest{Path: []byte(name)})
	return string(b), err
}

func (g *guest) write(h *wire.WriteRequest_Header, chunks ...string) (*wire.WriteResponse, error) {
	out := g.c.Write(context.Background())
	err := out.Send(&wire.WriteRequest{Header: h})
	for _, c := range chunks {
		if err == nil {
			err = out.Send(&wire.WriteRequest{Data: []byte(c)})
		}
	}
	// An early answer of the server shows as EOF here; CloseAndReceive has it.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	res, err := out.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (g *guest) writeFile(name, content string) error {
	_, err := g.write(&wire.WriteRequest_Header{Path: []byte(name)}, content)
	return err
}

func (g *guest) remove(name string, recursive bool) (*wire.RemoveResponse, error) {
	return call(g.c.Remove, &wire.RemoveRequest{Path: []byte(name), Recursive: recursive})
}

func (g *guest) move(from, to string, overwrite bool) (*wire.MoveResponse, error) {
	return call(g.c.Move, &wire.MoveRequest{Source: []byte(from), Destination: []byte(to), Overwrite: overwrite})
}

func (g *guest) copy(from, to string, overwrite bool) (*wire.CopyResponse, error) {
	return call(g.c.Copy, &wire.CopyRequest{Source: []byte(from), Destination: []byte(to), Overwrite: overwrite})
}

func (g *guest) upload(h *wire.UploadRequest_Header, archive []byte) (*wire.UploadResponse, error) {
	out := g.c.Upload(context.Background())
	err := out.Send(&wire.UploadRequest{Header: h})
	for len(archive) > 0 && err == nil {
		n := min(len(archive), 100_000)
		err = out.Send(&wire.UploadRequest{Data: archive[:n]})
		archive = archive[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	res, err := out.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (g *guest) download(name string) ([]byte, error) {
	in, err := g.c.Download(context.Background(), connect.NewRequest(&wire.DownloadRequest{Path: []byte(name)}))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var data []byte
	for in.Receive() {
		data = append(data, in.Msg().Data...)
	}
	return data, in.Err()
}

func (g *guest) glob(m *wire.GlobRequest) (paths []string, truncated bool, err error) {
	in, err := g.c.Glob(context.Background(), connect.NewRequest(m))
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	for in.Receive() {
		for _, e := range in.Msg().Entries {
			rel, _ := filepath.Rel(g.work, string(e.Path))
			paths = append(paths, rel)
		}
		truncated = truncated || in.Msg().Truncated
	}
	return paths, truncated, in.Err()
}

func (g *guest) grep(m *wire.GrepRequest) (matches []*wire.GrepMatch, last *wire.GrepResponse, err error) {
	in, err := g.c.Grep(context.Background(), connect.NewRequest(m))
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	for in.Receive() {
		last = in.Msg()
		matches = append(matches, last.Matches...)
	}
	return matches, last, in.Err()
}
