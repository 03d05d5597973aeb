package ui

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// sources is a copy of the UI's sources, in a copy of what lies around them that leads to
// the whole, with its packages installed.
type sources struct {
	root, dir string
	env       []string
}

func newSources(t *testing.T) sources {
	t.Helper()
	if testing.Short() {
		t.Skip("to build the UI takes too long for -short")
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	ui := filepath.Join(top, "web", "ui")
	modules := browser.Install(t, ui)
	s := sources{root: t.TempDir(), env: append(os.Environ(), "PATH="+filepath.Dir(browser.Node(t))+string(os.PathListSeparator)+os.Getenv("PATH"))}
	s.dir = filepath.Join(s.root, "web", "ui")
	link(t, top, s.root, "web", "scripts", "examples")
	must(t, os.MkdirAll(s.dir, 0o755))
	link(t, filepath.Join(top, "web"), filepath.Join(s.root, "web"), "ui", "dist")
	// Names of chunks come from where their files really are.
	must(t, os.CopyFS(filepath.Join(s.root, "examples"), os.DirFS(filepath.Join(top, "examples"))))
	must(t, os.CopyFS(filepath.Join(s.root, "scripts"), os.DirFS(filepath.Join(top, "scripts"))))
	must(t, filepath.WalkDir(ui, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(ui, name)
		switch {
		case rel == "node_modules":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(s.dir, rel), 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.dir, rel), data, 0o644)
	}))
	must(t, os.Symlink(modules, filepath.Join(s.dir, "node_modules")))
	// The packages are those of the lock, whatever the clock says.
	must(t, os.Chtimes(filepath.Join(s.dir, "package-lock.json"), time.Unix(1, 0), time.Unix(1, 0)))
	return s
}

// link makes links to all that a folder holds, but for some.
func link(t *testing.T, from, to string, but ...string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	must(t, err)
	for _, e := range entries {
		if !slices.Contains(but, e.Name()) && e.Name() != ".git" {
			must(t, os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a program in the sources' folder; what it says is shown if it fails.
func (s sources) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out []byte
	var err error
	patience.Within(t, 2*time.Minute, name, func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

// The UI's own checks hold: its types, its style, its tests.
func TestSources_passTheirChecks(t *testing.T) {
	s := newSources(t)
	bin := filepath.Join(s.dir, "node_modules", ".bin")
	s.run(t, filepath.Join(bin, "tsc"), "--noEmit")
	s.run(t, filepath.Join(bin, "biome"), "check", "src", "test")
	s.run(t, filepath.Join(bin, "vitest"), "run")
}

// What the program carries is what the sources make.
func TestBuild_isThatOfTheSources(t *testing.T) {
	s := newSources(t)
	out := filepath.Join(t.TempDir(), "dist")
	s.run(t, filepath.Join(s.root, "scripts", "web"), out)
	if t.Failed() {
		return
	}
	got, want := unpacked(t, out), dist(t)
	for name := range got {
		if _, is := want[name]; !is {
			t.Errorf("web/dist lacks %s", name)
		}
	}
	for name, text := range want {
		if built, is := got[name]; !is {
			t.Errorf("web/dist has %s, which the sources do not make", name)
		} else if !bytes.Equal(built, text) {
			t.Errorf("%s differs", name)
		}
	}
	if t.Failed() {
		t.Error("build it anew with scripts/web, in a commit of its own")
	}
}

func dist(t *testing.T) map[string][]byte {
	t.Helper()
	return unpacked(t, filepath.Join("..", "..", "web", "dist"))
}

// unpacked are the files of a built UI by their names.
func unpacked(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name, packed := range packed(t, dir) {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		must(t, err)
		text, err := io.ReadAll(z)
		must(t, err)
		files[name] = text
	}
	return files
}

func packed(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, is := strings.CutSuffix(name, ".gz")
		if !is {
			return fmt.Errorf("%s is not packed", name)
		}
		files[plain], err = os.ReadFile(filepath.Join(dir, name))
		return err
	}))
	return files
}

// Budgets, in bytes as they are sent.
const (
	homeMax = 110 << 10
	runMax  = 190 << 10
	paneMax = 110 << 10
	allMax  = 900 << 10
)

var (
	pageLoads = regexp.MustCompile(`(?:src|href)="/ui/([^"]+\.(?:js|css))"`)
	imports   = regexp.MustCompile(`(?:from|import)\s*["']\./([^"']+)["']`)
	lazily    = regexp.MustCompile("import\\(\\s*[\"'`]\\./([^\"'`]+)[\"'`]\\s*\\)(?:,\\s*__vite__mapDeps\\(\\[([0-9,]*)\\]\\))?")
	mapped    = regexp.MustCompile(`m\.f\s*=\s*\[([^\]]*)\]`)
	named     = regexp.MustCompile("[\"'`]([^\"'`]+)[\"'`]")
)

// load adds a file and what it loads at once.
func load(files map[string][]byte, loaded map[string]bool, name string) {
	if loaded[name] {
		return
	}
	loaded[name] = true
	if path.Ext(name) != ".js" {
		return
	}
	for _, m := range imports.FindAllSubmatch(files[name], -1) {
		load(files, loaded, "assets/"+string(m[1]))
	}
}

// lazy are the files that a chunk brings with it when it is loaded later, itself first, by its file.
func lazy(files map[string][]byte, loaded map[string]bool) map[string][]string {
	found := map[string][]string{}
	for name := range loaded {
		var deps []string
		if m := mapped.FindSubmatch(files[name]); m != nil {
			for _, n := range named.FindAllSubmatch(m[1], -1) {
				deps = append(deps, strings.TrimPrefix(strings.TrimPrefix(string(n[1]), "/ui/"), "ui/"))
			}
		}
		for _, m := range lazily.FindAllSubmatch(files[name], -1) {
			chunk := string(m[1])
			brings := []string{"assets/" + chunk}
			for at := range strings.SplitSeq(string(m[2]), ",") {
				var i int
				if _, err := fmt.Sscan(at, &i); err == nil && i < len(deps) {
					brings = append(brings, deps[i])
				}
			}
			found[chunk] = brings
		}
	}
	return found
}

// panes tells of every chunk that is loaded later, and of those that it loads later itself, what
// it brings that was not there before.
func panes(files map[string][]byte, loaded, seen map[string]bool, each func(chunk string, brings map[string]bool)) {
	later := lazy(files, loaded)
	for _, chunk := range slices.Sorted(maps.Keys(later)) {
		first := later[chunk][0]
		if seen[first] || loaded[first] {
			continue
		}
		seen[first] = true
		with := maps.Clone(loaded)
		for _, name := range later[chunk] {
			load(files, with, name)
		}
		brings := maps.Clone(with)
		maps.DeleteFunc(brings, func(name string, _ bool) bool { return loaded[name] })
		each(first, brings)
		panes(files, with, seen, each)
	}
}

// The first pages load little, and what is heavy is loaded when it is looked at.
func TestBuild_keepsItsBudgets(t *testing.T) {
	files := dist(t)
	sizes := packed(t, filepath.Join("..", "..", "web", "dist"))
	size := func(names map[string]bool) (n int) {
		for name := range names {
			if _, is := sizes[name]; !is {
				t.Fatalf("%s is loaded, and is not there", name)
			}
			n += len(sizes[name])
		}
		return n
	}
	home := map[string]bool{}
	for _, m := range pageLoads.FindAllSubmatch(files["index.html"], -1) {
		load(files, home, string(m[1]))
	}
	if len(home) < 3 {
		t.Fatalf("the page loads %v", home)
	}
	run, later := maps.Clone(home), lazy(files, home)
	open := func(chunk string) {
		found := false
		for file, brings := range later {
			if file[:max(0, len(file)-len("-12345678.js"))] != chunk {
				continue
			}
			found = true
			for _, name := range brings {
				load(files, run, name)
			}
		}
		if !found {
			t.Fatalf("no chunk %s is loaded later, but %v", chunk, slices.Sorted(maps.Keys(later)))
		}
	}
	open("page")
	later = lazy(files, run)
	open("changes") // the pane that a run opens with
	all, lone := map[string]bool{}, map[string]bool{}
	for name := range sizes {
		all[name] = true
		lone[name] = path.Ext(name) == ".js" && !home[name]
	}
	most, heaviest := 0, ""
	panes(files, home, map[string]bool{}, func(chunk string, brings map[string]bool) {
		n := size(brings)
		for name := range brings {
			delete(lone, name)
		}
		if n > most {
			most, heaviest = n, chunk
		}
		if n > paneMax {
			t.Errorf("%s brings %d bytes, at most %d: %v", chunk, n, paneMax, slices.Sorted(maps.Keys(brings)))
		}
	})
	t.Logf("the heaviest pane, %s, brings %d bytes of %d", heaviest, most, paneMax)
	for name, is := range lone {
		if is {
			t.Errorf("%s is loaded by no page", name)
		}
	}
	for _, is := range []struct {
		what      string
		got, most int
	}{{"the first page", size(home), homeMax}, {"the page of a run", size(run), runMax}, {"all", size(all), allMax}} {
		t.Logf("%s: %d bytes of %d", is.what, is.got, is.most)
		if is.got > is.most {
			t.Errorf("%s takes %d bytes, at most %d", is.what, is.got, is.most)
		}
	}
}
