package preview

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
)

const boxID = "abcdefghijklmnop2345"

func TestLabelsAreReversible(t *testing.T) {
	for _, port := range []uint16{1, 80, 5173, 65535} {
		want := Target{Sandbox: "sbx_" + boxID, Port: port}
		got, err := ParseLabel(want.Label())
		if err != nil || got != want {
			t.Errorf("%q became %+v, %v", want.Label(), got, err)
		}
	}
	if l := (Target{"sbx_" + boxID, 5173}).Label(); l != "5173-"+boxID {
		t.Errorf("the label is %q", l)
	}
}

func TestBadLabels(t *testing.T) {
	for _, s := range []string{
		"", "-", "5173", "5173-", "-" + boxID, "0-" + boxID, "65536-" + boxID, "99999999999999999999-" + boxID, "05173-" + boxID, "+5173-" + boxID,
		"-1-" + boxID, "5173-" + boxID + "a", "5173-" + boxID[1:], "5173-sbx_" + boxID, "5173-" + strings.ToUpper(boxID), "5173-" + boxID[:19] + "1",
		"5173-" + boxID[:19] + ".", " 5173-" + boxID, "5173-" + boxID + " ", "5173--" + boxID[1:], "5173-" + boxID[:18] + "é", "５173-" + boxID,
		"x.5173-" + boxID, "5173_" + boxID, "0x50-" + boxID, "5173-" + boxID[:19] + "\x00", strings.Repeat("5", 1<<16),
	} {
		if got, err := ParseLabel(s); !errs.Is(err, errs.Invalid) {
			t.Errorf("%.60q was taken: %+v, %v", s, got, err)
		}
	}
}

func TestBadTargets(t *testing.T) {
	for _, tt := range []struct {
		id   string
		port int
	}{{"", 1}, {boxID, 80}, {"sbx_", 80}, {"sbx_" + boxID + "a", 80}, {"sbx_" + boxID, 0}, {"sbx_" + boxID, -1}, {"sbx_" + boxID, 65536}, {"thr_" + boxID, 80}} {
		if got, err := ParseTarget(tt.id, tt.port); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q, %d was taken: %+v, %v", tt.id, tt.port, got, err)
		}
	}
}

// Everything beneath the domain of previews is previews', so that no name there
// reaches the app; nothing else is.
func TestMatch(t *testing.T) {
	p := &Previews{suffix: ".preview.localhost", bare: "preview.localhost"}
	label := "5173-" + boxID
	for host, want := range map[string]bool{
		label + ".preview.localhost":                  true,
		label + ".preview.localhost:7733":             true,
		strings.ToUpper(label) + ".Preview.LOCALHOST": true,
		"nonsense.preview.localhost":                  true,
		"a.b.preview.localhost":                       true,
		".preview.localhost":                          true,
		"preview.localhost":                           true,
		"Preview.Localhost:7733":                      true,
		"localhost":                                   false,
		"localhost:7733":                              false,
		label + ".preview.localhost.":                 false,
		label + ".preview.localhost.evil.example":     false,
		label + ".xpreview.localhost":                 false,
		label + ".preview.localhostx":                 false,
		"":                                            false, ":": false, "[::1]:80": false,
	} {
		if got := p.Match(host); got != want {
			t.Errorf("Match(%q) = %v", host, got)
		}
	}
	got, err := p.parseHost(strings.ToUpper(label) + ".preview.localhost:1")
	if err != nil || got.Label() != label {
		t.Errorf("%+v, %v", got, err)
	}
	for _, host := range []string{"a." + label + ".preview.localhost", "nonsense.preview.localhost", ".preview.localhost", "localhost", strings.Repeat("a", 300) + ".preview.localhost"} {
		if got, err := p.parseHost(host); err == nil {
			t.Errorf("%.40q names %+v", host, got)
		}
	}
}

func TestDomains(t *testing.T) {
	for _, s := range []string{"localhost", "example.net", "a.b-c.example", "xn--bcher-kva.example"} {
		if !domainOK(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", ".", "a.", ".a", "a..b", "A.example", "-a", "a-", "a b", "a:80", "a/b", "*.a", "ü.example", strings.Repeat("a", 64), strings.Repeat("a.", 101) + "a"} {
		if domainOK(s) {
			t.Errorf("%.40q is taken", s)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"5173-" + boxID + ".preview.localhost:7733", "x.preview.localhost", "[::1]:80", "1-" + boxID + ".preview.localhost", ""} {
		f.Add(s)
	}
	p := &Previews{suffix: ".preview.localhost"}
	f.Fuzz(func(t *testing.T, host string) {
		target, err := p.parseHost(host)
		if err != nil {
			return
		}
		if !p.Match(host) {
			t.Errorf("%q names a target and does not match", host)
		}
		if again, err := p.parseHost(target.Label() + p.suffix); err != nil || again != target {
			t.Errorf("%q: %+v became %+v, %v", host, target, again, err)
		}
		if hostName(host) != target.Label()+p.suffix {
			t.Errorf("%q is a second name of %s", host, target.Label())
		}
	})
}
