package server_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/template"
)

// imageHouse is a registry with one image, behind a front.
func imageHouse(t *testing.T, front func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	t.Helper()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)))
	push := httptest.NewServer(inner)
	defer push.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(push.URL, "http://") + "/app:v1")
	must(t, err)
	img, err := random.Image(1<<20, 2)
	must(t, err)
	must(t, remote.Write(ref, img))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { front(w, r, inner) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/app:v1"
}

func imageWorld(t *testing.T) (*world, *client.Client) {
	t.Helper()
	store, err := template.Open(t.TempDir())
	must(t, err)
	w := newWorld(t, func(c *server.Config) { c.Templates = imageTemplates{store} })
	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(t, err)
	t.Cleanup(c.Close)
	return w, c
}

type imageTemplates struct{ *template.Store }

func TestPullTemplate_tellsHowItGoesAndKeepsNoPassword(t *testing.T) {
	w, c := imageWorld(t)
	ctx := context.Background()
	ref := imageHouse(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, pass, _ := r.BasicAuth(); user != "robot" || pass != "s3cret-word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="house"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	pull := func(p api.PullTemplate) (list []api.TemplateNews, err error) {
		for n, err := range c.PullTemplate(ctx, p) {
			if err != nil {
				return list, err
			}
			list = append(list, n)
		}
		return list, nil
	}
	if _, err := pull(api.PullTemplate{Reference: ref, Username: "robot", Password: "wrong-word"}); !errs.Is(err, errs.Denied) {
		t.Errorf("a wrong password: %v", err)
	}
	news, err := pull(api.PullTemplate{Reference: ref, Username: "robot", Password: "s3cret-word", Name: "mine"})
	must(t, err)
	layers := map[string]bool{}
	for _, n := range news {
		if n.Layer != "" && n.Done == n.Total {
			layers[n.Stage+n.Layer] = true
		}
	}
	last := news[len(news)-1]
	if len(layers) != 4 || last.Made == nil || last.Made.Name != "mine" || last.Made.Source.Reference != ref {
		t.Errorf("%d layers told of, last %+v", len(layers), last)
	}
	shown, err := c.Template(ctx, "mine")
	if err != nil || shown.Hash != last.Made.Hash {
		t.Errorf("%+v %v", shown, err)
	}
	if text := w.log.String(); strings.Contains(text, "-word") {
		t.Error("the log has a password")
	}
	var b bytes.Buffer
	must(t, c.ExportTemplate(ctx, "mine", &b))
	again, err := c.ImportTemplateFor(ctx, "", "", &b)
	if err != nil || again.Hash != shown.Hash || again.Name != "mine" {
		t.Errorf("%+v %v", again, err)
	}
	if err := c.ExportTemplate(ctx, "none", io.Discard); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	u, err := c.TemplateUsage(ctx)
	if err != nil || u.Trees != 1 || u.Blobs == 0 {
		t.Errorf("%+v %v", u, err)
	}
	if _, err := c.SweepTemplates(ctx, true); err != nil {
		t.Error(err)
	}
	// What changes templates needs the scope admin.
	secret, _ := w.key(t, "default", "read", "write")
	for _, path := range []string{"/v1/templates/pull", "/v1/templates/gc"} {
		w.call(t, secret, http.MethodPost, path, map[string]string{"reference": ref}, http.StatusForbidden, nil)
	}
}

func TestPullTemplate_aClientThatGoesAwayCancels(t *testing.T) {
	_, c := imageWorld(t)
	begun, over := make(chan struct{}, 10), make(chan struct{}, 10)
	ref := imageHouse(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			next.ServeHTTP(w, r)
			return
		}
		begun <- struct{}{}
		<-r.Context().Done() // nothing is sent until who asks is gone
		over <- struct{}{}
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-begun
		cancel()
	}()
	var err error
	for _, err = range c.PullTemplate(ctx, api.PullTemplate{Reference: ref}) {
		if err != nil {
			break
		}
	}
	if err == nil {
		t.Error("a cancelled pull ended well")
	}
	<-over
}
