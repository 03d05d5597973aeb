package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/errs"
)

func TestSameSite(t *testing.T) {
	for _, x := range []struct {
		a, b string
		same bool
	}{
		{"preview.example.net", "skete.example.net", true},
		{"preview.apps.example.net", "skete.Example.net.", true},
		{"preview.example-apps.net", "skete.example.net", false},
		{"preview.a.co.uk", "b.co.uk", false},
		{"preview.x.a.co.uk", "y.a.co.uk", true},
		{"preview.localhost", "localhost", false},
		{"preview.localhost", "app.localhost", false},
		{"preview.skete.localhost", "app.skete.localhost", true},
		{"preview.skete.localhost", "skete.localhost", true},
		{"127.0.0.1", "127.0.0.1", false},
		{"com", "com", false},
		{"", "", false},
	} {
		if got := sameSite(x.a, x.b); got != x.same {
			t.Errorf("%q and %q: %v", x.a, x.b, got)
		}
	}
}

// A server whose previews would be at its own host does not start, and one whose previews share a
// site with it says so.
func TestPreviewDomain(t *testing.T) {
	const shared = "previews share a site with the app"
	for _, x := range []struct {
		domain, origin string
		refused, warns bool
	}{
		{"", "http://localhost:7840", false, false},
		{"", "http://app.localhost:7840", false, false},
		{"skete.localhost", "http://app.skete.localhost:7840", false, true},
		{"example.net", "https://skete.example.net", false, true},
		{"example.net", "https://example.net", false, true},
		{"example-apps.net", "https://skete.example.net", false, false},
		{"", "http://preview.localhost:7840", true, false},
		{"example.net", "https://preview.example.net", true, false},
		{"example.net", "https://skete.preview.example.net", true, false},
	} {
		var log bytes.Buffer
		r := plain(t, func(c *config.Config) { c.Origin, c.Preview.Domain = x.origin, x.domain })
		r.c.Log = slog.New(slog.NewTextHandler(&log, nil))
		err := r.open(t.Context())
		if x.refused != (err != nil) || x.refused && (!errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "is one of previews")) {
			t.Errorf("%s with previews beneath %q: %v", x.origin, x.domain, err)
		}
		if warned := strings.Contains(log.String(), shared); warned != x.warns {
			t.Errorf("%s with previews beneath %q: warned: %t; log:\n%s", x.origin, x.domain, warned, log.String())
		}
	}
}
