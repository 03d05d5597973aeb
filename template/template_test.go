package template_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
)

// importEnv makes the test binary a program that imports what it is sent on
// stdin, to be killed in the middle.
const importEnv = "SKETE_TEMPLATE_IMPORT"

// imageEnv makes it make the image of a template instead.
const imageEnv = "SKETE_TEMPLATE_IMAGE"

func TestMain(m *testing.M) {
	if os.Getenv(pullEnv) != "" {
		pullAndDie()
		return
	}
	if dir := os.Getenv(importEnv); dir != "" {
		s, err := template.Open(dir)
		name := os.Getenv(imageEnv)
		if err == nil && name == "" {
			name = "killed"
			_, err = s.Import(context.Background(), name, os.Stdin)
		}
		if err == nil {
			var root template.Rootfs
			if root, err = s.Rootfs(context.Background(), name); err == nil {
				_, err = s.Image(context.Background(), root)
			}
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) (*template.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := template.Open(dir)
	must(t, err)
	return s, dir
}

func TestHost_showsOnlyWhatItShould(t *testing.T) {
	s, _ := open(t)
	root, err := s.Rootfs(context.Background(), template.HostName)
	must(t, err)
	for _, name := range []string{
		"proc", "sys", "dev", "tmp", "run", "workspace", "home/user", wire.BootDir, "var/lib/skete-guest", "var/tmp", "usr", "dev/shm", "tmp/.X11-unix",
	} {
		if info, err := os.Lstat(filepath.Join(root.Dir, name)); err != nil || !info.IsDir() {
			t.Errorf("no mount point %s: %v", name, err)
		}
	}
	for _, b := range root.Binds {
		if info, err := os.Lstat(filepath.Join(root.Dir, b.Target)); err != nil || !info.IsDir() {
			t.Errorf("no mount point for %s: %v", b.Target, err)
		}
		if b.Source != "/usr" && b.Source != "/bin" && b.Source != "/sbin" && !strings.HasPrefix(b.Source, "/lib") {
			t.Errorf("shows the host's %s", b.Source)
		}
	}
	for _, name := range []string{
		"etc/shadow", "etc/gshadow", "etc/ssh", "etc/machine-id", "etc/sudoers", "etc/ssl/private", "etc/environment",
		"etc/gitconfig", "etc/pip.conf", "etc/npmrc", "etc/docker", "etc/fstab", "etc/crontab", "etc/apt",
	} {
		if _, err := os.Lstat(filepath.Join(root.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("shows %s", name)
		}
	}
	for _, name := range []string{"opt", "root", "home/user", "workspace", "var/lib/skete-guest", "mnt", "srv"} {
		if names, _ := os.ReadDir(filepath.Join(root.Dir, name)); len(names) > 0 {
			t.Errorf("%s holds %v", name, names)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(root.Dir, "etc/passwd"))
	must(t, err)
	if !strings.Contains(string(passwd), "user:x:1000:1000:user:/home/user:/bin/bash\n") || strings.Count(string(passwd), "\n") != 4 {
		t.Errorf("passwd: %s", passwd)
	}
	if conf, err := os.ReadFile(filepath.Join(root.Dir, "etc/resolv.conf")); err != nil || len(conf) > 0 {
		t.Errorf("resolv.conf: %q %v", conf, err)
	}
	// No secret key among the certificates, nothing that only root may read.
	must(t, filepath.WalkDir(filepath.Join(root.Dir, "etc"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if bytes.Contains(data, []byte("PRIVATE KEY")) {
			t.Errorf("%s holds a key", p)
		}
		return err
	}))
}

func TestHost_isBuiltOnceAndShared(t *testing.T) {
	s, dir := open(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 20 {
		wg.Go(func() {
			other, err := template.Open(dir)
			if err != nil {
				t.Error(err)
				return
			}
			for _, st := range []*template.Store{s, other} {
				root, err := st.Rootfs(context.Background(), template.HostName)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[root.Dir] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("trees: %v", seen)
	}
	left(t, dir, 1)
}

// left checks how many trees there are, and that nothing is half-made.
func left(t testing.TB, dir string, trees int) {
	t.Helper()
	temps, err := os.ReadDir(filepath.Join(dir, "tmp"))
	must(t, err)
	all, err := os.ReadDir(filepath.Join(dir, "trees"))
	must(t, err)
	if len(temps) > 0 || len(all) != trees {
		t.Errorf("%d half-made, %d trees, want %d", len(temps), len(all), trees)
	}
}

// run runs a command with the template as its root, in a mount namespace.
func run(t testing.TB, root template.Rootfs, argv ...string) (string, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the root directory")
	}
	script := "set -e\n"
	for _, b := range root.Binds {
		script += fmt.Sprintf("mount --rbind '%s' '%s%s'\n", b.Source, root.Dir, b.Target)
	}
	script += fmt.Sprintf("exec chroot --userspec=1000:1000 '%s' \"$@\"\n", root.Dir)
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", script, "sh"}, argv...)...)
	cmd.Env = []string{"PATH=" + root.Env["PATH"]}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestHost_runsPrograms(t *testing.T) {
	s, _ := open(t)
	root, err := s.Rootfs(context.Background(), template.HostName)
	must(t, err)
	out, err := run(t, root, "sh", "-c", "id -un; for f in /etc/shadow /root/* /opt/* /home/user/*; do [ -e \"$f\" ] && echo \"$f\"; done; echo done")
	if err != nil || out != "user\ndone\n" {
		t.Fatalf("%q %v", out, err)
	}
	for _, lang := range template.LanguageNames() {
		l, err := s.Tool(context.Background(), template.HostName, lang)
		if errs.Is(err, errs.Unsupported) {
			t.Logf("%s: %v", lang, err)
			continue
		}
		must(t, err)
		if l.FromFile {
			continue
		}
		code := map[string]string{"python": "print(6*7)", "node": "console.log(6*7)", "ruby": "puts 6*7"}[lang]
		out, err := run(t, root, append(l.Argv, code)...)
		if err != nil || out != "42\n" {
			t.Errorf("%s: %q %v", lang, out, err)
		}
	}
}

func TestLanguage_onlyWhatIsVisibleInside(t *testing.T) {
	s, _ := open(t)
	ctx := context.Background()
	_, err := s.Tool(ctx, template.HostName, "cobol")
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "python, node, go, ruby") {
		t.Error(err)
	}
	// A tree whose python3 leads out of it, as a pyenv's shim does, and whose
	// node is a link that holds inside.
	_, err = s.Import(ctx, "odd", bytes.NewReader(tarWith(
		link("usr/bin/python3", "/root/.pyenv/shims/python3"), link("usr/bin/ruby", "ruby"),
		file("opt/node/bin/node", "#!", 0o755), link("usr/bin/node", "../../opt/node/bin/node"), file("usr/bin/go", "not a program", 0o644))))
	must(t, err)
	for lang, want := range map[string]errs.Class{
		"python": errs.Unsupported, "py": errs.Unsupported, "ruby": errs.Unsupported, "golang": errs.Unsupported,
		"node": "", "javascript": "", "JS": "",
	} {
		if got := errs.Of(s.Language(ctx, "odd", lang)); got != want {
			t.Errorf("%s: %q, want %q", lang, got, want)
		}
	}
	err = s.Language(ctx, "odd", "python")
	if !strings.Contains(errs.Hint(err), "python3") {
		t.Errorf("hint %q", errs.Hint(err))
	}
	l, err := s.Tool(ctx, "odd", "js")
	must(t, err)
	if diff := cmp.Diff(template.Language{Name: "node", Tool: "/usr/bin/node", Argv: []string{"node", "-e"}}, l); diff != "" {
		t.Error(diff)
	}
	err = s.Language(ctx, "none", "python")
	if !errs.Is(err, errs.NotFound) || !strings.Contains(errs.Public(err), "known: host, odd") {
		t.Error(err)
	}
}

// --- import

func file(name, content string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)), Linkname: content}
}

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

func tarWith(headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = io.WriteString(w, content)
	}
	_ = w.Close()
	return b.Bytes()
}

// program compiles a static program, for a root file system with nothing else.
func program(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	must(t, os.WriteFile(src, []byte("package main\nimport (\"fmt\";\"os\")\nfunc main() { fmt.Println(\"inside\", os.Getuid()) }\n"), 0o644))
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "p"), src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GO111MODULE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "p"))
	must(t, err)
	return b
}

func TestImport_aRootFileSystemRuns(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	plain := tarWith(
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		link("bin", "usr/bin"),
		file("bin/hello", string(program(t)), 0o4755),
		file("etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:5:5::/:/bin/sh", 0o644),
		link("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
		link("proc", "/etc"), link("workspace", "../../../tmp"),
		tar.Header{Name: "dev/sda", Typeflag: tar.TypeBlock})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(plain)
	must(t, z.Close())
	e, err := zstd.NewWriter(nil)
	must(t, err)
	var infos []template.Info
	for name, data := range map[string][]byte{"plain": plain, "gzip": zipped.Bytes(), "zstd": e.EncodeAll(plain, nil)} {
		info, err := s.Import(ctx, name, bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		infos = append(infos, info)
	}
	if infos[0].Hash != infos[1].Hash || infos[1].Hash != infos[2].Hash {
		t.Error("the same content has other hashes when packed")
	}
	left(t, dir, 1)
	root, err := s.Rootfs(ctx, "plain")
	must(t, err)
	passwd, err := os.ReadFile(filepath.Join(root.Dir, "etc/passwd"))
	must(t, err)
	if want := "root:x:0:0::/root:/bin/sh\nuser:x:5:5::/:/bin/sh\nsandbox:x:1000:1000:user:/home/user:/bin/bash\n"; string(passwd) != want {
		t.Errorf("passwd %q", passwd)
	}
	for _, name := range []string{"proc", "workspace", "home/user", wire.BootDir} {
		if info, err := os.Lstat(filepath.Join(root.Dir, name)); err != nil || !info.IsDir() {
			t.Errorf("%s is no directory: %v", name, err)
		}
	}
	info, err := os.Lstat(filepath.Join(root.Dir, "usr/bin/hello"))
	must(t, err)
	if info.Mode() != 0o755|fs.ModeSetuid && os.Geteuid() == 0 {
		t.Errorf("mode %v: set-id bits are the image's, and nobody on this host reaches them", info.Mode())
	}
	if info, err := os.Stat(filepath.Dir(root.Dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the trees are open to others: %v %v", info.Mode(), err)
	}
	if _, err := os.Lstat(filepath.Join(root.Dir, "dev/sda")); err == nil {
		t.Error("a device was made")
	}
	out, err := run(t, root, "/bin/hello")
	if err != nil || out != "inside 1000\n" {
		t.Errorf("%q %v", out, err)
	}
}

func TestImport_hostileArchives(t *testing.T) {
	s, dir := open(t)
	s.SetLimits(template.Limits{Bytes: 80 << 20, Entries: 50, Ratio: 100})
	many := make([]tar.Header, 60)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "", 0o644)
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(tarWith(file("zeros", strings.Repeat("\x00", 79<<20), 0o644)))
	must(t, z.Close())
	for _, c := range []struct {
		name string
		data []byte
		want errs.Class
	}{
		{"empty", nil, errs.Invalid},
		{"an archive without entries", make([]byte, 1024), errs.Invalid},
		{"not an archive", bytes.Repeat([]byte("garbage "), 1000), errs.Invalid},
		{"cut off", tarWith(file("a", "content", 0o644))[:516], errs.Invalid},
		{"damaged gzip", append([]byte{0x1f, 0x8b, 8}, bytes.Repeat([]byte("x"), 100)...), errs.Invalid},
		{"damaged zstd", append([]byte{0x28, 0xb5, 0x2f, 0xfd}, bytes.Repeat([]byte("x"), 100)...), errs.Invalid},
		{"cut gzip", bomb.Bytes()[:100], errs.Invalid},
		{"xz", []byte("\xfd7zXZ\x00data"), errs.Invalid},
		{"dot dot", tarWith(file("../escape", "x", 0o644)), errs.Invalid},
		{"dot dot inside", tarWith(file("a/../../escape", "x", 0o644)), errs.Invalid},
		{"hard link outside", tarWith(tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "../../../etc/passwd"}), errs.Invalid},
		{"too many entries", tarWith(many...), errs.Limit},
		{"too large", tarWith(file("a", strings.Repeat("x", 81<<20), 0o644)), errs.Limit},
		{"a bomb", bomb.Bytes(), errs.Limit},
		{"deep", tarWith(file(strings.Repeat("d/", 200)+"f", "", 0o644)), errs.Limit},
		{"an image", tarWith(file("manifest.json", "[]", 0o644), file("abc.json", "{}", 0o644)), errs.Invalid},
		{"a file in place of etc, a directory in it", tarWith(file("etc", "x", 0o644), file("etc/passwd", "x", 0o644)), errs.Invalid},
	} {
		_, err := s.Import(context.Background(), "evil", bytes.NewReader(c.data))
		if got := errs.Of(err); got != c.want {
			t.Errorf("%s: %q, want %q (%v)", c.name, got, c.want, err)
		}
	}
	left(t, dir, 0)
	// Absolute names and links mean what they mean inside.
	_, err := s.Import(context.Background(), "good", bytes.NewReader(tarWith(
		link("lnk", "/"), file("/lnk/abs", "x", 0o644), link("etc", "/tmp/evil"), link("out", "../../../../../../tmp"), file("out/inside", "x", 0o644))))
	must(t, err)
	root, err := s.Rootfs(context.Background(), "good")
	must(t, err)
	for _, name := range []string{"abs", "tmp/inside", "etc/passwd"} {
		if _, err := os.Lstat(filepath.Join(root.Dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestNames_areChecked(t *testing.T) {
	s, _ := open(t)
	ctx := context.Background()
	good := tarWith(file("a", "x", 0o644))
	for _, name := range []string{"", ".", "..", "../x", "a/b", "A", "a\n", "a\x00", "-a", strings.Repeat("a", 65), "\xff", "host"} {
		if _, err := s.Import(ctx, name, bytes.NewReader(good)); !errs.Is(err, errs.Invalid) {
			t.Errorf("import %q: %v", name, err)
		}
		if name == "host" {
			continue
		}
		if _, err := s.Rootfs(ctx, name); !errs.Is(err, errs.Invalid) {
			t.Errorf("rootfs %q: %v", name, err)
		}
		if err := s.Remove(ctx, name); !errs.Is(err, errs.Invalid) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
}

func TestRemove_waitsForMachines(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	info, err := s.Import(ctx, "a", bytes.NewReader(tarWith(file("a", "x", 0o644))))
	must(t, err)
	_, err = s.Import(ctx, "b", bytes.NewReader(tarWith(file("a", "x", 0o644))))
	must(t, err)
	list, err := s.List(ctx)
	must(t, err)
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	if !slices.Equal(names, []string{"host", "a", "b"}) {
		t.Errorf("%v", names)
	}
	used := true
	s.Guard(func(hash string) bool { return used && hash == info.Hash })
	if err := s.Remove(ctx, "a"); !errs.Is(err, errs.Conflict) {
		t.Error(err)
	}
	used = false
	must(t, s.Remove(ctx, "a"))
	left(t, dir, 2) // the host's, and b has the other
	must(t, s.Remove(ctx, "b"))
	left(t, dir, 1)
	if err := s.Remove(ctx, "b"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	if err := s.Remove(ctx, "host"); !errs.Is(err, errs.Denied) {
		t.Error(err)
	}
}

func TestImport_killedInTheMiddleIsSwept(t *testing.T) {
	_, dir := open(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), importEnv+"="+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	data := tarWith(file("a", strings.Repeat("x", 1<<20), 0o644), file("b", strings.Repeat("x", 4<<20), 0o644))
	_, err = in.Write(data[:3<<20])
	must(t, err)
	// Another process that opens the store leaves the import alone.
	_, err = template.Open(dir)
	must(t, err)
	if temps, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(temps) != 1 {
		t.Fatalf("the import under way was swept: %v", temps)
	}
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	s, err := template.Open(dir)
	must(t, err)
	left(t, dir, 0)
	if _, err := s.Rootfs(context.Background(), "killed"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
}

func BenchmarkHostRootfs(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := template.Open(dir)
		must(b, err)
		_, err = s.Rootfs(context.Background(), template.HostName)
		must(b, err)
	}
}
