package secret_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/secret"
)

// mail is a secret with a token endpoint.
func mail(t *testing.T, s *secret.Store, name string) secret.Held {
	t.Helper()
	grants := []secret.Grant{{Where: egress.Rule{Host: "login.example.com", Paths: []string{"/token"}}, As: secret.Bearer, OAuth: true}}
	_, err := s.Put(t.Context(), tenant, secret.Put{Name: name, Value: secret.New(canary), Grants: grants})
	must(t, err)
	for _, h := range s.Held(tenant, secret.User{}, egress.Request{Host: "login.example.com", Port: 443, Method: "POST", Path: "/token"}) {
		if h.Name == name && h.OAuth() {
			return h
		}
	}
	t.Fatal("it is not held")
	return secret.Held{}
}

func fresh(list ...string) (out []secret.NewToken) {
	for _, v := range list {
		out = append(out, secret.NewToken{Value: secret.New(v), Refresh: strings.HasPrefix(v, "refresh")})
	}
	return out
}

// Tokens are kept sealed, by placeholders that cannot be guessed; what was got again has the
// placeholder that it had.
func TestTokens(t *testing.T) {
	bucket, c := kvtest.NewMemory(), &clock{now: time.Now()}
	all := secret.NewTokens(secret.TokenConfig{KV: bucket, Sealer: sealer(t, 1), Now: c.Now})
	s := open(t, kvtest.NewMemory(), 1, c)
	one, other := mail(t, s, "mail"), mail(t, s, "files")
	of := all.Of(tenant, "sbx_web")
	list, err := of.Keep(t.Context(), one, fresh("access-"+canary, "refresh-"+canary))
	must(t, err)
	again, err := of.Keep(t.Context(), one, fresh("refresh-"+canary, "access-2"))
	must(t, err)
	if len(list) != 2 || again[0].Placeholder != list[1].Placeholder || again[1].Placeholder == list[0].Placeholder || len(list[0].Placeholder) != len("skete-token-")+32 || list[0].Placeholder == list[1].Placeholder {
		t.Errorf("%q, %q", list[0].Placeholder, again)
	}
	if live := live(t, of, one); !slices.Equal(live, []string{"access-2", "access-" + canary, "refresh-" + canary}) {
		t.Errorf("%q", live)
	}
	for name, none := range map[string][]string{
		"another secret": live(t, of, other), "another sandbox": live(t, all.Of(tenant, "sbx_db"), one), "another tenant": live(t, all.Of("other", "sbx_web"), one), "no secret": live(t, of),
		"another key": live(t, secret.NewTokens(secret.TokenConfig{KV: bucket, Sealer: sealer(t, 2), Now: c.Now}).Of(tenant, "sbx_web"), one),
	} {
		if len(none) != 0 {
			t.Errorf("%s has %q", name, none)
		}
	}
	must(t, bucket.List(t.Context(), "", func(key string, data []byte, _ uint64) error {
		if text := key + string(data); strings.Contains(text, canary) || strings.Contains(text, "skete-token") || !strings.HasPrefix(key, "sbx_web/") {
			t.Errorf("the store says %s", text)
		}
		return nil
	}))
}

// live are the values of tokens, sorted.
func live(t *testing.T, of *secret.SandboxTokens, by ...secret.Held) (values []string) {
	t.Helper()
	list, _, err := of.List(t.Context(), by...)
	must(t, err)
	for _, x := range list {
		values = append(values, x.Value.Reveal())
	}
	slices.Sort(values)
	return values
}

// What is said of a token in the store cannot be changed without its being lost: whose it is,
// by which secret, until when.
func TestTokens_bound(t *testing.T) {
	for _, field := range []string{"", "tenant", "secret", "ends", "made", "sandbox"} {
		bucket := kvtest.NewMemory()
		all := secret.NewTokens(secret.TokenConfig{KV: bucket, Sealer: sealer(t, 1)})
		c := &clock{now: time.Now()}
		s := open(t, kvtest.NewMemory(), 1, c)
		one := mail(t, s, "mail")
		_, err := all.Of(tenant, "sbx_web").Keep(t.Context(), one, fresh("access-1"))
		must(t, err)
		var key string
		var record map[string]any
		must(t, bucket.List(t.Context(), "", func(k string, data []byte, _ uint64) error {
			key = k
			return json.Unmarshal(data, &record)
		}))
		by, to, sandbox := one, tenant, "sbx_web"
		switch field {
		case "tenant":
			record[field], to = "other", "other"
		case "secret":
			record[field], by = "files", mail(t, s, "files")
			record["made"] = made(t, s, "files")
		case "ends":
			record[field] = time.Now().Add(1000 * time.Hour)
		case "made":
			must(t, s.Delete(t.Context(), tenant, "mail"))
			c.move(time.Second)
			by = mail(t, s, "mail")
			record[field] = made(t, s, "mail")
		case "sandbox":
			sandbox = "sbx_db"
			key = sandbox + strings.TrimPrefix(key, "sbx_web")
		}
		data, err := json.Marshal(record)
		must(t, err)
		if _, revision, err := bucket.Get(t.Context(), key); err == nil {
			_, err = bucket.Update(t.Context(), key, data, revision)
			must(t, err)
		} else {
			_, err = bucket.Create(t.Context(), key, data)
			must(t, err)
		}
		if list := live(t, all.Of(to, sandbox), by); (len(list) == 1) != (field == "") {
			t.Errorf("with another %q it has %q", field, list)
		}
	}
}

func made(t *testing.T, s *secret.Store, name string) time.Time {
	t.Helper()
	x, err := s.Get(tenant, name)
	must(t, err)
	return x.CreatedAt
}

func TestTokens_lives(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{0: time.Hour, time.Second: time.Minute, 10 * time.Minute: 10 * time.Minute, 48 * time.Hour: 24 * time.Hour} {
		c := &clock{now: time.Now()}
		of := secret.NewTokens(secret.TokenConfig{KV: kvtest.NewMemory(), Sealer: sealer(t, 1), Now: c.Now}).Of(tenant, "sbx_web")
		one := mail(t, open(t, kvtest.NewMemory(), 1, c), "mail")
		_, err := of.Keep(t.Context(), one, []secret.NewToken{{Value: secret.New("access"), Life: said}, {Value: secret.New("refresh"), Life: said, Refresh: true}})
		must(t, err)
		for _, step := range []struct {
			by   time.Duration
			want int
		}{{want - time.Second, 2}, {time.Second, 1}, {30*24*time.Hour - want - time.Second, 1}, {time.Second, 0}} {
			c.move(step.by)
			if list := live(t, of, one); len(list) != step.want {
				t.Errorf("of %s: %q, not %d", said, list, step.want)
			}
		}
	}
}

// A sandbox has a bounded number: what is over goes first, then the oldest.
func TestTokens_most(t *testing.T) {
	bucket, c := kvtest.NewMemory(), &clock{now: time.Now()}
	of := secret.NewTokens(secret.TokenConfig{KV: bucket, Sealer: sealer(t, 1), Now: c.Now}).Of(tenant, "sbx_web")
	one := mail(t, open(t, kvtest.NewMemory(), 1, c), "mail")
	for i := range secret.TokensMax + 10 {
		_, err := of.Keep(t.Context(), one, fresh(fmt.Sprintf("access-%03d", i)))
		must(t, err)
		c.move(time.Second)
	}
	if list := live(t, of, one); len(list) != secret.TokensMax || list[0] != "access-010" {
		t.Errorf("%d, from %s on", len(list), list[0])
	}
	_, err := of.Keep(t.Context(), one, fresh("refresh-1"))
	must(t, err)
	for i := range secret.TokensMax {
		c.move(10 * time.Minute) // most are over, and hidden still
		_, err = of.Keep(t.Context(), one, fresh(fmt.Sprintf("access-1%03d", i)))
		must(t, err)
	}
	if list := live(t, of, one); len(list) != 7 || list[6] != "refresh-1" {
		t.Errorf("live are %q", list)
	}
	c.move(25 * time.Hour)
	_, err = of.Keep(t.Context(), one, fresh("refresh-1", "access-again"))
	must(t, err)
	if n := count(t, bucket); n != 2 {
		t.Errorf("%d are left", n)
	}
}

// A token that is over is told apart for a day, and then it is not there.
func TestTokens_over(t *testing.T) {
	c := &clock{now: time.Now()}
	of := secret.NewTokens(secret.TokenConfig{KV: kvtest.NewMemory(), Sealer: sealer(t, 1), Now: c.Now}).Of(tenant, "sbx_web")
	s := open(t, kvtest.NewMemory(), 1, c)
	one, other := mail(t, s, "mail"), mail(t, s, "files")
	list, err := of.Keep(t.Context(), one, fresh("access-1"))
	must(t, err)
	for _, step := range []struct {
		by         time.Duration
		live, over int
	}{{time.Hour - time.Second, 1, 0}, {time.Second, 0, 1}, {24*time.Hour - time.Second, 0, 1}} {
		c.move(step.by)
		live, over, err := of.List(t.Context(), one)
		must(t, err)
		if len(live) != step.live || len(over) != step.over || slices.Concat(live, over)[0].Placeholder != list[0].Placeholder {
			t.Errorf("%s later %d live and %d over", step.by, len(live), len(over))
		}
	}
	if live, over, err := of.List(t.Context(), other); err != nil || len(live)+len(over) != 0 {
		t.Errorf("another secret has %d and %d, %v", len(live), len(over), err)
	}
	again, err := of.Keep(t.Context(), one, fresh("access-1"))
	must(t, err)
	if again[0].Placeholder == list[0].Placeholder {
		t.Error("what is over is live again")
	}
}

// counting counts how often a bucket is listed.
type counting struct {
	kv.Store
	lists atomic.Int32
}

func (b *counting) List(ctx context.Context, prefix string, visit func(string, []byte, uint64) error) error {
	b.lists.Add(1)
	return b.Store.List(ctx, prefix, visit)
}

// What was read is used again, and yet each change counts at once: what is kept, what is
// erased, the end of a token and that of its secret. What another server changes counts
// in a moment.
func TestTokens_readOnce(t *testing.T) {
	bucket, c := &counting{Store: kvtest.NewMemory()}, &clock{now: time.Now()}
	config := secret.TokenConfig{KV: bucket, Sealer: sealer(t, 1), Now: c.Now}
	all, elsewhere := secret.NewTokens(config), secret.NewTokens(config)
	s := open(t, kvtest.NewMemory(), 1, c)
	one := mail(t, s, "mail")
	of := all.Of(tenant, "sbx_web")
	is := func(when string, want ...string) {
		t.Helper()
		for range 3 {
			if got := live(t, of, one); !slices.Equal(got, want) {
				t.Errorf("%s: %q, not %q", when, got, want)
			}
		}
	}
	keep := func(of *secret.SandboxTokens, values ...string) {
		t.Helper()
		_, err := of.Keep(t.Context(), one, fresh(values...))
		must(t, err)
	}
	is("at first")
	keep(of, "access-1")
	before := bucket.lists.Load()
	is("when one is kept", "access-1")
	if n := bucket.lists.Load() - before; n != 1 {
		t.Errorf("the store was listed %d times for 3 requests", n)
	}
	keep(all.Of(tenant, "sbx_web"), "access-2")
	is("when one is kept through another handle", "access-1", "access-2")
	must(t, all.EraseSandbox(t.Context(), "sbx_web"))
	is("when they are erased")
	keep(of, "access-3", "refresh-3")
	is("with new ones", "access-3", "refresh-3")
	c.move(time.Hour - time.Second)
	is("before the end", "access-3", "refresh-3")
	c.move(time.Second)
	is("at the end of one", "refresh-3")
	must(t, elsewhere.EraseSecret(t.Context(), tenant, "mail"))
	c.move(5 * time.Second)
	is("when another server erased them")
	keep(of, "access-4")
	is("with one more", "access-4")
	c.move(-time.Hour)
	must(t, elsewhere.EraseSecret(t.Context(), tenant, "mail"))
	is("when the clock was set back")
	keep(of, "access-5")
	is("with the last one", "access-5")
	must(t, s.Delete(t.Context(), tenant, "mail"))
	c.move(time.Millisecond)
	one = mail(t, s, "mail")
	is("of another secret of that name")
}

func count(t *testing.T, bucket *kvtest.Memory) (n int) {
	t.Helper()
	must(t, bucket.List(t.Context(), "", func(string, []byte, uint64) error {
		n++
		return nil
	}))
	return n
}

// Tokens go with their sandbox, their secret, their tenant, and when they are over.
func TestTokens_erased(t *testing.T) {
	for name, c := range map[string]struct {
		erase func(ctx context.Context, s *secret.Store, all *secret.Tokens, c *clock) error
		left  int // of two secrets' in two sandboxes, and one of another tenant
	}{
		"a secret": {func(ctx context.Context, s *secret.Store, _ *secret.Tokens, _ *clock) error {
			return s.Delete(ctx, tenant, "mail")
		}, 3},
		"a tenant": {func(ctx context.Context, s *secret.Store, _ *secret.Tokens, _ *clock) error {
			return s.Erase(ctx, tenant)
		}, 1},
		"a sandbox": {func(ctx context.Context, _ *secret.Store, all *secret.Tokens, _ *clock) error {
			return all.EraseSandbox(ctx, "sbx_web")
		}, 3},
		"what is not known": {func(ctx context.Context, _ *secret.Store, all *secret.Tokens, _ *clock) error {
			return all.Sweep(ctx, func(id string) bool { return id == "sbx_web" })
		}, 2},
		"what is over": {func(ctx context.Context, _ *secret.Store, all *secret.Tokens, c *clock) error {
			c.move(25 * time.Hour)
			return all.Sweep(ctx, func(string) bool { return true })
		}, 0},
		"nothing": {func(ctx context.Context, _ *secret.Store, all *secret.Tokens, c *clock) error {
			c.move(25*time.Hour - time.Second)
			return all.Sweep(ctx, func(string) bool { return true })
		}, 5},
	} {
		bucket, clock := kvtest.NewMemory(), &clock{now: time.Now()}
		all := secret.NewTokens(secret.TokenConfig{KV: bucket, Sealer: sealer(t, 1), Now: clock.Now})
		s, err := secret.Open(t.Context(), secret.Config{KV: kvtest.NewMemory(), Sealer: sealer(t, 1), Tokens: all, Now: clock.Now})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		for _, by := range []secret.Held{mail(t, s, "mail"), mail(t, s, "files")} {
			for _, sandbox := range []string{"sbx_web", "sbx_db"} {
				_, err := all.Of(tenant, sandbox).Keep(t.Context(), by, fresh("access-1"))
				must(t, err)
			}
		}
		_, err = all.Of("other", "sbx_theirs").Keep(t.Context(), mail(t, s, "mail"), fresh("access-1"))
		must(t, err)
		must(t, c.erase(t.Context(), s, all, clock))
		if n := count(t, bucket); n != c.left {
			t.Errorf("without %s %d are left, not %d", name, n, c.left)
		}
	}
}

// A token endpoint is one path of one host, and does not go together with all.
func TestGrant_oauth(t *testing.T) {
	at := secret.Grant{Where: egress.Rule{Host: "login.example.com", Paths: []string{"/token"}}, As: secret.Basic, Key: "me", OAuth: true}
	with := func(change func(*secret.Grant)) secret.Grant {
		g := at
		change(&g)
		return g
	}
	s := open(t, kvtest.NewMemory(), 1, nil)
	for name, c := range map[string]struct {
		grants []secret.Grant
		why    string
	}{
		"good":            {[]secret.Grant{at, {Where: egress.Rule{Host: "mail.example.com"}, As: secret.Bearer}}, ""},
		"POST":            {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Methods = []string{"POST"} })}, ""},
		"another method":  {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Methods = []string{"GET"} })}, "POST alone"},
		"any path":        {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Paths = nil })}, "one path"},
		"many paths":      {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Paths = []string{"/**"} })}, "one path"},
		"many hosts":      {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Host = "*.example.com" })}, "one by one"},
		"a pinned host":   {[]secret.Grant{with(func(g *secret.Grant) { g.Where.Pinned = true })}, "pinned"},
		"one that signs":  {[]secret.Grant{with(func(g *secret.Grant) { g.As, g.Key = secret.AWS, "" })}, "signs nothing"},
		"hosts of many":   {[]secret.Grant{at, {Where: egress.Rule{Host: "*.example.com"}, As: secret.Bearer}}, "one by one"},
		"tokens as basic": {[]secret.Grant{at, {Where: egress.Rule{Host: "mail.example.com"}, As: secret.Basic}}, "sent as bearer"},
		"hosts that sign": {[]secret.Grant{at, {Where: egress.Rule{Host: "mail.example.com"}, As: secret.AWS}}, "signs nothing"},
	} {
		_, err := s.Put(t.Context(), tenant, secret.Put{Name: "mail", Value: secret.New("id:secret"), Grants: c.grants})
		if c.why == "" && err != nil || c.why != "" && (!errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, not %q", name, err, c.why)
		}
	}
	get := egress.Request{Host: "login.example.com", Port: 443, Method: "GET", Path: "/token"}
	if h := s.Held(tenant, secret.User{}, get); len(h) != 0 {
		t.Errorf("it is sent by GET: %v", h)
	}
}
