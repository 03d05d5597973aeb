package server_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/template"
)

// makers makes nothing, and tells as if.
type makers struct {
	built server.BuildRequest
	sent  string
	left  chan struct{} // closed when a make of "go" was left by its client
}

func (*makers) Ready() []string { return []string{"debian", "go", "ruby"} }

func (m *makers) Prepare(ctx context.Context, name string, say func(string)) (template.Info, error) {
	switch name {
	case "ruby":
		return template.Info{}, errs.New(errs.Unavailable, "the mirror does not answer").WithHint("a network?")
	case "go":
		say("began")
		<-ctx.Done()
		close(m.left)
		return template.Info{}, ctx.Err()
	}
	say("one\ntwo")
	return template.Info{Name: name, Kind: "import", Hash: "00", Bytes: 7}, nil
}

func (m *makers) Build(_ context.Context, b server.BuildRequest, tell func(api.TemplateNews)) (template.Info, error) {
	data, err := io.ReadAll(b.Context)
	m.built, m.sent = b, string(data)
	m.built.Context = nil
	if err != nil {
		return template.Info{}, err
	}
	tell(api.TemplateNews{Kind: api.NewsStep, Template: b.Name, Step: 1, Steps: 1, Text: "x"})
	for range 10_000 { // more than may wait: it must not stand still, and the end must come
		tell(api.TemplateNews{Kind: api.NewsOutput, Template: b.Name, Text: strings.Repeat("o", 100)})
	}
	if b.Name == "fails" {
		return template.Info{}, errs.New(errs.Invalid, "r.yaml:1:1: x: exit status 1").WithHint("mend it")
	}
	return template.Info{Name: b.Name, Kind: "import", Hash: "00"}, nil
}

func news(t *testing.T, c *client.Client, p api.PrepareTemplates) (all []api.TemplateNews, err error) {
	t.Helper()
	for n, err := range c.PrepareTemplates(t.Context(), p) {
		if err != nil {
			return all, err
		}
		all = append(all, n)
	}
	return all, nil
}

func makersWorld(t *testing.T) (*makers, *client.Client, *world) {
	t.Helper()
	m := &makers{left: make(chan struct{})}
	w := newWorld(t, func(c *serverConfig) { c.Makers = m })
	c, err := client.New(client.Config{Socket: w.socket})
	must(t, err)
	t.Cleanup(c.Close)
	return m, c, w
}

func TestPrepare_tellsHowItGoes(t *testing.T) {
	_, c, w := makersWorld(t)
	all, err := news(t, c, api.PrepareTemplates{Names: []string{"debian", "debian"}})
	must(t, err)
	want := []api.TemplateNews{
		{Kind: api.NewsProgress, Template: "debian", Text: "one\ntwo"},
		{Kind: api.NewsDone, Template: "debian", Made: &api.Template{Name: "debian", Kind: "import", Hash: "00", Bytes: 7, Languages: []string{}}},
	}
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
	// For a sandbox that takes the host's programs nothing is made.
	if all, err := news(t, c, api.PrepareTemplates{For: &api.CreateSandbox{Provider: "process"}}); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := news(t, c, api.PrepareTemplates{For: &api.CreateSandbox{Provider: "process", Template: "debian"}}); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	for name, p := range map[string]api.PrepareTemplates{"nothing": {}, "no such provider": {For: &api.CreateSandbox{Provider: "nosuch"}}} {
		if _, err := news(t, c, p); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := news(t, c, api.PrepareTemplates{Names: []string{"ruby"}}); !errs.Is(err, errs.Unavailable) || errs.Hint(err) != "a network?" {
		t.Errorf("%v, hint %q", err, errs.Hint(err))
	}
	reader, _ := w.key(t, "default", "read")
	if a := w.send(t, reader, "POST", "/v1/templates/prepare", api.PrepareTemplates{Names: []string{"debian"}}); a.status != 403 {
		t.Errorf("a reader may prepare: %d", a.status)
	}
}

func TestPrepare_endsWhenTheClientLeaves(t *testing.T) {
	m, c, _ := makersWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n, err := range c.PrepareTemplates(ctx, api.PrepareTemplates{Names: []string{"go"}}) {
		if err == nil && n.Text != "began" {
			t.Errorf("%+v", n)
		}
		cancel()
	}
	<-m.left // else the test ends by its deadline
}

func TestBuild_sendsTheContextAndLosesNeitherStepsNorTheEnd(t *testing.T) {
	m, c, w := makersWorld(t)
	build := func(name string) (steps, outputs int, last api.TemplateNews, err error) {
		for n, err := range c.BuildTemplate(t.Context(), client.BuildOptions{Name: name, Fresh: true}, strings.NewReader("a tar")) {
			if err != nil {
				return steps, outputs, last, err
			}
			switch last = n; n.Kind {
			case api.NewsStep:
				steps++
			case api.NewsOutput:
				outputs++
			}
		}
		return steps, outputs, last, nil
	}
	steps, outputs, last, err := build("mine")
	must(t, err)
	if steps != 1 || outputs == 0 || last.Kind != api.NewsDone || last.Made == nil || last.Made.Name != "mine" {
		t.Errorf("%d steps, %d outputs, last %+v", steps, outputs, last)
	}
	if d := cmp.Diff(server.BuildRequest{Tenant: "default", Name: "mine", Fresh: true}, m.built); d != "" || m.sent != "a tar" {
		t.Errorf("%s; context %q", d, m.sent)
	}
	if _, _, _, err := build("fails"); !errs.Is(err, errs.Invalid) || errs.Hint(err) != "mend it" {
		t.Errorf("%v, hint %q", err, errs.Hint(err))
	}
	writer, _ := w.key(t, "default", "write")
	if a := w.send(t, writer, "POST", "/v1/templates/build?name=x", strings.NewReader("x")); a.status != 403 {
		t.Errorf("who is no admin may build: %d", a.status)
	}
}

func TestMakers_aServerWithoutThemSaysSo(t *testing.T) {
	w := newWorld(t)
	if a := w.send(t, w.admin, "POST", "/v1/templates/prepare", api.PrepareTemplates{All: true}); a.status != 501 {
		t.Errorf("prepare: %d %s", a.status, a.body)
	}
	if a := w.send(t, w.admin, "POST", "/v1/templates/build?name=x", strings.NewReader("x")); a.status != 501 {
		t.Errorf("build: %d %s", a.status, a.body)
	}
}
