package serve

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
)

// A set that was kept is known, also one with nothing in it; what is not there or cannot
// be read is not.
func TestReadRegistries(t *testing.T) {
	full := registry.Set{Sources: []registry.Source{{Tool: "npm", URL: "https://npm.example/"}}}
	for name, c := range map[string]struct {
		data  string // "" = there is no file
		want  registry.Set
		found bool
		fails bool
	}{
		"a first start": {},
		"kept":          {data: `{"sources": [{"tool": "npm", "url": "https://npm.example/"}]}`, want: full, found: true},
		"nothing kept":  {data: `{"sources": null}`, found: true},
		"cut short":     {data: `{"sources": [{"tool": "npm"`, fails: true},
		"too large":     {data: string(make([]byte, registriesBytes+1)), fails: true},
	} {
		p := filepath.Join(t.TempDir(), "registries.json")
		if c.data != "" {
			must(t, os.WriteFile(p, []byte(c.data), 0o600))
		}
		set, found, err := readRegistries(p)
		if d := cmp.Diff(c.want, set); d != "" || found != c.found || (err != nil) != c.fails {
			t.Errorf("%s: found %t, %v, %s", name, found, err, d)
		}
	}
}

// Where nothing can be found out, machines wait no longer than it takes to see that, and
// what was known stays.
func TestFindRegistries_nothing(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no sh
	path := filepath.Join(t.TempDir(), "registries.json")
	n, err := network.New(t.Context(), network.Config{Seed: bytes.Repeat([]byte{7}, seedBytes), Await: true})
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	r := &running{networks: n}
	r.c.HostRegistries = true
	r.c.Log, r.c.Registries = slog.New(slog.DiscardHandler), []string{"https://packages.example/"}
	known := registry.Set{Env: map[string]string{"GOPROXY": "off"}}
	if next := r.findRegistries(t.Context(), path, &known); next != registriesRetry {
		t.Errorf("it is tried again in %s", next)
	}
	began := time.Now()
	m := n.Machine(t.Context(), sandbox.Info{Spec: sandbox.Spec{Network: egress.Default}})
	if took := time.Since(began); took > 5*time.Second || m.Env["GOPROXY"] != "off" {
		t.Errorf("after %s a machine is given %+v", took, m)
	}
	set, found, err := readRegistries(path)
	if err != nil || !found || len(set.Sources) != 1 || set.Env["GOPROXY"] != "off" {
		t.Errorf("%+v is kept, found %t, %v", set, found, err)
	}
}

// A host that is not to be asked is not, and what it said before counts no more.
func TestFindRegistries_notTheHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registries.json")
	n, err := network.New(t.Context(), network.Config{Seed: bytes.Repeat([]byte{7}, seedBytes), Await: true})
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	r := &running{networks: n}
	r.c.Log = slog.New(slog.DiscardHandler)
	t.Setenv("GOPROXY", "off")
	known := registry.Set{Env: map[string]string{"GOPROXY": "off"}}
	r.findRegistries(t.Context(), path, &known)
	if m := n.Machine(t.Context(), sandbox.Info{Spec: sandbox.Spec{Network: egress.Default}}); len(m.Env) != 0 {
		t.Errorf("a machine is given %v", m.Env)
	}
	if _, found, err := readRegistries(path); found || err != nil {
		t.Errorf("something is kept: %t, %v", found, err)
	}
}
