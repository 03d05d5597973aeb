package key

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfAKey(t *testing.T) {
	kv := kvtest.NewMemory()
	ring := NewRing(kv)
	secret, rec, err := ring.Create(t.Context(), Request{Name: "ci", Tenant: "default", Scopes: Scopes{Write, Read, Read}})
	must(t, err)
	if !formOK(secret) || !idOK(rec.ID) || len(secret) != 44 {
		t.Errorf("secret of %d bytes, id %q", len(secret), rec.ID)
	}
	if diff := cmp.Diff(Scopes{Read, Write}, rec.Scopes); diff != "" {
		t.Error(diff)
	}
	got, err := NewRing(kv).Check(t.Context(), secret) // as after a restart
	must(t, err)
	if diff := cmp.Diff(rec, got); diff != "" {
		t.Error(diff)
	}
	revoked, err := ring.Revoke(t.Context(), "default", rec.ID)
	must(t, err)
	if revoked.RevokedAt.IsZero() {
		t.Error("not revoked")
	}
	if _, err := ring.Check(t.Context(), secret); !errs.Is(err, errs.Denied) {
		t.Errorf("a revoked key: %v", err)
	}
	again, err := ring.Revoke(t.Context(), "", rec.ID)
	must(t, err)
	if !again.RevokedAt.Equal(revoked.RevokedAt) {
		t.Error("the second revocation changed the time of the first")
	}
}

func TestSecretsAreNotStored(t *testing.T) {
	kv := kvtest.NewMemory()
	secret, _, err := NewRing(kv).Create(t.Context(), Request{Name: "x", Tenant: "default"})
	must(t, err)
	must(t, kv.List(t.Context(), "", func(k string, v []byte, _ uint64) error {
		if strings.Contains(k+string(v), secret.Reveal()[4:]) {
			t.Errorf("%s = %s", k, v)
		}
		return nil
	}))
	data, err := json.Marshal(map[string]any{"s": secret})
	must(t, err)
	if shown := fmt.Sprintf("%s %v %+v %#v %s", secret, secret, struct{ S Secret }{secret}, secret, data); strings.Contains(shown, secret.Reveal()) {
		t.Errorf("a secret prints itself: %s", shown)
	}
}

func TestCheckRefuses(t *testing.T) {
	ring := NewRing(kvtest.NewMemory())
	secret, _, err := ring.Create(t.Context(), Request{Name: "x", Tenant: "default"})
	must(t, err)
	good := secret.Reveal()
	last := "0"
	if good[len(good)-1] == '0' {
		last = "1"
	}
	for name, s := range map[string]string{
		"empty": "", "shorter": good[:43], "longer": good + "0", "another prefix": "e2c_" + good[4:],
		"upper case": strings.ToUpper(good), "one digit off": good[:43] + last, "NUL": good[:43] + "\x00", "huge": strings.Repeat("e", 1<<20),
	} {
		if _, err := ring.Check(t.Context(), Secret(s)); !errs.Is(err, errs.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A record whose id fits but whose hash does not must not let anybody in: the
// id is only the head of the hash.
func TestCheckComparesTheWholeHash(t *testing.T) {
	kv := kvtest.NewMemory()
	ring := NewRing(kv)
	secret, rec, err := ring.Create(t.Context(), Request{Name: "x", Tenant: "default"})
	must(t, err)
	_, rev, err := kv.Get(t.Context(), prefix+rec.ID)
	must(t, err)
	rec.Hash = rec.Hash[:40] + strings.Repeat("0", 24)
	data, err := json.Marshal(rec)
	must(t, err)
	_, err = kv.Update(t.Context(), prefix+rec.ID, data, rev)
	must(t, err)
	if _, err := ring.Check(t.Context(), secret); !errs.Is(err, errs.Denied) {
		t.Errorf("err %v", err)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	ring := NewRing(kvtest.NewMemory())
	for name, req := range map[string]Request{
		"no name": {Tenant: "default"}, "long name": {Name: strings.Repeat("x", 65), Tenant: "default"},
		"name with a newline": {Name: "a\nb", Tenant: "default"}, "no tenant": {Name: "x"},
		"tenant with a slash": {Name: "x", Tenant: "a/b"}, "tenant in upper case": {Name: "x", Tenant: "A"},
		"tenant with a dot": {Name: "x", Tenant: "a.b"}, "unknown scope": {Name: "x", Tenant: "default", Scopes: Scopes{"root"}},
	} {
		if _, _, err := ring.Create(t.Context(), req); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ring.Revoke(t.Context(), "", "key_../../x"); !errs.Is(err, errs.Invalid) {
		t.Errorf("bad id: %v", err)
	}
	if _, err := ring.Revoke(t.Context(), "", "key_00000000000000000000"); !errs.Is(err, errs.NotFound) {
		t.Errorf("unknown id: %v", err)
	}
	_, rec, err := ring.Create(t.Context(), Request{Name: "x", Tenant: "a"})
	must(t, err)
	if _, err := ring.Revoke(t.Context(), "b", rec.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("another tenant's: %v", err)
	}
}

func TestScopes(t *testing.T) {
	for _, tt := range []struct {
		has  Scopes
		want Scope
		ok   bool
	}{
		{Scopes{Read}, Read, true},
		{Scopes{Read}, Write, false},
		{Scopes{Read}, Admin, false},
		{Scopes{Write}, Read, true},
		{Scopes{Write}, Write, true},
		{Scopes{Write}, Admin, false},
		{Scopes{Admin}, Read, true},
		{Scopes{Admin}, Write, true},
		{Scopes{Admin}, Admin, true},
		{nil, Read, false},
		{Scopes{Admin, Read}, "nonsense", true},
		{Scopes{Write, Read}, "nonsense", false},
	} {
		if got := tt.has.Allow(tt.want); got != tt.ok {
			t.Errorf("%v.Allow(%s) = %v", tt.has, tt.want, got)
		}
	}
}

func TestEnsureAdmin(t *testing.T) {
	ring := NewRing(kvtest.NewMemory())
	secret, created, err := ring.EnsureAdmin(t.Context())
	must(t, err)
	rec, err := ring.Check(t.Context(), secret)
	must(t, err)
	if !created || !rec.Scopes.Allow(Admin) || rec.Tenant != DefaultTenant {
		t.Errorf("%+v", rec)
	}
	if _, created, err := ring.EnsureAdmin(t.Context()); created || err != nil {
		t.Errorf("a second start made another: %v", err)
	}
	_, err = ring.Revoke(t.Context(), "", rec.ID)
	must(t, err)
	if _, created, err := ring.EnsureAdmin(t.Context()); !created || err != nil {
		t.Errorf("nobody is admin and no key is made: %v", err)
	}
}

// Another process on the same store sees a revocation when its cache is old.
func TestRevocationElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := kvtest.NewMemory()
		here, there := NewRing(kv), NewRing(kv)
		secret, rec, err := here.Create(t.Context(), Request{Name: "x", Tenant: "default"})
		must(t, err)
		_, err = there.Check(t.Context(), secret)
		must(t, err)
		_, err = here.Revoke(t.Context(), "", rec.ID)
		must(t, err)
		time.Sleep(cacheFor + time.Nanosecond) //nolint:forbidigo // synctest: the bubble's clock
		if _, err := there.Check(t.Context(), secret); !errs.Is(err, errs.Denied) {
			t.Errorf("err %v", err)
		}
	})
}

// slowKV lets a test stand between the read of a record and its use.
type slowKV struct {
	*kvtest.Memory
	read chan struct{} // signalled when a Get has read
	free chan struct{} // and may return
}

func (k *slowKV) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	v, rev, err := k.Memory.Get(ctx, key)
	if k.read != nil {
		k.read <- struct{}{}
		<-k.free
	}
	return v, rev, err
}

// A check that read the record just before its revocation must not bring the
// old record back into the cache.
func TestRevocationBeatsACheckUnderWay(t *testing.T) {
	kv := &slowKV{Memory: kvtest.NewMemory()}
	ring, other := NewRing(kv), NewRing(kv.Memory)
	secret, rec, err := ring.Create(t.Context(), Request{Name: "x", Tenant: "default"})
	must(t, err)
	kv.read, kv.free = make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = ring.Check(context.Background(), secret) })
	<-kv.read
	_, err = other.Revoke(t.Context(), "", rec.ID)
	must(t, err)
	revoked := make(chan error, 1)
	go func() { _, err := ring.Revoke(context.Background(), "", rec.ID); revoked <- err }()
	<-kv.read
	kv.free <- struct{}{} // one of the two; the order is not ours to choose
	kv.free <- struct{}{}
	wg.Wait()
	must(t, <-revoked)
	kv.read = nil
	if _, err := ring.Check(t.Context(), secret); !errs.Is(err, errs.Denied) {
		t.Errorf("after the revocation: %v", err)
	}
}

func TestDamagedRecord(t *testing.T) {
	kv := kvtest.NewMemory()
	ring := NewRing(kv)
	secret, rec, err := ring.Create(t.Context(), Request{Name: "x", Tenant: "default"})
	must(t, err)
	_, rev, err := kv.Get(t.Context(), prefix+rec.ID)
	must(t, err)
	_, err = kv.Update(t.Context(), prefix+rec.ID, []byte("{"), rev)
	must(t, err)
	if _, err := ring.Check(t.Context(), secret); !errs.Is(err, errs.Corrupt) {
		t.Errorf("check: %v", err)
	}
	if _, err := ring.List(t.Context(), ""); !errs.Is(err, errs.Corrupt) {
		t.Errorf("list: %v", err)
	}
}
