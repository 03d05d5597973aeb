package recipe_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/recipe"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const whole = `from: debian
packages: [jq, g++, "curl=7.88.1-10+deb12u5"]
files:
  - {from: tool.py, to: /usr/local/bin/tool, mode: "0755", owner: "root:root"}
  - {from: ./data/, to: /opt/data/}
run:
  - tool --install
  - |
    echo two
    echo lines
env: {TOOL_HOME: /opt/tool}
user: user
workdir: /workspace
start: tool serve
ready: tool ping
ready_timeout: 5s
cpus: 1.5
memory_mb: 2048
`

func TestParse_everyKey(t *testing.T) {
	got, err := recipe.Parse("r.yaml", []byte(whole))
	must(t, err)
	want := recipe.Recipe{
		From: "debian", Packages: []string{"jq", "g++", "curl=7.88.1-10+deb12u5"},
		Files: []recipe.File{{From: "tool.py", To: "/usr/local/bin/tool", Mode: "0755", Owner: "root:root"}, {From: "data", To: "/opt/data/"}},
		Run:   []string{"tool --install", "echo two\necho lines\n"}, Env: map[string]string{"TOOL_HOME": "/opt/tool"},
		User: "user", Workdir: "/workspace", Start: "tool serve", Ready: "tool ping", ReadyTimeout: 5 * time.Second,
		CPUs: 1.5, MemoryMB: 2048,
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(recipe.Recipe{})); d != "" {
		t.Error(d)
	}
	if at := got.Place("run[1]"); at != "r.yaml:8:5" {
		t.Errorf("run[1] is at %s", at)
	}
}

func TestParse_refusesWithThePlace(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "from"},
		{"no from", "run: [x]\n", `"from" is missing`},
		{"unknown key", "from: debian\nrnu: [x]\n", "r.yaml:2:1"},
		{"a near key", "from: debian\npackage: [x]\n", `did you mean "packages"`},
		{"twice", "from: debian\nfrom: ruby\n", "r.yaml:2:1"},
		{"wrong kind", "from: debian\nrun: {a: b}\n", "r.yaml:2:"},
		{"host", "from: host\n", "host's own programs"},
		{"spaces in from", "from: a b\n", "r.yaml:1:"},
		{"bad package", "from: debian\npackages:\n  - jq\n  - -y\n", "r.yaml:4:"},
		{"package that removes", "from: debian\npackages: [jq-]\n", "not the name of a package"},
		{"package with a path", "from: debian\npackages: [./x.deb]\n", "not the name of a package"},
		{"package with an option", "from: debian\npackages: [\"jq -o x\"]\n", "not the name of a package"},
		{"file outside", "from: debian\nfiles:\n  - {from: ../x, to: /x}\n", "r.yaml:3:"},
		{"absolute file", "from: debian\nfiles: [{from: /etc/passwd, to: /x}]\n", "not a path beneath"},
		{"relative target", "from: debian\nfiles: [{from: x, to: x}]\n", "not an absolute path"},
		{"target that climbs", "from: debian\nfiles: [{from: x, to: /a/../../x}]\n", "not an absolute path"},
		{"target that is not kept", "from: debian\nfiles: [{from: x, to: /workspace/x}]\n", "nothing below /workspace is kept"},
		{"bad mode", "from: debian\nfiles: [{from: x, to: /x, mode: \"4755\"}]\n", "not \"0000\""},
		{"mode in words", "from: debian\nfiles: [{from: x, to: /x, mode: u+x}]\n", "not \"0000\""},
		{"bad owner", "from: debian\nfiles: [{from: x, to: /x, owner: \"a b\"}]\n", "USER:GROUP"},
		{"owner that is an option", "from: debian\nfiles: [{from: x, to: /x, owner: \"--help\"}]\n", "USER:GROUP"},
		{"empty command", "from: debian\nrun: [\"  \"]\n", "empty command"},
		{"command with NUL", "from: debian\nrun: [\"a\\0b\"]\n", "NUL"},
		{"bad variable", "from: debian\nenv: {1A: x}\n", "no variable"},
		{"bad user", "from: debian\nuser: postgres\n", `neither "user" nor "root"`},
		{"a network that is too wide", "from: debian\nnetwork: open\n", "r.yaml:2:"},
		{"relative workdir", "from: debian\nworkdir: x\n", "not an absolute path"},
		{"too long a wait", "from: debian\nready: x\nready_timeout: 1h\n", "not in 0s"},
		{"a wait for nothing", "from: debian\nready_timeout: 1s\n", "no \"ready\""},
		{"processors below none", "from: debian\ncpus: -1\n", "not in 0 to 1024"},
		{"processors that are no number", "from: debian\ncpus: .nan\n", "r.yaml:2:"},
		{"more memory than there is", "from: debian\nmemory_mb: 99999999999\n", "not in 0 to 16777216"},
		{"memory in words", "from: debian\nmemory_mb: 2g\n", "r.yaml:2:"},
		{"too many commands", "from: debian\nrun: [" + strings.Repeat("x, ", 65) + "]\n", "at most 64"},
		{"too large", "from: debian\nrun: [" + strings.Repeat("x", 70<<10) + "]\n", "larger"},
		{"references", "from: debian\nenv: &a {A: b}\n", "r.yaml:2:"},
		{"no yaml", "from: [\n", "r.yaml"},
	} {
		_, err := recipe.Parse("r.yaml", []byte(c.text))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("from: a\nfiles: [{from: a/../b, to: /b//c/}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := recipe.Parse("r.yaml", []byte(text))
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("class of %v", err)
			}
			return
		}
		for _, x := range r.Files {
			if !filepath.IsLocal(x.From) || !strings.HasPrefix(x.To, "/") || strings.Contains(x.To, "/../") {
				t.Fatalf("took %+v", x)
			}
		}
		for _, p := range r.Packages {
			if strings.HasPrefix(p, "-") || strings.ContainsAny(p, " /\n\x00") {
				t.Fatalf("took package %q", p)
			}
		}
	})
}

// folder writes a recipe and files beside it.
func folder(t testing.TB, text string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, recipe.FileName), []byte(text), 0o600))
	for name, content := range files {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func openFolder(t testing.TB, dir string) *recipe.Folder {
	t.Helper()
	f, err := recipe.Open(dir)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// sent is a folder as the server gets it.
func sent(t testing.TB, dir string) *recipe.Folder {
	t.Helper()
	tar := openFolder(t, dir).Tar(context.Background())
	defer tar.Close()
	f, err := recipe.Unpack(context.Background(), t.TempDir(), tar)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTar_sendsWhatTheRecipeNamesAndNothingElse(t *testing.T) {
	dir := folder(t, "from: x\nfiles: [{from: a, to: /a}, {from: a/b, to: /b}]\n", map[string]string{"a/b": "B", "a/c": "C", "secret": "S"})
	tar := openFolder(t, filepath.Join(dir, recipe.FileName)).Tar(t.Context())
	defer tar.Close()
	into := t.TempDir()
	f, err := recipe.Unpack(t.Context(), into, tar)
	must(t, err)
	must(t, f.Close())
	var names []string
	must(t, filepath.WalkDir(into, func(p string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(into, p)
		names = append(names, rel)
		return err
	}))
	if d := cmp.Diff([]string{".", "a", "a/b", "a/c", recipe.FileName}, names); d != "" {
		t.Error(d)
	}
}

// A link in the context must not bring a file of the host's along.
func TestOpen_linksLeadNowhereElse(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "canary")
	must(t, os.WriteFile(outside, []byte("canary"), 0o600))
	dir := folder(t, "from: x\nfiles: [{from: link, to: /x}, {from: d/canary, to: /y}]\n", nil)
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(dir, "d")))
	f, err := recipe.Open(dir)
	if err != nil {
		return // refused at once
	}
	defer f.Close()
	tar := f.Tar(t.Context())
	defer tar.Close()
	b, _ := io.ReadAll(tar)
	if bytes.Contains(b, []byte("canary\x00")) && !bytes.Contains(b, []byte(outside)) {
		t.Error("the content of a file outside was packed")
	}
}

func TestUnpack_refusesHostileArchives(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "no tar": strings.Repeat("x", 2000)} {
		if _, err := recipe.Unpack(t.Context(), t.TempDir(), strings.NewReader(text)); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettingsOf_trustsNoTree(t *testing.T) {
	write := func(text string) string {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "etc/skete"), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "etc/skete/template.json"), []byte(text), 0o600))
		return dir
	}
	got := recipe.SettingsOf(write(`{"env":{"A":"1","B=C":"2","1D":"3","E":"\u0000"},"start":"x"}`))
	if d := cmp.Diff(recipe.Settings{Env: map[string]string{"A": "1"}, Start: "x"}, got); d != "" {
		t.Error(d)
	}
	got = recipe.SettingsOf(write(`{"user":"bob","workdir":"../x","start":"a\u0000b","ready":"` + strings.Repeat("x", 20<<10) + `","ready_timeout_ms":9999999,"cpus":-1,"memory_mb":1000000000000}`))
	if d := cmp.Diff(recipe.Settings{}, got); d != "" {
		t.Errorf("what no recipe could say: %s", d)
	}
	got = recipe.SettingsOf(write(`{"user":"root","workdir":"/srv","start":"a","ready":"b","ready_timeout_ms":1500,"cpus":2,"memory_mb":2048}`))
	want := template.Use{User: "root", Workdir: "/srv", Start: "a", Ready: "b", ReadyTimeout: 1500 * time.Millisecond}
	if d := cmp.Diff(want, got.Use()); d != "" {
		t.Error(d)
	}
	if needs := got.Needs(); needs != (template.Needs{CPUs: 2, MemoryMB: 2048}) {
		t.Errorf("%+v", needs)
	}
	outside := write(`{"env":{"A":"canary"}}`)
	linked := t.TempDir()
	must(t, os.Symlink(filepath.Join(outside, "etc"), filepath.Join(linked, "etc")))
	for name, dir := range map[string]string{
		"none": t.TempDir(), "no json": write("{"), "too large": write(`{"start":"` + strings.Repeat("x", 300<<10) + `"}`), "a link out of the tree": linked,
	} {
		if d := cmp.Diff(recipe.Settings{}, recipe.SettingsOf(dir)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
