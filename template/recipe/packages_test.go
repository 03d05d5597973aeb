package recipe_test

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/debian/debiantest"
)

// A real Debian, a real package with what it depends on: fetched on the host,
// installed in a sandbox without a network.
func TestBuild_packagesOfARealDebian(t *testing.T) {
	if testing.Short() {
		t.Skip("short: installs a Debian package in a sandbox")
	}
	tar := debiantest.Open(t)
	w := newWorld(t)
	_, err := w.store.Import(t.Context(), "small", tar)
	must(t, err)
	dir := folder(t, "from: small\npackages: [jq]\nrun:\n  - echo '[1,2]' | jq length >/opt/two\n", nil)
	_, h, err := w.build(t, dir, false)
	if errs.Is(err, errs.Unavailable) {
		t.Skipf("the mirror does not answer: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(h.output, ""))
	}
	got := w.in(t, "mine", "cat /opt/two; apt-mark showauto jq libjq1; ls /usr/sbin/policy-rc.d /workspace/.packages 2>&1 | grep -c 'No such'; dpkg --audit")
	if got != "2\nlibjq1\n2\n" {
		t.Errorf("got %q", got)
	}
	_, _, err = w.build(t, folder(t, "from: small\npackages: [no-such-package]\n", nil), false)
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "skete.template.yaml:2:1") || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("%v", err)
	}
}
