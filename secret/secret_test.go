package secret_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant = "default"
	canary = "hunter2-canary"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sealer(t testing.TB, b byte) secret.Sealer {
	t.Helper()
	s, err := secret.NewSealer(bytes.Repeat([]byte{b}, 32))
	must(t, err)
	return s
}

// clock is one that stands still.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func open(t testing.TB, store kv.Store, key byte, c *clock) *secret.Store {
	t.Helper()
	if c == nil {
		c = &clock{now: time.Now()}
	}
	s, err := secret.Open(t.Context(), secret.Config{KV: store, Sealer: sealer(t, key), Now: c.Now})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func bearer(host string) []secret.Grant {
	return []secret.Grant{{Where: egress.Rule{Host: host}, As: secret.Bearer}}
}

// sent is what a request of a user has on its way out.
func sent(s *secret.Store, u secret.User, method, url string) string {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err.Error()
	}
	q := egress.Request{Host: r.URL.Hostname(), Port: 443, Method: method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
	for _, h := range s.Held(tenant, u, q) {
		h.Apply(r)
	}
	return strings.TrimSpace(fmt.Sprint(r.Header["Authorization"], r.Header["X-Key"], r.URL.RawQuery))
}

// A value prints as stars whatever is done with it.
func TestValue(t *testing.T) {
	v := secret.New(canary)
	j, err := json.Marshal(struct{ V secret.Value }{v})
	must(t, err)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "p", &v, "s", []secret.Value{v})
	all := fmt.Sprintf("%v %+v %#v %s %q %d %x %X %v %+v %#v", v, v, v, v, v, v, v, v, struct{ V secret.Value }{v}, []secret.Value{v}, map[string]secret.Value{"a": v}) + string(j) + log.String() + v.String() + v.GoString()
	if strings.Contains(all, canary) || strings.Contains(all, fmt.Sprintf("%x", canary)) || strings.Contains(all, fmt.Sprintf("%X", canary)) {
		t.Error(all)
	}
	if v.Reveal() != canary {
		t.Error("it is not what it was")
	}
}

// A user that says what it wants is given that alone: no other secret, nothing at another host, and
// of what is granted to all of the tenant nothing at all.
func TestHeld_toWhoSaysWhatItWants(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	at := func(host string, sandboxes ...string) secret.Grant {
		return secret.Grant{Where: egress.Rule{Host: host}, As: secret.Bearer, Env: strings.ToUpper(host[:1]) + "_TOKEN", Sandboxes: sandboxes}
	}
	for name, g := range map[string][]secret.Grant{
		"mine": {at("a.example", "plugin-p"), at("b.example", "plugin-p")}, "other": {at("c.example", "plugin-p")}, "all": {at("d.example")}, "theirs": {at("e.example", "plugin-q")},
	} {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: name, Value: secret.New("s&" + name), Grants: g})
		must(t, err)
	}
	u := secret.User{Sandboxes: []string{"plugin-p"}, Wants: secret.Wants{"mine": {"a.example"}, "all": {"d.example"}, "theirs": {"e.example"}, "none": {"a.example"}}}
	for host, want := range map[string]string{"a.example": "[Bearer s&mine] []", "b.example": "[] []", "c.example": "[] []", "d.example": "[] []", "e.example": "[] []"} {
		if got := sent(s, u, "GET", "https://"+host+"/"); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	if d := cmp.Diff(map[string]string{"A_TOKEN": "skete-secret-mine", "B_TOKEN": "skete-secret-mine"}, s.Env(tenant, u)); d != "" {
		t.Error(d)
	}
	u.Wants = secret.Wants{}
	if got, env := sent(s, u, "GET", "https://a.example/"), s.Env(tenant, u); got != "[] []" || len(env) != 0 {
		t.Errorf("to a user that wants nothing: %q %v", got, env)
	}
}

// A secret is sent where it is granted, as it is granted, to whom it is granted.
func TestHeld(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	for name, g := range map[string][]secret.Grant{
		"a": {{Where: egress.Rule{Host: "api.example", Paths: []string{"/v1/**"}, Methods: []string{"GET"}}, As: secret.Bearer}},
		"b": {{Where: egress.Rule{Host: "*.git.example"}, As: secret.Basic, Key: "x"}, {Where: egress.Rule{Host: "q.example"}, As: secret.Query, Key: "key"}},
		"c": {{Where: egress.Rule{Host: "h.example"}, As: secret.Header, Key: "x-key", Agents: []string{"coder"}, Sandboxes: []string{"web"}}},
	} {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: name, Value: secret.New("s&" + name), Grants: g})
		must(t, err)
	}
	for _, c := range []struct {
		user        secret.User
		method, url string
		want        string
	}{
		{secret.User{}, "GET", "https://api.example/v1/x", "[Bearer s&a] []"},
		{secret.User{}, "POST", "https://api.example/v1/x", "[] []"},
		{secret.User{}, "GET", "https://api.example/v2/x", "[] []"},
		{secret.User{}, "GET", "https://api.example/v1/../v2/x", "[] []"},
		{secret.User{}, "GET", "https://other.example/v1/x", "[] []"},
		{secret.User{}, "GET", "https://a.git.example/x", "[Basic eDpzJmI=] []"},
		{secret.User{}, "GET", "https://git.example/x", "[] []"},
		{secret.User{}, "GET", "https://q.example/?a=%20&k%65y=mine&key=too&b", "[] []a=%20&b&key=s%26b"},
		{secret.User{}, "GET", "https://h.example/", "[] []"},
		{secret.User{Agent: "other", Sandboxes: []string{"sbx_1", "db"}}, "GET", "https://h.example/", "[] []"},
		{secret.User{Agent: "coder"}, "GET", "https://h.example/", "[] [s&c]"},
		{secret.User{Sandboxes: []string{"sbx_1", "web"}}, "GET", "https://h.example/", "[] [s&c]"},
		{secret.User{Sandboxes: []string{"", "sbx_1"}}, "GET", "https://h.example/", "[] []"},
	} {
		if got := sent(s, c.user, c.method, c.url); got != c.want {
			t.Errorf("%+v %s %s: %q, want %q", c.user, c.method, c.url, got, c.want)
		}
	}
	if h := s.Held("other", secret.User{}, egress.Request{Host: "api.example", Port: 443, Method: "GET", Path: "/v1/x"}); len(h) != 0 {
		t.Errorf("another tenant is given %v", h)
	}
}

func TestPut_bad(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	for want, p := range map[string]secret.Put{
		"is no name":               {Name: "A b", Value: secret.New("x")},
		"0 bytes":                  {Name: "a"},
		"65537 bytes":              {Name: "a", Value: secret.New(strings.Repeat("x", secret.ValueMax+1))},
		"33":                       {Name: "a", Value: secret.New("x"), Grants: make([]secret.Grant, 33)},
		"grants[0].host":           {Name: "a", Value: secret.New("x"), Grants: bearer("https://x")},
		"hosts that are named":     {Name: "a", Value: secret.New("x"), Grants: bearer("*")},
		"pinned host":              {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example", Pinned: true}, As: secret.Bearer}}},
		"none of bearer":           {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}}}},
		"no header":                {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Header, Key: "host"}}},
		"\"a\\nb\" is no header":   {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Header, Key: "a\nb"}}},
		"is no user":               {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Basic, Key: "a:b"}}},
		"is no parameter":          {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Query}}},
		"is no variable":           {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Bearer, Env: "A=B"}}},
		"more than one line":       {Name: "a", Value: secret.New(canary + "\r\nX-Evil: 1"), Grants: bearer("a.example")},
		"it is a link-local":       {Name: "a", Value: secret.New("x"), Grants: bearer("169.254.169.254")},
		"\"\" is no name":          {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Bearer, Agents: []string{""}}}},
		"more than 100 agents and": {Name: "a", Value: secret.New("x"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Bearer, Agents: make([]string, 101)}}},
	} {
		_, err := s.Put(t.Context(), tenant, p)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), want) || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if n := len(s.List(tenant)); n != 0 {
		t.Errorf("%d secrets are there", n)
	}
}

// Versions follow each other, and one can go back to those that are kept; time ends all.
func TestVersions(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	s := open(t, kvtest.NewMemory(), 1, c)
	for i := range 7 {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New(fmt.Sprint("v", i+1)), Grants: map[bool][]secret.Grant{true: bearer("a.example")}[i == 0]})
		must(t, err)
	}
	got, err := s.Get(tenant, "a")
	must(t, err)
	want := secret.Secret{Name: "a", Version: 7, Versions: []int{3, 4, 5, 6, 7}, Grants: bearer("a.example"), CreatedAt: c.now, UpdatedAt: c.now, ExpiresAt: c.now.Add(secret.TTLDefault)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := sent(s, secret.User{}, "GET", "https://a.example/"); got != "[Bearer v7] []" {
		t.Error(got)
	}
	_, err = s.Change(t.Context(), tenant, "a", secret.Change{Version: 4})
	must(t, err)
	if got := sent(s, secret.User{}, "GET", "https://a.example/"); got != "[Bearer v4] []" {
		t.Error(got)
	}
	if _, err = s.Change(t.Context(), tenant, "a", secret.Change{Grants: bearer("b.example"), Version: 2}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a version that is not kept: %v", err)
	}
	if got := sent(s, secret.User{}, "GET", "https://b.example/"); got != "[] []" {
		t.Errorf("half of a change that was refused is there: %s", got)
	}
	_, err = s.Change(t.Context(), tenant, "a", secret.Change{Grants: bearer("b.example")})
	must(t, err)
	if got := sent(s, secret.User{}, "GET", "https://a.example/") + sent(s, secret.User{}, "GET", "https://b.example/"); got != "[] [][Bearer v4] []" {
		t.Error(got)
	}
	c.move(secret.TTLDefault)
	if got := sent(s, secret.User{}, "GET", "https://b.example/"); got != "[] []" {
		t.Errorf("it has expired: %s", got)
	}
	if got, err := s.Get(tenant, "a"); err != nil || got.Problem != "it has expired" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New("v8"), TTL: -1})
	must(t, err)
	c.move(1000 * secret.TTLDefault)
	if got := sent(s, secret.User{}, "GET", "https://b.example/"); got != "[Bearer v8] []" {
		t.Error(got)
	}
	must(t, s.Delete(t.Context(), tenant, "a"))
	for _, err := range []error{s.Delete(t.Context(), tenant, "a"), func() error { _, err := s.Get(tenant, "a"); return err }(), func() error {
		_, err := s.Change(t.Context(), tenant, "a", secret.Change{Grants: []secret.Grant{}})
		return err
	}()} {
		if !errs.Is(err, errs.NotFound) {
			t.Errorf("of one that is deleted: %v", err)
		}
	}
}

// A version is not sent in a way that cannot send it.
func TestChange_unsuited(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	_, err := s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New(canary + "\n2"), Grants: []secret.Grant{{Where: egress.Rule{Host: "a.example"}, As: secret.Basic}}})
	must(t, err)
	_, err = s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New("v2"), Grants: bearer("a.example")})
	must(t, err)
	if _, err = s.Change(t.Context(), tenant, "a", secret.Change{Version: 1}); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "more than one line") || strings.Contains(errs.Public(err), canary) {
		t.Error(err)
	}
	if got := sent(s, secret.User{}, "GET", "https://a.example/"); got != "[Bearer v2] []" {
		t.Error(got)
	}
}

// What another server changes is seen; what it deletes is not sent any more.
func TestOpen_otherServers(t *testing.T) {
	store := kvtest.NewMemory()
	one, two := open(t, store, 1, nil), open(t, store, 1, nil)
	_, err := one.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New("v1"), Grants: bearer("a.example")})
	must(t, err)
	patience.Until(t, 10*time.Second, "a secret of another server", func() bool { return sent(two, secret.User{}, "GET", "https://a.example/") == "[Bearer v1] []" })
	_, err = two.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New("v2")})
	must(t, err)
	patience.Until(t, 10*time.Second, "its change", func() bool { return sent(one, secret.User{}, "GET", "https://a.example/") == "[Bearer v2] []" })
	must(t, one.Delete(t.Context(), tenant, "a"))
	patience.Until(t, 10*time.Second, "its end", func() bool { return sent(two, secret.User{}, "GET", "https://a.example/") == "[] []" })
	again := open(t, store, 1, nil)
	if n := len(again.List(tenant)); n != 0 {
		t.Errorf("%d are there", n)
	}
}

// What was deleted is gone at once, also while the store still tells of its beginning.
func TestDelete_toldLate(t *testing.T) {
	var s *secret.Store
	tell, told := make(chan struct{}), make(chan error)
	store := kvtest.NewMemory()
	store.Fail = func(op, key string) error {
		if op == "tell" && key == tenant+"/a" {
			<-tell
			_, err := s.Get(tenant, "a") // with all that came before learned
			told <- err
		}
		return nil
	}
	s = open(t, store, 1, nil)
	put := func(value string) {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New(value), Grants: bearer("a.example")})
		must(t, err)
	}
	put(canary)
	must(t, s.Delete(t.Context(), tenant, "a"))
	for range 2 { // its beginning and its end
		tell <- struct{}{}
		if err := <-told; !errs.Is(err, errs.NotFound) {
			t.Errorf("a secret that was deleted is back: %v", err)
		}
	}
	put("v2")
	tell <- struct{}{}
	if err := <-told; err != nil {
		t.Errorf("set anew: %v", err)
	}
}

// Erase deletes what a tenant has, and nothing else.
func TestErase(t *testing.T) {
	store := kvtest.NewMemory()
	s := open(t, store, 1, nil)
	for _, of := range []string{tenant, "default2", "d"} {
		for _, name := range []string{"a", "b"} {
			_, err := s.Put(t.Context(), of, secret.Put{Name: name, Value: secret.New("x")})
			must(t, err)
		}
	}
	_, err := store.Create(t.Context(), tenant+"/broken", []byte("{"))
	must(t, err)
	must(t, s.Erase(t.Context(), tenant))
	must(t, s.Erase(t.Context(), tenant))
	var left []string
	must(t, store.List(t.Context(), "", func(key string, _ []byte, _ uint64) error {
		left = append(left, key)
		return nil
	}))
	slices.Sort(left)
	if d := cmp.Diff([]string{"d/a", "d/b", "default2/a", "default2/b"}, left); d != "" || len(s.List(tenant)) != 0 {
		t.Error(d, s.List(tenant))
	}
}

// Nothing of a value is in the store; with another key, for another name, or with a byte
// changed it does not open, and says so.
func TestSealed(t *testing.T) {
	store := kvtest.NewMemory()
	s := open(t, store, 1, nil)
	_, err := s.Put(t.Context(), tenant, secret.Put{Name: "a", Value: secret.New(canary), Grants: bearer("a.example")})
	must(t, err)
	data, revision, err := store.Get(t.Context(), tenant+"/a")
	must(t, err)
	if bytes.Contains(data, []byte(canary)) {
		t.Errorf("%s", data)
	}
	if got, err := open(t, store, 2, nil).Get(tenant, "a"); err != nil || !strings.Contains(got.Problem, "another key") {
		t.Errorf("with another key: %+v, %v", got, err)
	}
	_, err = store.Create(t.Context(), "other/a", data)
	must(t, err)
	_, err = store.Create(t.Context(), tenant+"/b", data)
	must(t, err)
	_, err = store.Create(t.Context(), tenant+"/c", []byte("{"))
	must(t, err)
	_, err = store.Create(t.Context(), tenant+"/d", []byte(`{"v":2}`))
	must(t, err)
	if _, err = store.Update(t.Context(), tenant+"/a", bytes.Replace(data, []byte(`"sealed":"A`), []byte(`"sealed":"B`), 1), revision); err != nil {
		t.Fatal(err)
	}
	again := open(t, store, 1, nil)
	for _, of := range [][2]string{{"other", "a"}, {tenant, "a"}, {tenant, "b"}, {tenant, "c"}, {tenant, "d"}} {
		if got, err := again.Get(of[0], of[1]); err != nil || got.Problem == "" || strings.Contains(got.Problem, canary) {
			t.Errorf("%v: %+v, %v", of, got, err)
		}
	}
	if got := sent(again, secret.User{}, "GET", "https://a.example/"); got != "[] []" {
		t.Error(got)
	}
	_, err = again.Put(t.Context(), tenant, secret.Put{Name: "c", Value: secret.New("x")})
	if !errs.Is(err, errs.Corrupt) {
		t.Errorf("over one that cannot be read: %v", err)
	}
	must(t, again.Delete(t.Context(), tenant, "c"))
}

func FuzzSealer(f *testing.F) {
	s := sealer(f, 1)
	good, err := s.Seal(f.Context(), []byte("x"), []byte("y"))
	must(f, err)
	f.Add(good)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if plain, err := s.Open(context.Background(), sealed, []byte("y")); err == nil && !bytes.Equal(sealed, good) {
			t.Errorf("%x opens as %q", sealed, plain)
		}
	})
}

// The key is made once, for the server's user alone.
func TestFileSealer(t *testing.T) {
	p := filepath.Join(t.TempDir(), "secret.key")
	one, err := secret.FileSealer(p)
	must(t, err)
	two, err := secret.FileSealer(p)
	must(t, err)
	sealed, err := one.Seal(t.Context(), []byte(canary), nil)
	must(t, err)
	if plain, err := two.Open(t.Context(), sealed, nil); err != nil || string(plain) != canary {
		t.Errorf("%q, %v", plain, err)
	}
	must(t, os.Chmod(p, 0o640))
	if _, err := secret.FileSealer(p); !errs.Is(err, errs.Denied) {
		t.Errorf("that others may read: %v", err)
	}
	must(t, os.Chmod(p, 0o600))
	must(t, os.Truncate(p, 7))
	if _, err := secret.FileSealer(p); !errs.Is(err, errs.Corrupt) {
		t.Errorf("that is cut off: %v", err)
	}
}

// Inside there is a word that stands for a secret, for programs that send nothing without.
func TestEnv(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	_, err := s.Put(t.Context(), tenant, secret.Put{Name: "forge", Value: secret.New(canary), Grants: []secret.Grant{
		{Where: egress.Rule{Host: "a.example"}, As: secret.Bearer, Env: "FORGE_TOKEN", Sandboxes: []string{"web"}},
	}})
	must(t, err)
	if d := cmp.Diff(map[string]string{"FORGE_TOKEN": "skete-secret-forge"}, s.Env(tenant, secret.User{Sandboxes: []string{"web"}})); d != "" {
		t.Error(d)
	}
	if env := s.Env(tenant, secret.User{}); len(env) != 0 {
		t.Errorf("%v", env)
	}
}

func TestPut_tooMany(t *testing.T) {
	s := open(t, kvtest.NewMemory(), 1, nil)
	for i := range secret.SecretsMax {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: fmt.Sprint("s", i), Value: secret.New("x")})
		must(t, err)
	}
	if _, err := s.Put(t.Context(), tenant, secret.Put{Name: "more", Value: secret.New("x")}); !errs.Is(err, errs.Limit) {
		t.Errorf("%v", err)
	}
	if _, err := s.Put(t.Context(), tenant, secret.Put{Name: "s1", Value: secret.New("y")}); err != nil {
		t.Errorf("a new version of one: %v", err)
	}
	if _, err := s.Put(t.Context(), "other", secret.Put{Name: "more", Value: secret.New("x")}); err != nil {
		t.Errorf("of another tenant: %v", err)
	}
}
