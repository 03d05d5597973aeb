package apt_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/template/apt"
)

func TestParse_whatHostsHave(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"sources.list", "deb http://mirror.example/debian bookworm main contrib # ours\ndeb-src http://mirror.example/debian bookworm main\n", []string{
			"deb http://mirror.example/debian bookworm main contrib",
		}},
		{"x.list", "deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://x.example/apt\tstable main", []string{
			"deb [signed-by=/usr/share/keyrings/x.gpg] https://x.example/apt stable main",
		}},
		{"debian.sources", "# c\nTypes: deb deb-src\nURIs: http://m.example/debian\nSuites: bookworm\n bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/a.gpg\n\nTypes: deb\nEnabled: no\nURIs: http://off.example\nSuites: s\nComponents: main\n", []string{
			"deb [signed-by=/usr/share/keyrings/a.gpg] http://m.example/debian bookworm main",
			"deb [signed-by=/usr/share/keyrings/a.gpg] http://m.example/debian bookworm-updates main",
		}},
		{"key-inside.sources", "Types: deb\nURIs: http://m.example/x\nSuites: s\nComponents: main\nSigned-By:\n -----BEGIN\n .\n", []string{"deb http://m.example/x s main"}},
	} {
		var got []string
		for _, s := range apt.Parse(c.name, []byte(c.text)) {
			got = append(got, s.Line())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// A tree's sources decide what the host fetches: nothing but http, nothing that
// means something else in the file that is made of it.
func TestParse_refusesWhatCouldHarm(t *testing.T) {
	for _, line := range []string{
		"deb file:///etc ./ main", "deb copy:/root x main", "deb cdrom:[x]/ x main", "deb http://user:pass@h/ x main",
		"deb mirror+file:///x x main", "deb http://h/../../x x main", "deb [signed-by=../../etc/shadow] http://h/ x main",
		"deb [signed-by=/etc/shadow] http://h/ x main", "deb [trusted=yes http://h/ x main", "deb http://h/;x x main",
		"deb http://h/ x", "deb http://h/ ./", "deb", "debx http://h/ x main", "deb http://h/$(id) x main", "deb http://h/ \"x main",
		"deb http://h/" + strings.Repeat("a", 600) + " x main", "deb http://h/\x00 x main",
	} {
		if got := apt.Parse("a.list", []byte(line)); len(got) > 0 {
			t.Errorf("%q gave %q", line, got.Text())
		}
	}
	if got := apt.Parse("a.list", []byte("deb [trusted=yes] http://h/ x main")); strings.Contains(got.Text(), "trusted") {
		t.Errorf("the tree made itself trusted: %q", got.Text())
	}
	if got := apt.Parse("sources.save", []byte("deb http://h/ x main")); len(got) > 0 {
		t.Errorf("read a file that apt does not: %q", got.Text())
	}
}

func TestOfficial_isTheDistributionsOwn(t *testing.T) {
	for line, want := range map[string]bool{
		"deb http://mirror.example/debian bookworm main":                                       true,
		"deb http://mirror.example/debian-security bookworm-security main":                     true,
		"deb http://mirror.example/pub/debian/ bookworm-updates main":                          true,
		"deb http://snapshot.example/archive/debian/20250520T000000Z bookworm main":            true,
		"deb http://ubuntu.example/ubuntu bookworm main universe":                              true,
		"deb http://mirror.example/debian trixie main":                                         false,
		"deb http://mirror.example/debian bookworm contrib":                                    false,
		"deb https://packages.microsoft.com/debian/12/prod bookworm main":                      false,
		"deb https://download.docker.com/linux/debian bookworm stable":                         false,
		"deb https://packages.example/apt bookworm main":                                       false,
		"deb http://mirror.example/debian bookworm-backports main":                             false,
		"deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror.example/debian bookworm main": true,
	} {
		s := apt.Parse("a.list", []byte(line))
		if len(s) != 1 || s[0].Official("bookworm") != want {
			t.Errorf("%s: %v, want %v", line, s, want)
		}
	}
}

// Links of a tree must not show the host's files.
func TestHostSources_linksStayInside(t *testing.T) {
	outside, tree := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "s.list"), []byte("deb http://h/debian x main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(tree, "etc/apt"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "s.list"), filepath.Join(tree, "etc/apt/sources.list")); err != nil {
		t.Fatal(err)
	}
	if got := apt.HostSources(tree); len(got) > 0 {
		t.Errorf("read %v through a link out of the tree", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a.list", "deb [signed-by=/k.gpg] http://h/debian bookworm main\n")
	f.Add("a.sources", "Types: deb\nURIs: http://h\nSuites: a b\nComponents: main\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		for _, s := range apt.Parse(name, []byte(text)) {
			again := apt.Parse("x.list", []byte(s.Line()))
			if len(again) != 1 || cmp.Diff(s, again[0]) != "" {
				t.Fatalf("%q is read as %v", s.Line(), again)
			}
			if u, err := url.Parse(s.URI); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
				t.Fatalf("took %q", s.URI)
			}
		}
	})
}
