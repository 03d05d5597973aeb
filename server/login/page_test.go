package login

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/server/auth"
)

// What comes from an address, a key or an identity provider is text on the page.
func TestPageEscapes(t *testing.T) {
	const hostile = `"'><script>alert(1)</script>&`
	who := auth.Identity{Tenant: hostile, User: hostile}
	for name, d := range map[string]pageData{
		"form":      {Next: hostile, Problem: hostile, Issuer: hostile, Away: hostile},
		"on":        {Go: true, Next: hostile},
		"logged in": {Who: &who},
		"invited":   {Invited: &who, Next: hostile, Code: hostile},
	} {
		if got := d.html(); strings.Contains(got, "<script") || strings.Contains(got, `"'>`) || !strings.Contains(got, "&lt;script&gt;") && !strings.Contains(got, "&#34;") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
