package client

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
)

func TestNew_refuses(t *testing.T) {
	for _, url := range []string{
		"localhost:7733", "ftp://host", "http://", "http://user:pw@host", "http://host/?q=1", "unix://relative.sock", "http://host/#f", "\x00",
	} {
		if _, err := New(Config{URL: url}); !errs.Is(err, errs.Invalid) {
			t.Errorf("New(%q) = %v", url, err)
		}
	}
}

// pipeClient talks to a handler over in-memory connections, so that a
// synctest bubble can hold it.
func pipeClient(t *testing.T, h http.Handler) *Client {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	hc := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			a, b := net.Pipe()
			select {
			case l.conns <- b:
				return a, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}}
	t.Cleanup(func() { _ = srv.Close() })
	c, err := New(Config{URL: "http://pipe", HTTPClient: hc})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func TestRetries(t *testing.T) {
	tests := []struct {
		name   string
		status int
		do     func(context.Context, *Client) error
		calls  int
	}{
		{"unavailable create", 503, func(ctx context.Context, c *Client) error {
			_, err := c.CreateSandbox(ctx, api.CreateSandbox{})
			return err
		}, attemptsMax},
		{"denied create", 403, func(ctx context.Context, c *Client) error {
			_, err := c.CreateSandbox(ctx, api.CreateSandbox{})
			return err
		}, 1},
		{"limit", 429, func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err }, 1},
		{"unavailable get", 502, func(ctx context.Context, c *Client) error { _, err := c.Info(ctx); return err }, attemptsMax},
		{"key creation is not repeated", 503, func(ctx context.Context, c *Client) error {
			_, err := c.CreateKey(ctx, api.CreateKey{Name: "x"})
			return err
		}, 1},
		{"append is not repeated", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Files().Write(ctx, "f", []byte("x"), WriteOptions{Append: true})
			return err
		}, 1},
		{"whole write is", 503, func(ctx context.Context, c *Client) error {
			_, err := c.Sandbox("s").Files().Write(ctx, "f", []byte("x"), WriteOptions{})
			return err
		}, attemptsMax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := map[string]bool{}
				calls := 0
				c := pipeClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls++
					_, _ = io.Copy(io.Discard, r.Body)
					keys[r.Header.Get("Idempotency-Key")] = true
					w.WriteHeader(tt.status)
				}))
				err := tt.do(t.Context(), c)
				if err == nil || errs.Of(err) != classOf(tt.status) {
					t.Errorf("error %v of class %s", err, errs.Of(err))
				}
				if calls != tt.calls || len(keys) != 1 {
					t.Errorf("%d calls with %d idempotency keys, want %d with one", calls, len(keys), tt.calls)
				}
			})
		})
	}
}

func TestUnixSocket_longPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "skete.sock")
	var l net.Listener
	if err := WithShortPath(path, func(p string) (err error) { l, err = net.Listen("unix", p); return err }); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Info{Version: "9"})
	})}
	go srv.Serve(l)
	defer srv.Close()
	c, err := New(Config{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	info, err := c.Info(t.Context())
	if err != nil || info.Version != "9" {
		t.Fatalf("Info = %+v, %v", info, err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	c, err := New(Config{Socket: filepath.Join(t.TempDir(), "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Sandbox("s").Stop(t.Context())
	if !errs.Is(err, errs.Unavailable) || !errors.Is(err, fs.ErrNotExist) || errs.Hint(err) == "" {
		t.Fatalf("got %v of class %s", err, errs.Of(err))
	}
}

func TestEvents_comeBackBehindTheLastOne(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		switch len(asked) {
		case 1:
			_, _ = io.WriteString(w, ": hello\n\nid: w:1\nevent: write\ndata: {\"seq\":1,\ndata: \"type\":\"write\"}\n\nid: w:2\ndata: {\"seq\":2}\n\nid: w:3\ndata: {\"se")
		case 2:
			_, _ = io.WriteString(w, "id: w:3\r\ndata: {\"seq\":3}\r\n\r\nevent: problem\ndata: {\"title\":\"gone\",\"status\":404,\"class\":\"not_found\"}\n\n")
		}
	}))
	defer srv.Close()
	c, _ := New(Config{URL: srv.URL})
	defer c.Close()
	var seqs []uint64
	var last error
	for ev, err := range c.Sandbox("s").Files().Watch(t.Context(), ".", true) {
		if err != nil {
			last = err
			continue
		}
		seqs = append(seqs, ev.Seq)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "w:2"}, asked); diff != "" {
		t.Error(diff)
	}
	if !errs.Is(last, errs.NotFound) {
		t.Errorf("ended with %v", last)
	}
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("id: 1\nevent: x\ndata: {}\n\n"))
	f.Add([]byte("data\n\n:c\n\ndata:a\r\ndata: b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newSSEReader(bytes.NewReader(in))
		for {
			ev, err := r.next()
			if err != nil {
				return
			}
			if len(ev.Data) > len(in) || strings.ContainsAny(ev.ID, "\n\x00") {
				t.Fatalf("%q", ev)
			}
		}
	})
}

type entry struct {
	typ        byte
	name, link string
	mode       int64
}

func tarOf(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.typ, Name: e.name, Linkname: e.link, Mode: e.mode}
		if e.typ == tar.TypeReg {
			h.Size = 3
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.typ == tar.TypeReg {
			_, _ = w.Write([]byte("abc"))
		}
	}
	_ = w.Close()
	return b.Bytes()
}

func TestUnpackTree_hostile(t *testing.T) {
	tests := []struct {
		name    string
		entries []entry
		fails   bool
		skipped int
	}{
		{"dot dot", []entry{{tar.TypeReg, "../evil", "", 0o644}}, true, 0},
		{"absolute", []entry{{tar.TypeReg, "/evil", "", 0o644}}, true, 0},
		{"dot dot inside", []entry{{tar.TypeReg, "a/../../evil", "", 0o644}}, true, 0},
		{"absolute link is left out", []entry{{tar.TypeSymlink, "l", "/etc/passwd", 0}}, false, 1},
		{"climbing link is left out", []entry{{tar.TypeSymlink, "a/l", "../../x", 0}}, false, 1},
		{"write through a link that leads out", []entry{{tar.TypeSymlink, "l", "..", 0}, {tar.TypeReg, "l/evil", "", 0o644}}, false, 1},
		{"hard link, device, fifo", []entry{{tar.TypeLink, "h", "/etc/passwd", 0}, {tar.TypeChar, "c", "", 0}, {tar.TypeFifo, "f", "", 0}}, false, 3},
		{"file in place of a link", []entry{{tar.TypeSymlink, "l", "x", 0}, {tar.TypeReg, "l", "", 0o644}}, false, 0},
		{"set-id bits", []entry{{tar.TypeReg, "s", "", 0o6755}}, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			stat, err := UnpackTree(bytes.NewReader(tarOf(t, tt.entries...)), dir)
			if (err != nil) != tt.fails || len(stat.Skipped) != tt.skipped {
				t.Errorf("err %v, skipped %q", err, stat.Skipped)
			}
			left, _ := os.ReadDir(outer)
			if len(left) != 1 {
				t.Errorf("something outside: %v", left)
			}
			_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				info, ierr := d.Info()
				if err != nil || ierr != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
					t.Errorf("%s: %v %v", p, info, errors.Join(err, ierr))
				}
				return nil
			})
		})
	}
}

// A sparse entry of 1.5 KB that says it holds a terabyte.
func TestUnpackTree_refusesWhatExplodes(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := make([]byte, 512)
	copy(body, "1\n1099511627776\n0\n")
	must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: int64(len(body)), Format: tar.FormatPAX,
		PAXRecords: map[string]string{
			"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.name": "f", "XXX.sparse.realsize": "1099511627776",
		}}))
	_, err := w.Write(body)
	must(t, errors.Join(err, w.Close()))
	hostile := bytes.ReplaceAll(b.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse")) // our writer refuses to make one
	dir := t.TempDir()
	if _, err := UnpackTree(bytes.NewReader(hostile), dir); !errs.Is(err, errs.Invalid) {
		t.Fatalf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func FuzzUnpackTree(f *testing.F) {
	f.Add(tarOf(f, entry{tar.TypeDir, "d/", "", 0o555}, entry{tar.TypeReg, "d/f", "", 0o600}, entry{tar.TypeSymlink, "l", "d", 0}))
	f.Fuzz(func(t *testing.T, in []byte) {
		outer := t.TempDir()
		_, _ = UnpackTree(bytes.NewReader(in), filepath.Join(outer, "in"))
		if left, _ := os.ReadDir(outer); len(left) != 1 {
			t.Fatalf("something outside: %v", left)
		}
	})
}

func TestTree_roundTrip(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "new")
	old := time.Unix(1_600_000_000, 0)
	must(t, os.MkdirAll(filepath.Join(src, "ro", "deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "ro", "deep", "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "bad\xffname"), []byte("x"), 0o600))
	must(t, os.Symlink("ro/deep", filepath.Join(src, "link")))
	must(t, os.Chtimes(filepath.Join(src, "bad\xffname"), old, old))
	var b bytes.Buffer
	must(t, PackTree(&b, src))
	stat, err := UnpackTree(&b, dst)
	must(t, err)
	if diff := cmp.Diff(TreeStat{Entries: 5, Bytes: 11}, stat); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(listing(t, src), listing(t, dst)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(filepath.Join(dst, "bad\xffname"))
	if err != nil || !info.ModTime().Equal(old) {
		t.Errorf("%v %v", info, err)
	}
}

func listing(t *testing.T, dir string) map[string]string {
	m := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			return err
		}
		m[rel] = info.Mode().String()
		if target, lerr := os.Readlink(p); lerr == nil {
			m[rel] += " -> " + target
		}
		return err
	}))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
