package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/secret"
)

// A server whose key a command tells seals with it, and the next one opens what it has
// sealed. One with another key names what it cannot open and leaves it as it is, and one
// that gets no key does not start: with the first key all is as it was.
func TestSecrets_keyCommand(t *testing.T) {
	home, log := t.TempDir(), &bytes.Buffer{}
	raw := func(b byte) []byte { sum := sha256.Sum256([]byte{b}); return sum[:] }
	key := func(b byte) string { return base64.StdEncoding.EncodeToString(raw(b)) }
	server := func(argv ...string) *running {
		r := plain(t, func(c *config.Config) { c.Secrets.KeyCommand = argv })
		r.c.Home, r.c.Log = home, slog.New(slog.NewTextHandler(log, nil))
		return r
	}
	opened := func(argv ...string) *running {
		t.Helper()
		r := server(argv...)
		if err := r.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	closed := func(r *running) {
		t.Helper()
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	stored := func(r *running) map[string]string {
		t.Helper()
		store, err := r.store.KV(t.Context(), "secrets")
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		err = store.List(t.Context(), "", func(key string, data []byte, _ uint64) error {
			all[key] = string(data)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	held := func(r *running) (names []string) {
		for _, h := range r.secrets.Held("default", secret.User{}, egress.Request{Host: "forge.example", Port: 443, Method: "GET", Path: "/"}) {
			names = append(names, h.Name)
		}
		return names
	}

	first := opened("echo", key(1))
	for _, name := range []string{"forge", "mirror"} {
		_, err := first.secrets.Put(t.Context(), "default", secret.Put{Name: name, Value: secret.New("hunter2"), Grants: []secret.Grant{
			{Where: egress.Rule{Host: "forge.example"}, As: secret.Bearer},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	before := stored(first)
	closed(first)

	again := opened("echo", key(1))
	if got := held(again); cmp.Diff([]string{"forge", "mirror"}, got) != "" {
		t.Errorf("after a restart %v is sent", got)
	}
	closed(again)

	log.Reset()
	other := opened("echo", key(2))
	if got := held(other); len(got) > 0 {
		t.Errorf("with another key %v is sent", got)
	}
	for _, name := range []string{"forge", "mirror"} {
		if s, err := other.secrets.Get("default", name); err != nil || !strings.Contains(s.Problem, "another key") {
			t.Errorf("with another key %s is told as %+v, %v", name, s, err)
		}
		if !strings.Contains(log.String(), "secret=default/"+name) {
			t.Errorf("the log does not name %s:\n%s", name, log)
		}
		if _, err := other.secrets.Change(t.Context(), "default", name, secret.Change{Version: 1}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	if d := cmp.Diff(before, stored(other)); d != "" {
		t.Errorf("a server with another key changed what is kept:\n%s", d)
	}
	closed(other)

	none := server("sh", "-c", "echo the vault is sealed >&2; exit 1")
	if err := none.open(t.Context()); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "the vault is sealed") {
		t.Errorf("without a key: %v", err)
	}
	closed(none)

	last := opened("echo", key(1))
	if got := held(last); cmp.Diff([]string{"forge", "mirror"}, got) != "" {
		t.Errorf("with the first key again %v is sent", got)
	}
	closed(last)
	if _, err := os.Stat(filepath.Join(home, "secret.key")); err == nil {
		t.Error("a file of a key was made although a command tells it")
	}
	nowhere(t, home, key(1), string(raw(1)))
	if strings.Contains(log.String(), key(1)) || strings.Contains(log.String(), key(2)) {
		t.Error("the log has a key")
	}
}

// nowhere fails if a file beneath a directory has one of the texts.
func nowhere(t *testing.T, dir string, texts ...string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s has %q", path, text)
			}
		}
		seen++
		return err
	})
	if err != nil || seen == 0 {
		t.Errorf("%d files were searched: %v", seen, err)
	}
}

// Tokens that sandboxes got are in the next server as they were, sealed; those of a sandbox
// that ends, or that is not known any more, are removed.
func TestSecrets_tokens(t *testing.T) {
	home := t.TempDir()
	opened := func() *running {
		t.Helper()
		r := plain(t, func(*config.Config) {})
		r.c.Home = home
		must(t, r.open(t.Context()))
		return r
	}
	held := func(r *running) secret.Held {
		t.Helper()
		list := r.secrets.Held("default", secret.User{}, egress.Request{Host: "login.example", Port: 443, Method: "POST", Path: "/token"})
		if len(list) != 1 || !list[0].OAuth() {
			t.Fatalf("%+v", list)
		}
		return list[0]
	}
	web, db := network.Owner{Tenant: "default", ID: "sbx_web"}, network.Owner{Tenant: "default", ID: "sbx_db"}
	has := func(r *running, of network.Owner) int {
		t.Helper()
		list, _, err := r.tokensOf(of).List(t.Context(), held(r))
		must(t, err)
		return len(list)
	}
	first := opened()
	_, err := first.secrets.Put(t.Context(), "default", secret.Put{Name: "mail", Value: secret.New("hunter2"), Grants: []secret.Grant{
		{Where: egress.Rule{Host: "login.example", Paths: []string{"/token"}}, As: secret.Bearer, OAuth: true},
	}})
	must(t, err)
	for _, of := range []network.Owner{web, db} {
		_, err = first.tokensOf(of).Keep(t.Context(), held(first), []secret.NewToken{{Value: secret.New("real-access")}, {Value: secret.New("real-refresh"), Refresh: true}})
		must(t, err)
	}
	must(t, first.close())

	next := opened()
	if a, b := has(next, web), has(next, db); a != 2 || b != 2 {
		t.Fatalf("after a restart they have %d and %d", a, b)
	}
	withModels{next.networks, next.gateway, next.tokens}.Forget("sbx_web")
	if a, b := has(next, web), has(next, db); a != 0 || b != 2 {
		t.Errorf("after one's end they have %d and %d", a, b)
	}
	must(t, next.sweepTokens(t.Context())) // no such sandbox is known here
	if b := has(next, db); b != 0 {
		t.Errorf("one that is gone has %d", b)
	}
	must(t, next.close())
}
