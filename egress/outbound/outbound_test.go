package outbound_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/secret"
)

func get(t *testing.T, w *outbound.Way, at string) error {
	t.Helper()
	c := http.Client{Transport: w, CheckRedirect: w.Redirect}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// A way leads to its origin alone: not to another port, scheme or host that a request or an
// answer names, and to no address of the host that a name stands for.
func TestWay_oneOrigin(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") }))
	t.Cleanup(other.Close)
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, "fine")
	}))
	t.Cleanup(there.Close)
	to, err := url.Parse(there.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := outbound.New(outbound.Config{}, to, outbound.User{})
	t.Cleanup(w.Close)
	for at, want := range map[string]string{
		there.URL + "/a":      "",
		there.URL + "/?to=/b": "",
		other.URL:             "names another host",
		"https://" + to.Host:  "names another host",
		there.URL + "/?to=" + url.QueryEscape(other.URL):                                                           "redirects to another host",
		there.URL + "/?to=" + url.QueryEscape("https://"+to.Host+"/"):                                              "redirects to another host",
		there.URL + "/?to=" + url.QueryEscape("/?to=%2F%3Fto%3D%252F%253Fto%253D%25252F%25253Fto%25253D%2525252F"): "redirects too often",
	} {
		err := get(t, w, at)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", at, err, want)
		}
	}
	for _, inside := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fd00::1"} {
		named := outbound.New(outbound.Config{Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(inside)}, nil
		}}, &url.URL{Scheme: "https", Host: "a.example.com:" + to.Port()}, outbound.User{})
		if err := get(t, named, "https://a.example.com:"+to.Port()); !errs.Is(err, errs.Denied) {
			t.Errorf("%s: %v", inside, err)
		}
	}
}

// Secrets are not looked for where they would be sent in the clear, or where none is named.
func TestWay_noSecrets(t *testing.T) {
	there := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(there.Close)
	to, err := url.Parse(there.URL)
	if err != nil {
		t.Fatal(err)
	}
	held := func(string, secret.User, egress.Request) []secret.Held {
		t.Error("secrets were looked for")
		return nil
	}
	w := outbound.New(outbound.Config{Held: held}, to, outbound.User{Secrets: []string{"a"}})
	if err := get(t, w, there.URL); err != nil || len(w.Sent()) > 0 {
		t.Error(err, w.Sent())
	}
}

func TestCheckURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example.com": "", "https://a.example.com:8443/x?y=z": "", "http://127.0.0.1:1": "", "http://[::1]/": "", "http://localhost/": "",
		"": "it is not http", "a.example.com": "it is not http", "ftp://a": "it is not http", "https://": "it is not http", "https://:443/": "it is not http", "https://a b/": "it is not http",
		"http://a.example.com": "it has to be https", "http://localhost.example.com": "it has to be https", "https://u@a.example.com": "it holds a user", "https://a.example.com/#x": "it has a fragment",
	} {
		err := outbound.CheckURL(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(errs.Public(err), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
