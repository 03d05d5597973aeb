package template_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/oci"
)

// house is a registry in this process, with a front that can misbehave.
type house struct {
	*httptest.Server
	inner http.Handler
	front atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
	mu    sync.Mutex
	asked map[string]int // requests by path
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{asked: map[string]int{}, inner: registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked[r.Method+" "+r.URL.Path]++
		h.mu.Unlock()
		if f := h.front.Load(); f != nil {
			(*f)(w, r, h.inner)
			return
		}
		h.inner.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *house) behave(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	h.front.Store(&f)
}
func (h *house) well()        { h.front.Store(nil) }
func (h *house) host() string { return strings.TrimPrefix(h.URL, "http://") }

// blobs counts requests for layers and configurations since the last call.
func (h *house) blobs() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for path, times := range h.asked {
		if strings.HasPrefix(path, "GET ") && strings.Contains(path, "/blobs/") {
			n += times
		}
	}
	h.asked = map[string]int{}
	return n
}

func (h *house) push(t testing.TB, ref string, img remote.Taggable) string {
	t.Helper()
	full := h.host() + "/" + ref
	r, err := name.ParseReference(full)
	must(t, err)
	switch img := img.(type) {
	case v1.Image:
		must(t, remote.Write(r, img))
	case v1.ImageIndex:
		must(t, remote.WriteIndex(r, img))
	}
	h.blobs()
	return full
}

// image makes an image of layers for a platform ("" = this machine's).
func image(t testing.TB, arch string, layers ...[]byte) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var err error
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, tarball.WithMediaType(types.OCILayer))
		must(t, err)
		img, err = mutate.AppendLayers(img, l)
		must(t, err)
	}
	c, err := img.ConfigFile()
	must(t, err)
	c = c.DeepCopy()
	p, err := oci.ParsePlatform("")
	must(t, err)
	if c.OS, c.Architecture = "linux", p.Architecture; arch != "" {
		c.Architecture = arch
	}
	c.Config = v1.Config{Env: []string{"PATH=/opt/bin:/bin", "COLOUR=blue"}, WorkingDir: "/srv", User: "app", Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}}
	img, err = mutate.ConfigFile(img, c)
	must(t, err)
	return img
}

// noise is a file that does not pack.
func noise(name string, size int) tar.Header {
	b := make([]byte, size)
	x := uint64(len(name)) + 88172645463325252
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return file(name, string(b), 0o644)
}

// pullOptions try again quickly.
var pullOptions = template.PullOptions{Backoff: time.Millisecond}

func quiet(template.Progress) {}

func pull(t testing.TB, s *template.Store, ref string) (template.Info, error) {
	t.Helper()
	return s.Pull(context.Background(), ref, pullOptions, quiet)
}

func TestPull_makesATemplate(t *testing.T) {
	h := newHouse(t)
	s, dir := open(t)
	ctx := context.Background()
	img := image(t, "",
		tarWith(file("a", "one", 0o644), file("gone", "x", 0o644), file("d/old", "x", 0o644)),
		tarWith(file("a", "two", 0o600), file(".wh.gone", "", 0), file("d/.wh..wh..opq", "", 0), tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "a"}))
	digest, err := img.Digest()
	must(t, err)
	ref := h.push(t, "team/app:v1", img)
	if _, err := pull(t, s, h.host()+"/team/App:v1"); !errs.Is(err, errs.Invalid) {
		t.Errorf("capitals: %v", err)
	}
	var mu sync.Mutex
	done := map[string]int64{}
	info, err := s.Pull(ctx, ref, pullOptions, func(p template.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Stage == "pull" && p.Layer != "" && p.Done == p.Total {
			done[p.Layer] = p.Done
		}
	})
	must(t, err)
	if len(done) != 2 {
		t.Errorf("progress told of %d whole layers: %v", len(done), done)
	}
	want := &template.Source{Reference: ref, Digest: digest.String(), Platform: info.Source.Platform, Config: oci.Config{
		Env: []string{"PATH=/opt/bin:/bin", "COLOUR=blue"}, WorkingDir: "/srv", User: "app", Entrypoint: []string{"/entry"}, Cmd: []string{"serve"},
	}}
	if diff := cmp.Diff(want, info.Source); diff != "" || info.Name != "app" {
		t.Errorf("%s %s", info.Name, diff)
	}
	root, err := s.Rootfs(ctx, "app")
	must(t, err)
	if root.Env["PATH"] != "/opt/bin:/bin" || root.Env["COLOUR"] != "blue" || root.Env["LANG"] == "" {
		t.Errorf("env %v", root.Env)
	}
	got := listing(t, root.Dir)
	for _, name := range []string{"gone", "d/old"} {
		if got[name] != "" {
			t.Errorf("%s is there: %s", name, got[name])
		}
	}
	if !strings.Contains(got["a"], "100600") || !strings.Contains(got["h"], "is a") {
		t.Errorf("%q %q", got["a"], got["h"])
	}
	// A second time nothing is fetched or unpacked again, by digest too.
	if h.blobs() == 0 {
		t.Error("no blobs were asked for")
	}
	again, err := s.Pull(ctx, h.host()+"/team/app@"+digest.String(), template.PullOptions{Name: "other", Backoff: 1}, quiet)
	must(t, err)
	if again.Hash != info.Hash || h.blobs() != 0 {
		t.Errorf("fetched again, or another tree: %s %s", again.Hash, info.Hash)
	}
	left(t, dir, 1)
}

func TestPull_choosesThePlatform(t *testing.T) {
	h := newHouse(t)
	s, _ := open(t)
	ctx := context.Background()
	index := mutate.IndexMediaType(empty.Index, "application/vnd.oci.image.index.v1+json")
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image(t, arch, tarWith(file(arch, "x", 0o644))),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	ref := h.push(t, "multi", index)
	for _, arch := range []string{"amd64", "arm64"} {
		o := template.PullOptions{Name: arch, Platform: "linux/" + arch, Backoff: 1}
		info, err := s.Pull(ctx, ref, o, quiet)
		must(t, err)
		root, err := s.Rootfs(ctx, arch)
		must(t, err)
		if _, err := os.Stat(filepath.Join(root.Dir, arch)); err != nil || info.Source.Platform != "linux/"+arch {
			t.Errorf("%s: %v, %s", arch, err, info.Source.Platform)
		}
	}
	_, err := s.Pull(ctx, ref, template.PullOptions{Platform: "linux/s390x", Backoff: 1}, quiet)
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "linux/arm64") {
		t.Errorf("%v %q", err, errs.Hint(err))
	}
	if _, err := s.Pull(ctx, ref, template.PullOptions{Platform: "odd", Backoff: 1}, quiet); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	if _, err := pull(t, s, h.push(t, "mips", image(t, "mips", tarWith(file("x", "", 0o644))))); !errs.Is(err, errs.Unsupported) {
		t.Error(err)
	}
}

// signIn is a front that wants a name and password.
func signIn(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if user, pass, _ := r.BasicAuth(); user != "robot" || pass != "s3cret-word" {
		w.Header().Set("WWW-Authenticate", `Basic realm="house"`)
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	next.ServeHTTP(w, r)
}

func TestPull_signsInAndKeepsNoPassword(t *testing.T) {
	h := newHouse(t)
	s, dir := open(t)
	ctx := context.Background()
	ref := h.push(t, "private", image(t, "", tarWith(file("a", "x", 0o644))))
	h.behave(signIn)
	if _, err := pull(t, s, ref); !errs.Is(err, errs.Denied) || errs.Hint(err) == "" {
		t.Errorf("nobody: %v", err)
	}
	_, err := s.Pull(ctx, ref, template.PullOptions{Auth: oci.NewAuth("robot", "wrong-word", "", "")}, quiet)
	if !errs.Is(err, errs.Denied) || strings.Contains(err.Error(), "wrong-word") {
		t.Errorf("a wrong password: %v", err)
	}
	auth := oci.NewAuth("robot", "s3cret-word", "", "")
	_, err = s.Pull(ctx, ref, template.PullOptions{Auth: auth}, quiet)
	must(t, err)
	if text := fmt.Sprintf("%v %+v %#v", auth, auth, auth); strings.Contains(text, "s3cret") {
		t.Errorf("shown: %s", text)
	}
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("s3cret-word")) {
			t.Errorf("%s has the password", path)
		}
		return err
	}))
}

func TestPull_goesOnAfterTrouble(t *testing.T) {
	h := newHouse(t)
	big := image(t, "", tarWith(noise("big", 3<<20)))
	for name, front := range map[string]func(n int64, w http.ResponseWriter, r *http.Request, next http.Handler){
		"500": func(n int64, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if n <= 3 {
				http.Error(w, "trouble", http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		},
		"429": func(n int64, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if n <= 2 {
				http.Error(w, "slowly", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		},
		"dropped": func(n int64, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				w = &dropper{ResponseWriter: w, left: 512 << 10}
			}
			next.ServeHTTP(w, r)
		},
		"no ranges": func(n int64, w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del("Range")
			if strings.Contains(r.URL.Path, "/blobs/") && n < 6 {
				w = &dropper{ResponseWriter: w, left: 512 << 10}
			}
			next.ServeHTTP(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			ref := h.push(t, "big", big)
			var n atomic.Int64
			h.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) { front(n.Add(1), w, r, next) })
			defer h.well()
			var mu sync.Mutex
			var remarks []string
			_, err := s.Pull(context.Background(), ref, pullOptions, func(p template.Progress) {
				mu.Lock()
				defer mu.Unlock()
				if p.Text != "" {
					remarks = append(remarks, p.Text)
				}
			})
			if err != nil {
				t.Fatalf("%v; %q", err, remarks)
			}
			if len(remarks) < 2 || !strings.Contains(remarks[0], "again in") {
				t.Errorf("retries are not told: %q", remarks)
			}
			left(t, dir, 1)
		})
	}
}

// dropper cuts the connection after some bytes.
type dropper struct {
	http.ResponseWriter
	left int
}

func (d *dropper) Write(b []byte) (int, error) {
	if len(b) > d.left {
		_, _ = d.ResponseWriter.Write(b[:d.left])
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	d.left -= len(b)
	return d.ResponseWriter.Write(b)
}

func TestPull_refusesWhatLies(t *testing.T) {
	h := newHouse(t)
	img := image(t, "", tarWith(noise("big", 1<<20)))
	ref := h.push(t, "app", img)
	digest, err := img.Digest()
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	layer, err := layers[0].Digest()
	must(t, err)
	replace := func(kind string, change func([]byte) []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, kind) {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			r.Header.Del("Range")
			next.ServeHTTP(rec, r)
			maps.Copy(w.Header(), rec.Header())
			data := change(rec.Body.Bytes())
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			w.WriteHeader(rec.Code)
			_, _ = w.Write(data)
		}
	}
	flip := func(b []byte) []byte {
		c := bytes.Clone(b)
		c[len(c)/2] ^= 1
		return c
	}
	for _, c := range []struct {
		name  string
		ref   string
		front func(http.ResponseWriter, *http.Request, http.Handler)
		want  errs.Class
		says  string
	}{
		{"a layer with other bytes", ref, replace("/blobs/"+layer.String(), flip), errs.Corrupt, layer.String()},
		{"a layer that is longer", ref, replace("/blobs/"+layer.String(), func(b []byte) []byte { return append(bytes.Clone(b), 'x') }), errs.Corrupt, layer.String()},
		{"a layer that is shorter", ref, replace("/blobs/"+layer.String(), func(b []byte) []byte { return b[:len(b)-1] }), errs.Unavailable, ""},
		{"a manifest with other bytes", h.host() + "/app@" + digest.String(), replace("/manifests/", func(b []byte) []byte { return append(bytes.Clone(b), ' ') }), errs.Corrupt, digest.String()},
		{"a manifest that is none", ref, replace("/manifests/", func([]byte) []byte { return []byte("<html>") }), errs.Invalid, ""},
		{"a manifest that is huge", ref, replace("/manifests/", func([]byte) []byte { return bytes.Repeat([]byte(" "), 5<<20) }), errs.Limit, ""},
		{"a manifest of other things", ref, replace("/manifests/", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("application/vnd.oci.image.config.v1+json"), []byte("application/vnd.cncf.helm.config.v1+json"))
		}), errs.Unsupported, ""},
		{"sizes that lie", ref, replace("/manifests/", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"size":`), []byte(`"size":9`))
		}), errs.Unavailable, ""},
		{"sizes beyond the bounds", ref, replace("/manifests/", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"size":`), []byte(`"size":99999999`))
		}), errs.Limit, ""},
		{"a missing layer", ref, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, layer.String()) {
				http.Error(w, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`, http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		}, errs.NotFound, layer.String()},
		{"no such image", h.host() + "/none:x", func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }, errs.NotFound, "none:x"},
		{"always 503", ref, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			http.Error(w, "down", http.StatusServiceUnavailable)
		}, errs.Unavailable, h.host()},
		{"a token server elsewhere", ref, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/token"`)
			http.Error(w, "no", http.StatusUnauthorized)
		}, errs.Unavailable, h.host()},
		{"redirects in a circle", ref, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		}, errs.Unavailable, h.host()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := open(t)
			h.behave(c.front)
			defer h.well()
			_, err := pull(t, s, c.ref)
			if got := errs.Of(err); got != c.want || !strings.Contains(errs.Public(err), c.says) {
				t.Errorf("%q, want %q that says %q (%v)", got, c.want, c.says, err)
			}
			if c.want == errs.Corrupt && !strings.Contains(errs.Public(err), h.host()) {
				t.Errorf("the registry is not named: %s", errs.Public(err))
			}
			left(t, dir, 0)
			// What it left does no harm to a pull from a registry that is well.
			if strings.HasPrefix(c.ref, ref) {
				h.well()
				if _, err := pull(t, s, ref); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			}
		})
	}
}

func TestPull_registryThatIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	host := l.Addr().String()
	must(t, l.Close())
	s, _ := open(t)
	if _, err := pull(t, s, host+"/x"); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), host) {
		t.Errorf("%v", err)
	}
}

func TestPull_twoShareTheWorkAndAClientThatGoesCancels(t *testing.T) {
	h := newHouse(t)
	s, dir := open(t)
	ref := h.push(t, "shared", image(t, "", tarWith(noise("a", 1<<20)), tarWith(noise("bb", 1<<20))))
	// The first waits at the registry's gate until the second is there too.
	gate := make(chan struct{})
	h.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			select {
			case <-gate:
			case <-r.Context().Done():
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	gone, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		_, err := s.Pull(gone, ref, pullOptions, quiet)
		first <- err
	}()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			other, err := template.Open(dir)
			if err == nil {
				_, err = other.Pull(context.Background(), ref, template.PullOptions{Name: fmt.Sprint("n", i), Backoff: 1}, quiet)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	if err := <-first; !isCanceled(err) {
		t.Errorf("the cancelled one: %v", err)
	}
	close(gate)
	wg.Wait()
	// Three blobs; one of them may have been begun by the one who left.
	if n := h.blobs(); n < 3 || n > 6 {
		t.Errorf("%d requests for 3 blobs of 4 pulls", n)
	}
	left(t, dir, 1)
}

func isCanceled(err error) bool { return err != nil && strings.Contains(err.Error(), "canceled") }

// pullEnv makes the test binary a program that pulls, to be killed in the middle.
const pullEnv = "SKETE_TEMPLATE_PULL"

func pullAndDie() {
	s, err := template.Open(os.Getenv(importEnv))
	if err == nil {
		_, err = s.Pull(context.Background(), os.Getenv(pullEnv), pullOptions, quiet)
	}
	fmt.Println(err)
}

func TestPull_killedInTheMiddleGoesOn(t *testing.T) {
	h := newHouse(t)
	_, dir := open(t)
	const size = 8 << 20
	ref := h.push(t, "big", image(t, "", tarWith(noise("big", size))))
	stopped := make(chan struct{})
	var once sync.Once
	var asked atomic.Pointer[string]
	h.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			w = &holder{ResponseWriter: w, left: size / 2, until: r.Context(), reached: func() { once.Do(func() { close(stopped) }) }}
		}
		next.ServeHTTP(w, r)
	})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), importEnv+"="+dir, pullEnv+"="+ref)
	must(t, cmd.Start())
	<-stopped
	partial := func() (n int64) {
		entries, err := os.ReadDir(filepath.Join(dir, "blobs/partial"))
		must(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for deadline := time.Now().Add(patience.Of(20 * time.Second)); partial() < size/4; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d bytes came", partial())
		}
		runtime.Gosched()
	}
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	had := partial()
	h.behave(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if v := r.Header.Get("Range"); v != "" {
			asked.Store(&v)
		}
		next.ServeHTTP(w, r)
	})
	s, err := template.Open(dir)
	must(t, err)
	_, err = pull(t, s, ref)
	must(t, err)
	if want := fmt.Sprintf("bytes=%d-", had); asked.Load() == nil || !strings.HasPrefix(*asked.Load(), want) {
		t.Errorf("asked for %v, want %s…", asked.Load(), want)
	}
	left(t, dir, 1)
}

// holder stops in the middle until the client is gone.
type holder struct {
	http.ResponseWriter
	left    int
	until   context.Context
	reached func()
}

func (d *holder) Write(b []byte) (int, error) {
	if len(b) > d.left {
		n, err := d.ResponseWriter.Write(b[:d.left])
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		d.reached()
		<-d.until.Done()
		return n, err
	}
	d.left -= len(b)
	return d.ResponseWriter.Write(b)
}
