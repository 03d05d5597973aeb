package registry

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
)

// lines makes what the script prints.
func lines(of ...string) []byte {
	var out strings.Builder
	for _, line := range of {
		out.WriteString(strings.Replace(line, "|", "\t", 1) + "\n")
	}
	return []byte(out.String())
}

func TestParse(t *testing.T) {
	const help = "pip-help|  -i, --index-url <url>  Base URL of the Python Package Index (default      https://index.example/simple). This should (default https://no.example)"
	for name, c := range map[string]struct {
		out  []byte
		want Set
	}{
		"nothing": {nil, Set{}},
		"their own": {
			lines("pip|global.cert='/etc/x'", help, `npm|; "user" config from /root/.npmrc`, "npm|fund = false", "npm-registry|https://npm.example/", "go-proxy|https://go.example,direct",
				"go-sumdb|sum.example", "cargo-default|sparse+https://crates.example/", "apt|http://deb.example/debian/", "apt|http://deb.example/security/", "apt|file:/mirror"),
			Set{Sources: []Source{
				{Tool: "pip", URL: "https://index.example/simple"},
				{Tool: "npm", URL: "https://npm.example/"},
				{Tool: "go", URL: "https://go.example"},
				{Tool: "go", URL: "https://sum.example"},
				{Tool: "cargo", URL: "https://crates.example/"},
				{Tool: "apt", URL: "http://deb.example/debian/"},
				{Tool: "apt", URL: "http://deb.example/security/"},
			}},
		},
		"mirrors, without their credentials": {
			lines(help, "pip|global.index-url='https://bob:hunter2@global.example/simple'", "pip|:env:.index-url='https://bob:hunter2@py.example:8443/simple/?token=hunter2'",
				`pip|global.extra-index-url='\nhttps://x.example/a\nhttps://y.example/b\nhttps://10.0.0.1/c'`,
				`npm|@corp:registry = "https://hunter2@npm.example/corp/"`, `npm|registry = "https://npm.example/all/"`, `npm|//npm.example/:_authToken = (protected)`, "npm-registry|https://npm.example/all/",
				"go-proxy|https://bob:hunter2@go.example/a|https://b.example,direct", "go-sumdb|sum.example+abc https://hunter2@go.example/sumdb", "go-changed|GOPROXY='x'", "go-changed|GOSUMDB='x'",
				"cargo|[source.crates-io]", `cargo|replace-with = "corp"`, `cargo|[source."corp"]`, `cargo|registry = "sparse+https://bob:hunter2@crates.example/index/"`, "cargo|[registries.corp]", "cargo|token = \"hunter2\"", "cargo-default|sparse+https://no.example/"),
			Set{
				Sources: []Source{
					{Tool: "pip", URL: "https://py.example:8443/simple/"},
					{Tool: "pip", URL: "https://x.example/a"},
					{Tool: "pip", URL: "https://y.example/b"},
					{Tool: "npm", URL: "https://npm.example/corp/"},
					{Tool: "npm", URL: "https://npm.example/all/"},
					{Tool: "go", URL: "https://go.example/a"},
					{Tool: "go", URL: "https://b.example"},
					{Tool: "go", URL: "https://go.example/sumdb"},
					{Tool: "cargo", URL: "https://crates.example/index/"},
				},
				Env: map[string]string{
					"PIP_INDEX_URL": "https://py.example:8443/simple/", "PIP_EXTRA_INDEX_URL": "https://x.example/a https://y.example/b", "NPM_CONFIG_GLOBALCONFIG": npmFile,
					"GOPROXY": "https://go.example/a|https://b.example,direct", "GOSUMDB": "sum.example+abc https://go.example/sumdb",
				},
				Files: map[string]string{
					npmFile:   "@corp:registry=https://npm.example/corp/\nregistry=https://npm.example/all/\n",
					cargoFile: "[source.crates-io]\nreplace-with = \"corp\"\n\n[source.corp]\nregistry = \"sparse+https://crates.example/index/\"\n",
				},
			},
		},
		"what machines cannot reach": {
			lines("pip|global.index-url='http://localhost:3141/root/pypi'", "npm-registry|http://192.168.1.1/", "go-proxy|file:///srv/go,off", "go-sumdb|off", "go-changed|GOPROXY='x'", "go-changed|GOSUMDB='off'",
				"cargo|[source.crates-io]", `cargo|replace-with = "vendored"`, "cargo|[source.vendored]", `cargo|directory = "vendor"`),
			Set{Env: map[string]string{"GOPROXY": "off", "GOSUMDB": "off"}},
		},
		"a circle of cargo's": {lines("cargo|[source.crates-io]", `cargo|replace-with = "a"`, "cargo|[source.a]", `cargo|replace-with = "crates-io"`, "cargo-default|sparse+https://c.example/"), Set{Sources: []Source{{Tool: "cargo", URL: "https://c.example/"}}}},
		"nonsense":            {lines("", "pip", "|", "pip|global.index-url='", "npm|registry = \"\"", "npm|registry = \"https://a.example\\n\"", "go-proxy|,,|", "go-sumdb| ", "apt|https://a.example:99999/", "apt|https:///x", "apt|https://%zz/", "apt|"+strings.Repeat("https://a.example/", 100)), Set{}},
	} {
		got := Parse(c.out)
		for _, m := range []*map[string]string{&c.want.Env, &c.want.Files} {
			if *m == nil {
				*m = map[string]string{}
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if strings.Contains(fmt.Sprint(got), "hunter2") {
			t.Errorf("%s: a credential is carried over", name)
		}
	}
}

// Whatever is printed, rules can be made of it, and no credential is in what is
// carried over.
func FuzzParse(f *testing.F) {
	f.Add(lines("pip|:env:.index-url='https://u:hunter2@a.example/'", "go-proxy|https://a.example,direct", "go-changed|GOPROXY='x'"))
	f.Add(lines("cargo|[source.crates-io]", `cargo|replace-with = "a"`, "cargo|[source.a]", `cargo|registry = "https://a.example"`))
	f.Fuzz(func(t *testing.T, out []byte) {
		s := Parse(out)
		if _, err := egress.Compile(egress.Policy{Allow: s.Rules()}); err != nil {
			t.Error(err)
		}
		for _, src := range s.Sources {
			if cleanURL(src.URL) != src.URL {
				t.Errorf("%q is not clean", src.URL)
			}
		}
		for _, file := range s.Files {
			if strings.ContainsAny(file, "\x00\r") {
				t.Errorf("%q", file)
			}
		}
	})
}

func TestRules(t *testing.T) {
	s := Set{Sources: []Source{{Tool: "pip", URL: "https://py.example:8443/simple", Hosts: []string{"files.example"}}, {Tool: "npm", URL: "https://files.example/"}, {Tool: "apt", URL: "http://deb.example/"}}}
	rules, err := egress.Compile(egress.Policy{Allow: s.Rules()})
	if err != nil {
		t.Fatal(err)
	}
	for line, allowed := range map[string]bool{
		"GET py.example 8443 /simple/x": true, "GET py.example 443 /": false, "GET files.example 443 /x": true, "POST files.example 443 /x": false, "GET deb.example 80 /": true,
		"GET github.com 443 /a/b/info/refs?service=git-upload-pack": true, "POST github.com 443 /a/b/git-upload-pack": true, "POST github.com 443 /a/b/git-receive-pack": false,
		"GET github.com 443 /a/b/info/refs?service=git-receive-pack": false, "GET example.com 443 /": false,
	} {
		var q egress.Request
		if _, err := fmt.Sscan(line, &q.Method, &q.Host, &q.Port, &q.Path); err != nil {
			t.Fatal(err)
		}
		q.Path, q.Query, _ = strings.Cut(q.Path, "?")
		if v := rules.Request(q); v.Allowed != allowed {
			t.Errorf("%s: %+v", line, v)
		}
	}
	if list := s.Rules(); len(list) != len(gitHosts)+3 {
		t.Errorf("%v", list)
	}
}

func TestMerge(t *testing.T) {
	a := Set{Sources: []Source{{Tool: "pip", URL: "https://a.example"}}, Env: map[string]string{"GOPROXY": "a"}}
	b := Set{Sources: []Source{{Tool: "pip", URL: "https://a.example", Hosts: []string{"x.example"}}, {Tool: "npm", URL: "https://b.example"}}, Env: map[string]string{"GOPROXY": "b", "GOSUMDB": "b"}, Files: map[string]string{"/f": "b"}}
	want := Set{Sources: []Source{a.Sources[0], b.Sources[1]}, Env: map[string]string{"GOPROXY": "a", "GOSUMDB": "b"}, Files: map[string]string{"/f": "b"}}
	if d := cmp.Diff(want, a.Merge(b)); d != "" {
		t.Error(d)
	}
	if b.Env["GOPROXY"] != "b" {
		t.Error("a set was changed")
	}
}

// answering returns a client whose every host is served by f.
func answering(t *testing.T, f http.HandlerFunc) *http.Client {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.Listener.Addr().String())
	}, DisableKeepAlives: true}}
}

func TestFollow(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Host + r.URL.Path {
		case "json.example/simple/pip/":
			_, _ = io.WriteString(w, `{"files":[{"url":"https://files.example/a.whl"},{"url": "https://u:p@files.example/b.whl"},{"url":"https://10.0.0.1/c"},{"url":"../relative"}]}`)
		case "html.example/simple/pip/":
			_, _ = io.WriteString(w, `<a href="https://one.example/a.whl#sha256=0">a</a> <a href="/b.whl">b</a> <a href="https://html.example/c">c</a>`)
		case "many.example/simple/pip/":
			for i := range 100 {
				fmt.Fprintf(w, `<a href="https://h%02d.example/">`, i)
			}
		case "npm.example/npm/latest":
			_, _ = io.WriteString(w, `{"dist":{"tarball":"https://tar.example/npm.tgz"}}`)
		case "crates.example/config.json":
			_, _ = io.WriteString(w, `{"dl":"https://static.example/{crate}/{version}","api":"https://api.example"}`)
		case "moved.example/config.json":
			http.Redirect(w, r, "http://new.example/config.json", http.StatusFound)
		case "new.example/config.json":
			_, _ = io.WriteString(w, `{}`)
		default:
			http.NotFound(w, r)
		}
	})
	s := Set{Sources: []Source{
		{Tool: "pip", URL: "http://json.example/simple"},
		{Tool: "pip", URL: "http://html.example/simple/"},
		{Tool: "pip", URL: "http://many.example/simple/"},
		{Tool: "npm", URL: "http://npm.example/"},
		{Tool: "cargo", URL: "http://crates.example/"},
		{Tool: "cargo", URL: "http://moved.example"},
		{Tool: "apt", URL: "http://deb.example"},
		{Tool: "npm", URL: "http://gone.example/", Hosts: []string{"kept.example"}},
	}}
	err := s.Follow(t.Context(), c)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "http://gone.example/") || strings.Contains(err.Error(), "crates") {
		t.Errorf("%v", err)
	}
	var got []string
	for _, src := range s.Sources {
		got = append(got, strings.Join(src.Hosts, " "))
	}
	want := []string{"files.example", "one.example", "h00.example h01.example h02.example h03.example h04.example h05.example h06.example h07.example", "tar.example", "static.example", "new.example", "", "kept.example"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The script with programs of our own: one that hangs, one that says too much and never
// ends, one that reads what it is not given, one that fails.
func TestAsk_oddPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pip3":    "yes 'global.x=1'",
		"npm":     `cat; [ "$2" = ls ] || echo https://npm.example/; echo 'registry = "https://npm.example/all/"'`,
		"go":      "exit 3",
		"apt-get": `while :; do printf 'https://deb.example/'; done`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "head", "yes", "tr", "grep", "cat"} {
		p, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(p, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	s, err := Ask(t.Context(), filepath.Join(dir, "sh"))
	if err != nil || len(s.Sources) != 2 || s.Env["NPM_CONFIG_GLOBALCONFIG"] == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\nexec /bin/sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, filepath.Join(dir, "sh")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a program that hangs: %v", err)
	}
	if _, err := Ask(t.Context(), filepath.Join(dir, "no-sh")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("no sh: %v", err)
	}
}

// What the managers say does not mix, and they are asked side by side: each waits here
// until the others were asked too.
func TestAsk_sideBySide(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("MET", dir)
	for name, says := range map[string]string{
		"pip3":    `[ "$1" = download ] || yes "global.extra-index-url='https://pip.example/'" | head -n 1000`,
		"npm":     `yes 'registry = "https://npm.example/"' | head -n 1000`,
		"apt-get": `yes https://deb.example/ | head -n 1000`,
	} {
		text := fmt.Sprintf("#!/bin/sh\n>$MET/met-%s\nwhile [ ! -e $MET/met-pip3 ] || [ ! -e $MET/met-npm ] || [ ! -e $MET/met-apt-get ]; do sleep 0.01; done\n%s\n", name, says)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Ask(t.Context(), "sh")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, src := range s.Sources {
		if strings.HasSuffix(src.URL, ".example/") {
			got = append(got, src.Tool+" "+src.URL)
		}
	}
	if d := cmp.Diff([]string{"pip https://pip.example/", "npm https://npm.example/", "apt https://deb.example/"}, got); d != "" {
		t.Error(d)
	}
}

// Go is here, and knows its proxy.
func TestAsk(t *testing.T) {
	t.Setenv("GOPROXY", "https://u:hunter2@proxy.example/go,direct")
	s, err := Ask(t.Context(), "sh")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Sources, func(src Source) bool { return src.Tool == "go" && src.URL == "https://proxy.example/go" }) || s.Env["GOPROXY"] != "https://proxy.example/go,direct" {
		t.Errorf("%+v", s)
	}
}
