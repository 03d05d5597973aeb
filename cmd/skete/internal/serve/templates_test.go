package serve

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/template"
)

// Machines learn beneath which names their previews are, whatever their template
// says, and no template is changed by that.
func TestPreviewed(t *testing.T) {
	root := template.Rootfs{Env: map[string]string{"A": "b", "SKETE_PREVIEW_DOMAIN": "preview.old.example"}}
	for domain, want := range map[string]string{"": "preview.old.example", "localhost": "preview.old.example", "apps.example": "preview.apps.example"} {
		got := previewed(root, domain).Env
		if d := cmp.Diff(map[string]string{"A": "b", "SKETE_PREVIEW_DOMAIN": want}, got); d != "" {
			t.Errorf("%q: %s", domain, d)
		}
	}
	if got := previewed(template.Rootfs{}, "apps.example").Env["SKETE_PREVIEW_DOMAIN"]; got != "preview.apps.example" {
		t.Errorf("without an environment: %q", got)
	}
}
