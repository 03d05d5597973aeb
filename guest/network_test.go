package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/guest/wire"
)

const added = wire.TrustBegin + "CERT\n" + wire.TrustEnd

// What programs trust is what they did and the network, once, however often a machine
// boots and whatever the network's certificate was before.
func TestTrust(t *testing.T) {
	const debian, fedora = "etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt"
	for name, tt := range map[string]struct {
		before, want map[string]string
	}{
		"no bundle":       {nil, map[string]string{wire.TrustFile: added}},
		"a bundle":        {map[string]string{debian: "A\nB\n"}, map[string]string{debian: "A\nB\n" + added, wire.TrustFile: "A\nB\n" + added}},
		"no line's end":   {map[string]string{debian: "A"}, map[string]string{debian: "A\n" + added, wire.TrustFile: "A\n" + added}},
		"an empty bundle": {map[string]string{debian: ""}, map[string]string{debian: added, wire.TrustFile: added}},
		"the longest":     {map[string]string{debian: "A\n", fedora: "A\nB\n"}, map[string]string{debian: "A\n" + added, fedora: "A\nB\n" + added, wire.TrustFile: "A\nB\n" + added}},
		"one of before":   {map[string]string{debian: "A\n" + strings.ReplaceAll(added, "CERT", "OLD") + "B\n"}, map[string]string{debian: "A\nB\n" + added, wire.TrustFile: "A\nB\n" + added}},
		"one cut off":     {map[string]string{debian: "A\n" + wire.TrustBegin + "OL"}, map[string]string{debian: "A\n" + added, wire.TrustFile: "A\n" + added}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for p, content := range tt.before {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, p)), 0o755))
				must(t, os.WriteFile(filepath.Join(root, p), []byte(content), 0o600))
			}
			for range 2 {
				must(t, trust(root, []byte("CERT\n")))
				got := map[string]string{}
				for p := range tt.want {
					content, err := os.ReadFile(filepath.Join(root, p))
					must(t, err)
					got[p] = string(content)
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// A bundle that is a link is written where it leads to, and what is none stays.
func TestTrust_odd(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc/ssl/certs")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(root, "etc/real"), []byte("A\n"), 0o644))
	must(t, os.Symlink("../../real", filepath.Join(dir, "ca-certificates.crt")))
	must(t, os.MkdirAll(filepath.Join(root, "etc/ssl/cert.pem"), 0o755)) // a directory
	must(t, os.WriteFile(filepath.Join(root, "etc/ssl/ca-bundle.pem"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(root, "etc/ssl/ca-bundle.pem"), bundleBytesMax+1))
	err := trust(root, []byte("CERT"))
	if err == nil || strings.Count(err.Error(), "is no bundle of certificates") != 2 {
		t.Errorf("%v", err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "ca-certificates.crt")); err != nil || to != "../../real" {
		t.Errorf("the link is %q, %v", to, err)
	}
	for _, p := range []string{"etc/real", wire.TrustFile} {
		content, err := os.ReadFile(filepath.Join(root, p))
		if info, serr := os.Stat(filepath.Join(root, p)); string(content) != "A\n"+added || errors.Join(err, serr) != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %q %v", p, content, err)
		}
	}
}

// Settings are written where there are none, and again where they are ours; a template's
// own stay, and what is no file is left alone.
func TestConfigure(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "etc/dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "etc/own"), []byte("mine\n"), 0o600))
	for _, text := range []string{"old\n", "new\n"} {
		err := configure(root, map[string][]byte{"/a/b/new": []byte(text), "/etc/own": []byte(text), "/etc/dir": []byte(text)})
		if err == nil || strings.Contains(err.Error(), "etc/own") {
			t.Errorf("%v", err)
		}
		for p, want := range map[string]string{"a/b/new": wire.SettingsBegin + text, "etc/own": "mine\n"} {
			if got, err := os.ReadFile(filepath.Join(root, p)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", p, got, err)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
