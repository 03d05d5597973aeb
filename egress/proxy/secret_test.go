package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/secret"
)

const canary = "hunter2/canary+value"

// keep gives the sandbox a secret by a grant.
func (w *world) keep(name string, grants ...secret.Grant) {
	w.t.Helper()
	w.hold(name, canary, grants...)
}

func (w *world) hold(name, value string, grants ...secret.Grant) {
	w.t.Helper()
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{1}, 32))
	must(w.t, err)
	s, err := secret.Open(w.t.Context(), secret.Config{KV: kvtest.NewMemory(), Sealer: sealer})
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, s.Close()) })
	_, err = s.Put(w.t.Context(), "default", secret.Put{Name: name, Value: secret.New(value), Grants: grants})
	must(w.t, err)
	w.secrets.Store(s)
}

// The host is sent the secret, whatever the sandbox sends in its place, and the sandbox
// sees no more of it than stars, wherever the host says it again.
func TestSecrets(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "api.example.com"}, {Host: "other.example.com"}}})
	got := make(chan *http.Request, 1)
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		got <- r
		all := fmt.Sprint(r.Header, r.URL)
		rw.Header().Set("X-Echo", all[:min(len(all), 1000)])
		rw.Header().Set("Trailer", "X-End")
		for i := range all { // a byte at a time
			_, _ = io.WriteString(rw, all[i:i+1])
			if i%7 == 0 {
				rw.(http.Flusher).Flush()
			}
		}
		rw.Header().Set("X-End", r.Header.Get("Authorization"))
	}, "api.example.com", "other.example.com")
	host := egress.Rule{Host: "api.example.com", Paths: []string{"/v1/**"}}
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + canary))
	for name, c := range map[string]struct {
		grant secret.Grant
		url   string
		want  string // that the host is sent; "" = no secret
	}{
		"bearer":           {secret.Grant{Where: host, As: secret.Bearer}, "https://api.example.com/v1/x", "Bearer " + canary},
		"basic":            {secret.Grant{Where: host, As: secret.Basic, Key: "me"}, "https://api.example.com/v1/x", basic},
		"header":           {secret.Grant{Where: host, As: secret.Header, Key: "X-Token"}, "https://api.example.com/v1/x", canary},
		"query":            {secret.Grant{Where: host, As: secret.Query, Key: "key"}, "https://api.example.com/v1/x?a=b&key=mine", "a=b&key=" + url.QueryEscape(canary)},
		"another path":     {secret.Grant{Where: host, As: secret.Bearer}, "https://api.example.com/v2/x", ""},
		"a path of two":    {secret.Grant{Where: host, As: secret.Bearer}, "https://api.example.com/v2/%2e%2e/v1/x", ""},
		"another host":     {secret.Grant{Where: host, As: secret.Bearer}, "https://other.example.com/v1/x", ""},
		"another sandbox":  {secret.Grant{Where: host, As: secret.Bearer, Sandboxes: []string{"db"}}, "https://api.example.com/v1/x", ""},
		"another's method": {secret.Grant{Where: egress.Rule{Host: "api.example.com", Methods: []string{"POST"}}, As: secret.Bearer}, "https://api.example.com/v1/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.keep("forge", c.grant)
			req, err := http.NewRequest(http.MethodGet, c.url, nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer mine")
			req.Header.Set("X-Api-Key", "mine")
			req.Header.Set("X-HTTP-Method-Override", "DELETE")
			req.Header.Set("Range", "bytes=2-9")
			req.Header.Set("Accept-Encoding", "gzip")
			res, err := w.client().Do(req)
			must(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			must(t, err)
			r := <-got
			all := fmt.Sprint(r.Header, r.URL.RawQuery)
			d := w.last()
			if c.want == "" {
				if strings.Contains(all, "canary") || d.Secrets != "" || r.Header.Get("Authorization") != "Bearer mine" {
					t.Errorf("the host is sent %s, %+v", all, d)
				}
				return
			}
			if !strings.Contains(all, c.want) || strings.Contains(all, "mine") || strings.Contains(all, "DELETE") || r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("Range") != "" {
				t.Errorf("the host is sent %s", all)
			}
			if d.Secrets != "forge" || !d.Allowed {
				t.Errorf("the decision is %+v", d)
			}
			seen := string(body) + fmt.Sprint(res.Header, res.Trailer)
			for _, form := range []string{"canary", url.QueryEscape(canary), url.PathEscape(canary), basic} {
				if strings.Contains(seen, form) {
					t.Errorf("the sandbox sees %s", seen)
				}
			}
			if !strings.Contains(string(body), "*****") {
				t.Errorf("nothing was hidden in %s", body)
			}
		})
	}
}

// What a host says before its answer is looked at too.
func TestSecrets_early(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "api.example.com"}}})
	w.keep("forge", secret.Grant{Where: egress.Rule{Host: "api.example.com"}, As: secret.Bearer})
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "<"+r.Header.Get("Authorization")+">")
		rw.WriteHeader(http.StatusEarlyHints)
	}, "api.example.com")
	said := ""
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		said = h.Get("Link")
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
	must(t, err)
	res, err := w.client().Do(req)
	must(t, err)
	res.Body.Close()
	if want := "<" + strings.Repeat("*", len("Bearer "+canary)) + ">"; said != want && said != "<Bearer "+strings.Repeat("*", len(canary))+">" {
		t.Errorf("the sandbox is told %q early", said)
	}
}

// A secret is not sent in the clear, nor where the policy refuses, and an answer that
// cannot be looked into is not passed on.
func TestSecrets_notSent(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "api.example.com"}}})
	w.keep("forge", secret.Grant{Where: egress.Rule{Host: "api.example.com"}, As: secret.Bearer}, secret.Grant{Where: egress.Rule{Host: "denied.example.com"}, As: secret.Bearer})
	clear := make(chan string, 1)
	w.serve(80, func(_ http.ResponseWriter, r *http.Request) { clear <- r.Header.Get("Authorization") }, "api.example.com")
	if status, _ := w.get("http://api.example.com/"); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if a := <-clear; a != "" {
		t.Errorf("in the clear it is sent %q", a)
	}
	if status, body := w.get("https://denied.example.com/"); status != http.StatusForbidden || w.last().Secrets != "" {
		t.Errorf("%d %s %+v", status, body, w.last())
	}
	w = newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "api.example.com"}}})
	w.keep("forge", secret.Grant{Where: egress.Rule{Host: "api.example.com"}, As: secret.Bearer})
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/part" {
			rw.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(rw, r.Header.Get("Authorization")[:12])
			return
		}
		rw.Header()["Content-Encoding"] = map[string][]string{"/": {"gzip"}, "/two": {"identity", "gzip"}, "/none": {"", "gzip"}, "/list": {"identity, gzip"}}[r.URL.Path]
		z := gzip.NewWriter(rw)
		_, _ = io.WriteString(z, r.Header.Get("Authorization"))
		_ = z.Close()
	}, "api.example.com")
	for path, why := range map[string]string{"/": "could not be hidden", "/two": "(\"identity, gzip\")", "/none": "could not be hidden", "/list": "could not be hidden", "/part": "could not be found"} {
		if status, body := w.get("https://api.example.com" + path); status != http.StatusBadGateway || !strings.Contains(body, why) {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
}
