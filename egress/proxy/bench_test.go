package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/store"
)

// BenchmarkOAuth asks a host over a connection that is kept, with the real store: one that no
// secret is for, and one whose secret has so many tokens in the sandbox.
func BenchmarkOAuth(b *testing.B) {
	b.Run("no secret", func(b *testing.B) { benchCall(b, "https://other.example.com/", 0) })
	for _, n := range []int{0, 2, secret.TokensMax} {
		b.Run(fmt.Sprintf("%d tokens", n), func(b *testing.B) { benchCall(b, mailURL, n) })
	}
}

func benchCall(b *testing.B, url string, n int) {
	s, err := store.Open(b.Context(), store.Config{Dir: b.TempDir(), SyncInterval: time.Minute})
	must(b, err)
	b.Cleanup(func() { _ = s.Close() })
	var buckets [2]kv.Store
	for i, name := range []string{"secrets", "tokens"} {
		buckets[i], err = s.KV(b.Context(), name)
		must(b, err)
	}
	l := newLoginsOn(b, buckets)
	l.serve(443, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("an answer ", 100))
	}, "mail.example.com", "other.example.com")
	word := ""
	for i := range n {
		kept, err := l.tokens.Load().Keep(b.Context(), l.store.Held("default", secret.User{}, egress.Request{Host: "login.example.com", Port: 443, Method: "POST", Path: "/oauth/token"})[0],
			[]secret.NewToken{{Value: secret.New(fmt.Sprintf("real/%d-%s", i, strings.Repeat("x", 1000)))}})
		must(b, err)
		word = kept[0].Placeholder
	}
	c := l.client()
	call := func() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		must(b, err)
		req.Header.Set("Authorization", "Bearer "+word)
		res, err := c.Do(req)
		must(b, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(b, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
	}
	call()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		call()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}
