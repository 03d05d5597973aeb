package template_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/oci"
)

// saved is what `docker save` writes.
func saved(t testing.TB, img v1.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	tag, err := name.NewTag("example.test/app:v1")
	must(t, err)
	must(t, tarball.Write(tag, img, &b))
	return b.Bytes()
}

// layoutDir writes an OCI layout.
func layoutDir(t testing.TB, imgs ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	must(t, err)
	for _, img := range imgs {
		must(t, l.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "app"})))
	}
	return dir
}

// tarOf packs a directory.
func tarOf(t testing.TB, dir, prefix string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		must(t, err)
		hdr, err := tar.FileInfoHeader(info, "")
		must(t, err)
		hdr.Name = prefix + rel
		must(t, w.WriteHeader(hdr))
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			must(t, err)
			_, err = w.Write(data)
			must(t, err)
		}
		return nil
	}))
	must(t, w.Close())
	return b.Bytes()
}

func TestImport_everyFormGivesTheSameTree(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	layers := [][]byte{
		tarWith(file("a", "one", 0o644), file("gone", "x", 0o644)),
		tarWith(file("b", "two", 0o4755), file(".wh.gone", "", 0), tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "a"}),
	}
	img := image(t, "", layers...)
	h := newHouse(t)
	pulled, err := pull(t, s, h.push(t, "app", img))
	must(t, err)
	inLayout := layoutDir(t, img)
	for name, data := range map[string][]byte{
		"saved": saved(t, img), "layout": tarOf(t, inLayout, ""), "layout-dot": tarOf(t, inLayout, "./"),
		"plain": tarWith(file("a", "one", 0o644), file("b", "two", 0o4755), tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "a"}),
	} {
		info, err := s.Import(ctx, name, bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info.Hash != pulled.Hash {
			t.Errorf("%s: another tree than the one that was pulled", name)
		}
		if (info.Source == nil) != (name == "plain") || info.Source != nil && !slices.Equal(info.Source.Config.Entrypoint, []string{"/entry"}) {
			t.Errorf("%s: source %+v", name, info.Source)
		}
	}
	left(t, dir, 1)
	// The same from the directory itself, as a client that packs nothing would.
	files, err := oci.Directory(inLayout)
	must(t, err)
	defer files.Close()
	found, err := oci.FromFiles(files, oci.Options{})
	must(t, err)
	if len(found.Layers) != 2 || found.Digest != pulled.Source.Digest {
		t.Errorf("%+v", found)
	}
}

func TestImport_refusesBrokenImages(t *testing.T) {
	s, dir := open(t)
	img := image(t, "", tarWith(file("a", "one", 0o644)))
	with := func(change func(dir string)) []byte {
		d := layoutDir(t, img)
		change(d)
		return tarOf(t, d, "")
	}
	blobs := func(d string, visit func(path string, data []byte)) {
		entries, err := os.ReadDir(filepath.Join(d, "blobs/sha256"))
		must(t, err)
		for _, e := range entries {
			path := filepath.Join(d, "blobs/sha256", e.Name())
			data, err := os.ReadFile(path)
			must(t, err)
			visit(path, data)
		}
	}
	two := image(t, "", tarWith(file("b", "two", 0o644)))
	var several bytes.Buffer
	tags := map[name.Tag]v1.Image{}
	for n, i := range []v1.Image{img, two} {
		tag, err := name.NewTag(fmt.Sprint("example.test/", n))
		must(t, err)
		tags[tag] = i
	}
	must(t, tarball.MultiWrite(tags, &several))
	wrongDiff := func() []byte {
		c, err := img.ConfigFile()
		must(t, err)
		c = c.DeepCopy()
		c.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
		bad, err := mutate.ConfigFile(img, c)
		must(t, err)
		return tarOf(t, layoutDir(t, bad), "")
	}
	for _, c := range []struct {
		name string
		data []byte
		want errs.Class
		says string
	}{
		{"several images", several.Bytes(), errs.Invalid, "2 images"},
		{"two images in a layout", tarOf(t, layoutDir(t, img, two), ""), errs.Unsupported, ""},
		{"no index", with(func(d string) { must(t, os.Remove(filepath.Join(d, "index.json"))) }), errs.Invalid, "index.json"},
		{"an index that is none", with(func(d string) { must(t, os.WriteFile(filepath.Join(d, "index.json"), []byte("{"), 0o600)) }), errs.Invalid, ""},
		{"no blobs", with(func(d string) { must(t, os.RemoveAll(filepath.Join(d, "blobs"))) }), errs.Invalid, "lacks"},
		{"a changed document", with(func(d string) {
			blobs(d, func(path string, data []byte) {
				if data[0] == '{' {
					must(t, os.WriteFile(path, append(data, ' '), 0o600))
				}
			})
		}), errs.Corrupt, "sha256:"},
		{"a cut layer", with(func(d string) {
			blobs(d, func(path string, data []byte) {
				if data[0] != '{' {
					must(t, os.WriteFile(path, data[:len(data)-5], 0o600))
				}
			})
		}), errs.Invalid, ""},
		{"a layer of another image", wrongDiff(), errs.Corrupt, ""},
		{"for another machine", tarOf(t, layoutDir(t, image(t, "s390x", tarWith(file("a", "", 0o644)))), ""), errs.Unsupported, ""},
		{"a manifest.json that is none", tarWith(file("manifest.json", "{", 0o644)), errs.Invalid, ""},
		{"a saved image without its layers", tarWith(file("manifest.json", `[{"Config":"c.json","Layers":["x/layer.tar"]}]`, 0o644), file("c.json", `{"rootfs":{"diff_ids":["sha256:`+strings.Repeat("0", 64)+`"]}}`, 0o644)), errs.Invalid, "lacks"},
		{"a saved image whose names lead out", tarWith(file("manifest.json", `[{"Config":"../../../etc/passwd","Layers":["../../../etc/passwd"]}]`, 0o644)), errs.Invalid, "lacks"},
		{"links in a circle", tarWith(file("manifest.json", `[{"Config":"a","Layers":["a"]}]`, 0o644), link("a", "b"), link("b", "a")), errs.Invalid, "lacks"},
	} {
		_, err := s.Import(context.Background(), "bad", bytes.NewReader(c.data))
		if got := errs.Of(err); got != c.want || !strings.Contains(errs.Public(err), c.says) {
			t.Errorf("%s: %q, want %q that says %q (%v)", c.name, got, c.want, c.says, err)
		}
	}
	left(t, dir, 0)
}

func TestImport_contentIsUmocis(t *testing.T) {
	umoci, err := exec.LookPath("umoci")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs umoci and root to compare with")
	}
	s, _ := open(t)
	img := image(t, "", rich(),
		tarWith(file("srv/large", "small", 0o600), file("usr/bin/.wh.wall", "", 0), file("srv/new/deep/x", "x", 0o640),
			tar.Header{Name: "srv/closed/", Typeflag: tar.TypeDir, Mode: 0o3711, Uid: 9, Gid: 9}),
		tarWith(file("srv/closed/.wh..wh..opq", "", 0), file("srv/closed/again", "again", 0o400), link("srv/new/deep/l", "x"),
			tar.Header{Name: "usr/bin/third", Typeflag: tar.TypeLink, Linkname: "usr/bin/ping"}))
	img, err = mutate.Config(img, v1.Config{}) // umoci wants to know the user
	must(t, err)
	lay := layoutDir(t, img)
	_, err = s.Import(context.Background(), "mine", bytes.NewReader(tarOf(t, lay, "")))
	must(t, err)
	root, err := s.Rootfs(context.Background(), "mine")
	must(t, err)
	theirs := filepath.Join(t.TempDir(), "bundle")
	if out, err := exec.Command(umoci, "unpack", "--image", lay+":app", theirs).CombinedOutput(); err != nil {
		t.Fatalf("umoci: %v %s", err, out)
	}
	want, have := listing(t, filepath.Join(theirs, "rootfs")), listing(t, root.Dir)
	// What sandboxes need is ours: mount points and a few files of etc. The
	// times of directories that no tar names are the writer's own.
	ours := []string{"proc", "sys", "dev", "run", "var", "home", "etc", "opt", "mnt", "srv", "usr", "tmp", "root", ".skete", "workspace", "lost+found"}
	for name := range maps.Keys(have) {
		if top, _, deep := strings.Cut(name, "/"); slices.Contains(ours, top) && (!deep || want[name] == "") {
			delete(have, name)
			delete(want, name)
		}
	}
	delete(have, ".")
	delete(want, ".")
	delete(want, "lost+found")
	delete(want, "srv")
	delete(want, "usr")
	for _, m := range []map[string]string{have, want} {
		for _, name := range []string{"srv/new", "srv/new/deep"} {
			m[name], _, _ = strings.Cut(m[name], " time ")
		}
	}
	if diff := cmp.Diff(want, have); diff != "" || len(have) < 12 {
		t.Errorf("%d names (-umoci +ours)\n%s", len(have), diff)
	}
}

func TestImport_aHundredThousandFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: not with -short")
	}
	s, dir := open(t)
	ctx := context.Background()
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		for i := range 100_000 {
			h := file(fmt.Sprintf("srv/%d/%d/file-%d", i/15_000, i/333, i), "x", 0o644)
			h.Linkname = ""
			if tw.WriteHeader(&h) != nil {
				return
			}
			_, _ = tw.Write([]byte("x"))
		}
		_ = w.CloseWithError(tw.Close())
	}()
	start := time.Now()
	info, err := s.Import(ctx, "many", r)
	must(t, err)
	imported := time.Now()
	root, err := s.Rootfs(ctx, "many")
	must(t, err)
	image, err := s.Image(ctx, root)
	must(t, err)
	t.Logf("import %v, image %v", imported.Sub(start).Round(time.Millisecond), time.Since(imported).Round(time.Millisecond))
	n := 0
	f, err := os.Open(filepath.Join(dir, "lists", info.Hash+".list"))
	must(t, err)
	defer f.Close()
	must(t, template.ReadManifest(f, 200_000, func(e template.Entry) error {
		if e.Kind == template.EntryFile && strings.HasPrefix(e.Path, "srv/") {
			n++
		}
		return nil
	}))
	if n != 100_000 {
		t.Errorf("%d files in the manifest", n)
	}
	n = 0
	must(t, filepath.WalkDir(filepath.Join(mounted(t, image), "srv"), func(_ string, d fs.DirEntry, err error) error {
		if d != nil && d.Type().IsRegular() {
			n++
		}
		return err
	}))
	if n != 100_000 {
		t.Errorf("%d files in the image", n)
	}
}

func TestImage_killedInTheMiddleIsSwept(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	_, err := s.Import(ctx, "big", bytes.NewReader(tarWith(noise("srv/a", 48<<20))))
	must(t, err)
	root, err := s.Rootfs(ctx, "big")
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), importEnv+"="+dir, imageEnv+"=big")
	must(t, cmd.Start())
	for deadline := time.Now().Add(patience.Of(30 * time.Second)); ; {
		found, _ := filepath.Glob(filepath.Join(dir, "tmp", "*", "image"))
		if len(found) == 1 {
			if info, err := os.Stat(found[0]); err == nil && info.Size() > 4<<20 {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the image was not begun, or was done too early")
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	if found, _ := filepath.Glob(filepath.Join(dir, "images", "*")); len(found) > 0 {
		t.Skip("the image was whole before the kill")
	}
	again, err := template.Open(dir)
	must(t, err)
	left(t, dir, 1)
	image, err := again.Image(ctx, root)
	must(t, err)
	if diff := cmp.Diff(listing(t, root.Dir), listing(t, mounted(t, image))); diff != "" {
		t.Error(diff)
	}
}

// parts keeps what comes with bundles in memory.
type parts struct {
	files []template.BundleFile
	got   map[string]string
}

func (p *parts) Files(context.Context) ([]template.BundleFile, error) { return p.files, nil }

func (p *parts) Take(_ context.Context, part template.BundlePart, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err == nil {
		p.got[part.Role+" "+part.Info["release"]] = string(data)
	}
	return err
}

func TestBundle_goesToAMachineWithoutANetwork(t *testing.T) {
	s, _ := open(t)
	ctx := context.Background()
	h := newHouse(t)
	pulled, err := pull(t, s, h.push(t, "app", image(t, "", rich())))
	must(t, err)
	kernel := filepath.Join(t.TempDir(), "vmlinux")
	must(t, os.WriteFile(kernel, []byte("a kernel"), 0o600))
	s.WithParts(&parts{files: []template.BundleFile{{Role: "kernel", Path: kernel, Info: map[string]string{"release": "6.1"}}}})
	var b bytes.Buffer
	must(t, s.Export(ctx, "app", &b))

	there, dir := open(t)
	p := &parts{got: map[string]string{}}
	there.WithParts(p)
	info, err := there.Import(ctx, "", bytes.NewReader(b.Bytes()))
	must(t, err)
	if info.Name != "app" || info.Hash != pulled.Hash || p.got["kernel 6.1"] != "a kernel" {
		t.Errorf("%+v %v", info, p.got)
	}
	if diff := cmp.Diff(pulled.Source, info.Source); diff != "" {
		t.Error(diff)
	}
	left(t, dir, 1)

	for name, change := range map[string]func([]byte) []byte{
		"a changed byte of the kernel": func(d []byte) []byte { return bytes.Replace(d, []byte("a kernel"), []byte("A kernel"), 1) },
		"a changed byte of the tree": func(d []byte) []byte {
			i := bytes.Index(d, []byte{0x28, 0xb5, 0x2f, 0xfd})
			d[i+200] ^= 1
			return d
		},
		"another hash": func(d []byte) []byte {
			return bytes.Replace(d, []byte(pulled.Hash), []byte(strings.Repeat("0", 64)), 1)
		},
		"cut off":  func(d []byte) []byte { return d[:len(d)/2] },
		"no parts": func([]byte) []byte { return tarWith(file(template.BundleManifestName, `{"version":1}`, 0o644)) },
		"later form": func([]byte) []byte {
			data, err := json.Marshal(template.BundleManifest{Version: 2})
			must(t, err)
			return tarWith(file(template.BundleManifestName, string(data), 0o644))
		},
		"a part that is missing": func(d []byte) []byte { return d[:bytes.Index(d, []byte{0x28, 0xb5, 0x2f, 0xfd})-512] },
	} {
		t.Run(name, func(t *testing.T) {
			there, dir := open(t)
			p := &parts{got: map[string]string{}}
			there.WithParts(p)
			_, err := there.Import(ctx, "", bytes.NewReader(change(bytes.Clone(b.Bytes()))))
			if got := errs.Of(err); got != errs.Invalid && got != errs.Corrupt && got != errs.Unsupported {
				t.Errorf("%q (%v)", got, err)
			}
			if len(p.got) > 0 {
				t.Errorf("kept %v", p.got)
			}
			if !strings.Contains(name, "kernel") {
				left(t, dir, 0)
			}
		})
	}
	if err := s.Export(ctx, template.HostName, io.Discard); !errs.Is(err, errs.Unsupported) {
		t.Error(err)
	}
	if err := s.Export(ctx, "none", io.Discard); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
}

func TestGC_removesOnlyWhatNobodyNeeds(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	h := newHouse(t)
	base := tarWith(noise("base", 100<<10))
	for _, n := range []string{"one", "two"} {
		_, err := pull(t, s, h.push(t, n, image(t, "", base, tarWith(noise(n, 50<<10)))))
		must(t, err)
		root, err := s.Rootfs(ctx, n)
		must(t, err)
		_, err = s.Image(ctx, root)
		must(t, err)
	}
	one, err := s.Get(ctx, "one")
	must(t, err)
	if u, err := s.Usage(ctx); err != nil || u.Trees != 2 || u.Images != 2 || u.Blobs != 5 || u.BlobBytes < 200<<10 || u.ImageBytes < u.TreeBytes {
		t.Errorf("%+v %v", u, err)
	}
	used := map[string]bool{one.Hash: true}
	s.Guard(func(hash string) bool { return used[hash] })
	if swept, err := s.GC(ctx, false); err != nil || swept.Trees+swept.Images != 0 {
		t.Errorf("swept %+v %v", swept, err)
	}
	delete(used, one.Hash)
	must(t, s.Remove(ctx, "one"))
	must(t, s.Remove(ctx, "two"))
	swept, err := s.GC(ctx, true)
	must(t, err)
	if swept.Blobs != 3 {
		t.Errorf("swept %+v", swept)
	}
	if u, err := s.Usage(ctx); err != nil || u != (template.Usage{}) {
		t.Errorf("%+v %v", u, err)
	}
	left(t, dir, 0)
	for _, sub := range []string{"lists", "images", "made", "blobs/sha256", "blobs/partial"} {
		if entries, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v %v", sub, entries, err)
		}
	}
}
