package file_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file"
	"github.com/skete-dev/skete/guest/wire"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func TestStat_describesFilesLinksAndDirectories(t *testing.T) {
	g := newGuest(t)
	full := g.put("a.txt", "hello")
	must(t, os.Symlink("a.txt", filepath.Join(g.work, "link")))

	res, err := g.stat(&wire.StatRequest{Path: []byte("a.txt"), Hash: true})
	must(t, err)
	e := res.Entry
	if string(e.Path) != full || e.Size != 5 || e.Mode != 0o644 || e.Type != wire.FileType_FILE_TYPE_REGULAR || res.Sha256 != sum("hello") {
		t.Fatalf("got %v %s", e, res.Sha256)
	}
	res, err = g.stat(&wire.StatRequest{Path: []byte("link")})
	must(t, err)
	if res.Entry.Type != wire.FileType_FILE_TYPE_SYMLINK || string(res.Entry.Target) != "a.txt" {
		t.Fatalf("got %v", res.Entry)
	}
	res, err = g.stat(&wire.StatRequest{Path: []byte("link"), Follow: true, Hash: true})
	must(t, err)
	if res.Entry.Type != wire.FileType_FILE_TYPE_REGULAR || res.Sha256 != sum("hello") {
		t.Fatalf("got %v", res)
	}
	res, err = g.stat(&wire.StatRequest{Path: []byte("~")})
	must(t, err)
	if string(res.Entry.Path) != g.home || res.Entry.Type != wire.FileType_FILE_TYPE_DIRECTORY {
		t.Fatalf("got %v", res.Entry)
	}
	_, err = g.stat(&wire.StatRequest{Path: []byte("none")})
	wantClass(t, err, errs.NotFound)
	if !strings.Contains(err.Error(), g.work+"/none") {
		t.Fatalf("the error does not name the path: %v", err)
	}
}

func TestList_pagesAreSortedAndComplete(t *testing.T) {
	g := newGuest(t)
	var want []string
	for i := range 25 {
		g.put(fmt.Sprintf("d/f%02d", i), "x")
	}
	g.put("d/a/one", "1")
	g.put("d/a.txt", "2")
	want = append(want, "a", "a/one", "a.txt")
	for i := range 25 {
		want = append(want, fmt.Sprintf("f%02d", i))
	}
	var got []string
	var token []byte
	for page := 0; ; page++ {
		res, err := g.list(&wire.ListRequest{Path: []byte("d"), Depth: 5, PageSize: 4, PageToken: token})
		must(t, err)
		for _, e := range res.Entries {
			rel, _ := filepath.Rel(filepath.Join(g.work, "d"), string(e.Path))
			got = append(got, rel)
		}
		if page == 1 { // changes that the rest must not trip over
			must(t, os.Remove(filepath.Join(g.work, "d/f04")))
			g.put("d/f045", "new")
			want = append(append(append([]string{}, want[:7]...), "f045"), want[8:]...)
			want = append(want[:3], append([]string{"f00", "f01", "f02", "f03", "f04", "f045"}, want[8:]...)...)
		}
		if token = res.NextPageToken; token == nil {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	res, err := g.list(&wire.ListRequest{Path: []byte("d")})
	must(t, err)
	if len(res.Entries) != 27 {
		t.Fatalf("%d entries without depth, want 27", len(res.Entries))
	}
}

func TestList_refusesForeignTokens(t *testing.T) {
	g := newGuest(t)
	for i := range 5 {
		g.put(fmt.Sprintf("d/%d", i), "")
	}
	res, err := g.list(&wire.ListRequest{Path: []byte("d"), PageSize: 2})
	must(t, err)
	for name, m := range map[string]*wire.ListRequest{
		"other path":  {Path: []byte("."), PageToken: res.NextPageToken},
		"other depth": {Path: []byte("d"), Depth: 3, PageToken: res.NextPageToken},
		"garbage":     {Path: []byte("d"), PageToken: []byte("!!!")},
		"cut":         {Path: []byte("d"), PageToken: res.NextPageToken[:3]},
		"huge":        {Path: []byte("d"), PageToken: bytes.Repeat([]byte("A"), 100_000)},
		"depth 65":    {Path: []byte("d"), Depth: 65},
		"page 10001":  {Path: []byte("d"), PageSize: 10_001},
	} {
		_, err := g.list(m)
		if !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = g.list(&wire.ListRequest{Path: []byte("d/0")})
	wantClass(t, err, errs.Invalid)
}

func TestRead_rangesSparseAndSpecialFiles(t *testing.T) {
	g := newGuest(t)
	g.put("a", "0123456789")
	for _, c := range []struct {
		at, n int64
		want  string
	}{{0, 0, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 0, ""}, {1 << 40, 5, ""}} {
		got, e, err := g.read(&wire.ReadRequest{Path: []byte("a"), Offset: c.at, Length: c.n})
		must(t, err)
		if string(got) != c.want || e == nil || e.Size != 10 {
			t.Errorf("at %d: %q %v", c.at, got, e)
		}
	}
	_, _, err := g.read(&wire.ReadRequest{Path: []byte("a"), Offset: -1})
	wantClass(t, err, errs.Invalid)

	sparse := g.put("sparse", "")
	must(t, os.Truncate(sparse, 1<<40))
	got, _, err := g.read(&wire.ReadRequest{Path: []byte("sparse"), Offset: 1<<40 - 3})
	must(t, err)
	if string(got) != "\x00\x00\x00" {
		t.Fatalf("%q", got)
	}
	must(t, syscall.Mkfifo(filepath.Join(g.work, "fifo"), 0o666))
	for _, name := range []string{"fifo", "/dev/null", "/dev/zero", "."} {
		_, err := g.readFile(name)
		wantClass(t, err, errs.Invalid)
	}
}

func TestWrite_wholeRangedAppendAndEmpty(t *testing.T) {
	g := newGuest(t)
	big := strings.Repeat("x", 300_000)
	res, err := g.write(&wire.WriteRequest_Header{Path: []byte("new/dir/f"), MakeParents: true, Mode: 0o600}, big, "tail")
	must(t, err)
	if res.Sha256 != sum(big+"tail") || res.Entry.Size != 300_004 || res.Entry.Mode != 0o600 {
		t.Fatalf("%v", res)
	}
	if isRoot() && (res.Entry.Uid != uid || res.Entry.Gid != gid) {
		t.Fatalf("owner %d:%d", res.Entry.Uid, res.Entry.Gid)
	}
	_, err = g.write(&wire.WriteRequest_Header{Path: []byte("new/dir/f")}, "short")
	must(t, err)
	fi, err := os.Stat(filepath.Join(g.work, "new/dir/f"))
	must(t, err)
	if fi.Mode().Perm() != 0o600 || g.content("new/dir/f") != "short" {
		t.Fatalf("mode %v content %q: the old mode must stay", fi.Mode(), g.content("new/dir/f"))
	}
	_, err = g.write(&wire.WriteRequest_Header{Path: []byte("new/dir/f"), Ranged: true, Offset: 2}, "AB", "CD")
	must(t, err)
	if got := g.content("new/dir/f"); got != "shABCD" {
		t.Fatal(got)
	}
	_, err = g.write(&wire.WriteRequest_Header{Path: []byte("new/dir/f"), Append: true}, "!", "?")
	must(t, err)
	if got := g.content("new/dir/f"); got != "shABCD!?" {
		t.Fatal(got)
	}
	res, err = g.write(&wire.WriteRequest_Header{Path: []byte("empty")})
	must(t, err)
	if g.content("empty") != "" || res.Sha256 != sum("") {
		t.Fatalf("%v", res)
	}
	must(t, os.Symlink("new/dir/f", filepath.Join(g.work, "link")))
	must(t, os.Symlink("../work/link", filepath.Join(g.work, "link2")))
	must(t, g.writeFile("link2", "through"))
	if fi, _ := os.Lstat(filepath.Join(g.work, "link2")); fi.Mode()&os.ModeSymlink == 0 || g.content("new/dir/f") != "through" {
		t.Fatal("a whole write must replace what the link points to, and keep the link")
	}
	g.noTemps()
}

// noTemps checks that no call left a temporary file.
func (g *guest) noTemps() {
	g.t.Helper()
	_ = filepath.WalkDir(g.work, func(p string, _ os.DirEntry, _ error) error {
		if strings.Contains(filepath.Base(p), ".skete-") {
			g.t.Errorf("left behind: %s", p)
		}
		return nil
	})
}

func TestWrite_refusals(t *testing.T) {
	g := newGuest(t)
	g.put("f", "old")
	g.mkdir("dir")
	must(t, syscall.Mkfifo(filepath.Join(g.work, "fifo"), 0o666))
	g.own(filepath.Join(g.work, "fifo"))
	must(t, os.Symlink("loop", filepath.Join(g.work, "loop")))
	h := func(name string, change func(*wire.WriteRequest_Header)) *wire.WriteRequest_Header {
		h := &wire.WriteRequest_Header{Path: []byte(name)}
		if change != nil {
			change(h)
		}
		return h
	}
	for _, c := range []struct {
		name string
		h    *wire.WriteRequest_Header
		want errs.Class
	}{
		{"no header", nil, errs.Invalid},
		{"a directory", h("dir", nil), errs.Invalid},
		{"a fifo", h("fifo", nil), errs.Invalid},
		{"a fifo in place", h("fifo", func(h *wire.WriteRequest_Header) { h.Append = true }), errs.Invalid},
		{"a loop of links", h("loop", nil), errs.Invalid},
		{"no parent", h("x/y", nil), errs.NotFound},
		{"beneath a file", h("f/y", nil), errs.Invalid},
		{"ranged and append", h("f", func(h *wire.WriteRequest_Header) { h.Ranged, h.Append = true, true }), errs.Invalid},
		{"ranged and expect", h("f", func(h *wire.WriteRequest_Header) { h.Ranged, h.ExpectSha256 = true, "absent" }), errs.Invalid},
		{"negative offset", h("f", func(h *wire.WriteRequest_Header) { h.Ranged, h.Offset = true, -1 }), errs.Invalid},
		{"offset of a whole write", h("f", func(h *wire.WriteRequest_Header) { h.Offset = 1 }), errs.Invalid},
		{"huge mode", h("f", func(h *wire.WriteRequest_Header) { h.Mode = 0o10000 }), errs.Invalid},
		{"bad hash", h("f", func(h *wire.WriteRequest_Header) { h.ExpectSha256 = "xyz" }), errs.Invalid},
		{"other hash", h("f", func(h *wire.WriteRequest_Header) { h.ExpectSha256 = sum("other") }), errs.Conflict},
		{"hash of a missing file", h("none", func(h *wire.WriteRequest_Header) { h.ExpectSha256 = sum("other") }), errs.Conflict},
		{"absent but there", h("f", func(h *wire.WriteRequest_Header) { h.ExpectSha256 = "absent" }), errs.Exists},
	} {
		_, err := g.write(c.h, "new")
		if got := errs.Of(wire.Err(err)); got != c.want {
			t.Errorf("%s: %q, want %q (%v)", c.name, got, c.want, err)
		}
	}
	if g.content("f") != "old" {
		t.Error("a refused write changed the file")
	}
	g.noTemps()
}

func TestMakeDir_parentsAndExisting(t *testing.T) {
	g := newGuest(t)
	res, err := call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte("a/b/c"), Parents: true, Mode: 0o777})
	must(t, err)
	if !res.Created || res.Entry.Mode != 0o777 {
		t.Fatalf("%v: the umask must not count", res)
	}
	res, err = call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte("a/b/c"), Parents: true})
	must(t, err)
	if res.Created {
		t.Fatal("it was there")
	}
	_, err = call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte("a/b/c")})
	wantClass(t, err, errs.Exists)
	_, err = call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte("x/y")})
	wantClass(t, err, errs.NotFound)
	g.put("f", "")
	_, err = call(g.c.MakeDir, &wire.MakeDirRequest{Path: []byte("f"), Parents: true})
	wantClass(t, err, errs.Exists)
}

func TestMove_neverReplacesUnlessAsked(t *testing.T) {
	g := newGuest(t)
	g.put("a", "A")
	g.put("b", "B")
	_, err := g.move("a", "b", false)
	wantClass(t, err, errs.Exists)
	if g.content("a") != "A" || g.content("b") != "B" {
		t.Fatal("a refused move changed something")
	}
	res, err := g.move("a", "b", true)
	must(t, err)
	if g.content("b") != "A" || string(res.Entry.Path) != filepath.Join(g.work, "b") {
		t.Fatalf("%v", res)
	}
	g.put("d/x", "x")
	_, err = g.move("d", "e", false)
	must(t, err)
	if g.content("e/x") != "x" {
		t.Fatal("lost")
	}
	_, err = g.move("e", "e/inside", false)
	wantClass(t, err, errs.Invalid)
	_, err = g.move("none", "x", false)
	wantClass(t, err, errs.NotFound)
	_, err = g.move("/", "x", false)
	wantClass(t, err, errs.Invalid)
}

func TestMove_acrossFileSystems(t *testing.T) {
	shm := "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		t.Skip("needs a second file system at /dev/shm")
	}
	other, err := os.MkdirTemp(shm, "skete-file-test") //nolint:usetesting // another file system than t.TempDir
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	g := newGuest(t)
	g.own(other)
	g.put("d/x", "x")
	must(t, os.Symlink("x", filepath.Join(g.work, "d/l")))
	_, err = g.move("d", other+"/d", false)
	must(t, err)
	if b, _ := os.ReadFile(other + "/d/l"); string(b) != "x" {
		t.Fatal("not moved")
	}
	if _, err := os.Lstat(filepath.Join(g.work, "d")); !os.IsNotExist(err) {
		t.Fatal("the source is still there")
	}
}

func TestCopy_treesLinksModesAndHoles(t *testing.T) {
	g := newGuest(t)
	g.put("d/sub/x", "content")
	must(t, os.Chmod(filepath.Join(g.work, "d/sub/x"), 0o4755))
	must(t, os.Symlink("/etc/passwd", filepath.Join(g.work, "d/link")))
	must(t, syscall.Mkfifo(filepath.Join(g.work, "d/fifo"), 0o666))
	sparse := g.put("d/sparse", "")
	must(t, os.Truncate(sparse, 1<<30))
	must(t, os.Chmod(filepath.Join(g.work, "d/sub"), 0o555))
	res, err := g.copy("d", "e", false)
	must(t, err)
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(g.work, "d/sub"), 0o755)
		_ = os.Chmod(filepath.Join(g.work, "e/sub"), 0o755)
	})
	if res.BytesCopied > 1<<20 {
		t.Fatalf("copied %d bytes: holes must stay holes", res.BytesCopied)
	}
	fi, err := os.Lstat(filepath.Join(g.work, "e/sub/x"))
	must(t, err)
	if fi.Mode() != 0o755 || g.content("e/sub/x") != "content" {
		t.Fatalf("mode %v: set-id bits must go, the rest stay", fi.Mode())
	}
	if fi, _ := os.Lstat(filepath.Join(g.work, "e/sub")); fi.Mode().Perm() != 0o555 {
		t.Fatalf("directory's mode %v", fi.Mode())
	}
	if target, _ := os.Readlink(filepath.Join(g.work, "e/link")); target != "/etc/passwd" {
		t.Fatalf("link to %q", target)
	}
	if _, err := os.Lstat(filepath.Join(g.work, "e/fifo")); !os.IsNotExist(err) {
		t.Fatal("a fifo was copied")
	}
	for _, c := range []struct {
		from, to  string
		overwrite bool
		want      errs.Class
	}{
		{"d", "e", false, errs.Exists},
		{"d", "e", true, errs.Exists}, // not empty
		{"d", "d/sub2", false, errs.Invalid},
		{"d/fifo", "f", false, errs.Invalid},
		{"none", "f", false, errs.NotFound},
		{"d", "no/where", false, errs.NotFound},
	} {
		_, err := g.copy(c.from, c.to, c.overwrite)
		if got := errs.Of(wire.Err(err)); got != c.want {
			t.Errorf("copy %s to %s: %q, want %q (%v)", c.from, c.to, got, c.want, err)
		}
	}
	g.noTemps()
}

func TestRemove_treesLinksAndDeepTrees(t *testing.T) {
	g := newGuest(t)
	g.put("keep/x", "x")
	g.put("d/a/b", "1")
	must(t, os.Symlink("../keep", filepath.Join(g.work, "d/link")))
	_, err := g.remove("d", false)
	wantClass(t, err, errs.Exists) // not empty
	res, err := g.remove("d", true)
	must(t, err)
	if res.Removed != 4 || g.content("keep/x") != "x" {
		t.Fatalf("removed %d", res.Removed)
	}
	_, err = g.remove("d", true)
	wantClass(t, err, errs.NotFound)
	_, err = call(g.c.Remove, &wire.RemoveRequest{Path: []byte("d"), Recursive: true, MissingOk: true})
	must(t, err)
	_, err = g.remove("/", true)
	wantClass(t, err, errs.Invalid)

	// Deeper than any path can name, wider than one batch.
	at := filepath.Join(g.work, "deep")
	must(t, os.Mkdir(at, 0o755))
	g.own(at)
	fd, err := syscall.Open(at, syscall.O_DIRECTORY, 0)
	must(t, err)
	const levels = 1500
	for range levels {
		must(t, syscall.Mkdirat(fd, "d", 0o755))
		if isRoot() {
			must(t, syscall.Fchownat(fd, "d", uid, gid, 0))
		}
		next, err := syscall.Openat(fd, "d", syscall.O_DIRECTORY, 0)
		must(t, err)
		syscall.Close(fd)
		fd = next
	}
	syscall.Close(fd)
	res, err = g.remove("deep", true)
	must(t, err)
	if res.Removed != levels+1 {
		t.Fatalf("removed %d, want %d", res.Removed, levels+1)
	}
}

func TestChmod_neverThroughLinks(t *testing.T) {
	g := newGuest(t)
	g.put("d/sub/x", "x")
	outside := g.put("outside", "x")
	must(t, os.Symlink("../outside", filepath.Join(g.work, "d/link")))
	res, err := call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("d"), Mode: 0o700, Recursive: true})
	must(t, err)
	if res.Entry.Mode != 0o700 {
		t.Fatalf("%v", res)
	}
	for name, want := range map[string]os.FileMode{"d/sub": 0o700, "d/sub/x": 0o700, "outside": 0o644} {
		fi, err := os.Stat(filepath.Join(g.work, name))
		must(t, err)
		if fi.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v", name, fi.Mode().Perm(), want)
		}
	}
	_, err = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("d/link"), Mode: 0o777})
	wantClass(t, err, errs.Invalid)
	_, err = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("d"), Mode: 0o10000})
	wantClass(t, err, errs.Invalid)
	// A file of mode 0 can still be changed by its owner.
	must(t, os.Chmod(outside, 0))
	_, err = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("outside"), Mode: 0o640})
	must(t, err)
	// A tree that is shut to its owner can be opened, and shut.
	must(t, os.Chmod(filepath.Join(g.work, "d"), 0))
	_, err = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("d"), Mode: 0o755, Recursive: true})
	must(t, err)
	_, err = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("d"), Mode: 0, Recursive: true})
	must(t, err)
	must(t, os.Chmod(filepath.Join(g.work, "d"), 0o755))
}

func TestSymlink_makesAnyLink(t *testing.T) {
	g := newGuest(t)
	res, err := call(g.c.Symlink, &wire.SymlinkRequest{Target: []byte("no/where\xff"), Path: []byte("l")})
	must(t, err)
	if string(res.Entry.Target) != "no/where\xff" {
		t.Fatalf("%v", res)
	}
	_, err = call(g.c.Symlink, &wire.SymlinkRequest{Target: []byte("x"), Path: []byte("l")})
	wantClass(t, err, errs.Exists)
	for _, target := range []string{"", "a\x00b", strings.Repeat("x", 5000)} {
		_, err = call(g.c.Symlink, &wire.SymlinkRequest{Target: []byte(target), Path: []byte("m")})
		wantClass(t, err, errs.Invalid)
	}
}

func TestDownloadUpload_roundTrip(t *testing.T) {
	g := newGuest(t)
	g.put("d/sub/x", strings.Repeat("0123456789", 100_000))
	g.put("d/\xff\xfename\n", "odd")
	g.put("d/"+strings.Repeat("n", 255), "long")
	must(t, os.Symlink("../outside", filepath.Join(g.work, "d/link")))
	must(t, os.Chmod(filepath.Join(g.work, "d/sub"), 0o555))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(g.work, "d/sub"), 0o755)
		_ = os.Chmod(filepath.Join(g.work, "e/sub"), 0o755)
	})
	archive, err := g.download("d")
	must(t, err)
	res, err := g.upload(&wire.UploadRequest_Header{Path: []byte("e")}, archive)
	must(t, err)
	if res.Entries != 5 || res.Bytes != 1_000_007 {
		t.Fatalf("%v", res)
	}
	if diff := cmp.Diff(snapshot(t, filepath.Join(g.work, "d")), snapshot(t, filepath.Join(g.work, "e"))); diff != "" {
		t.Fatal(diff)
	}
	one, err := g.download("d/sub/x")
	must(t, err)
	hdr, err := tar.NewReader(bytes.NewReader(one)).Next()
	must(t, err)
	if hdr.Name != "x" || hdr.Size != 1_000_000 {
		t.Fatalf("%+v", hdr)
	}
	_, err = g.download("none")
	wantClass(t, err, errs.NotFound)
}

// snapshot maps names to mode and content.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		case fi.Mode()&os.ModeSymlink != 0:
			content, _ = os.Readlink(p)
		}
		all[rel] = fi.Mode().String() + " " + content
		return nil
	}))
	return all
}

func TestGlob_matchesLimitsAndStaysInside(t *testing.T) {
	g := newGuest(t)
	for _, name := range []string{"a.go", "b.txt", "src/c.go", "src/deep/d.go", "src/deep/e.mod", ".hidden/f.go"} {
		g.put(name, "")
	}
	must(t, os.Symlink("..", filepath.Join(g.work, "src/up")))
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"*.go", []string{"a.go"}},
		{"**/*.go", []string{".hidden/f.go", "a.go", "src/c.go", "src/deep/d.go"}},
		{"src/**/*.{go,mod}", []string{"src/c.go", "src/deep/d.go", "src/deep/e.mod"}},
		{"src/*", []string{"src/c.go", "src/deep", "src/up"}},
		{"[ab].*", []string{"a.go", "b.txt"}},
		{"none", nil},
	} {
		got, truncated, err := g.glob(&wire.GlobRequest{Pattern: c.pattern})
		must(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" || truncated {
			t.Errorf("%s: %s", c.pattern, diff)
		}
	}
	got, truncated, err := g.glob(&wire.GlobRequest{Pattern: "**", Limit: 3})
	must(t, err)
	if len(got) != 3 || !truncated {
		t.Errorf("%v %v", got, truncated)
	}
	for _, bad := range []string{"", "/etc/*", "../*", "a/../b", "[", "{a", strings.Repeat("{a,b}", 9), strings.Repeat("*", 17), strings.Repeat("x", 1025)} {
		_, _, err := g.glob(&wire.GlobRequest{Pattern: bad})
		if !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, _, err = g.glob(&wire.GlobRequest{Pattern: "*", Limit: 100_001})
	wantClass(t, err, errs.Invalid)
}

func TestGrep_findsInOrderAndCountsWhatItSkips(t *testing.T) {
	g := newGuest(t)
	g.put("a/1.txt", "one\ntwo needle\nthree\r\nNEEDLE four\n")
	g.put("a/2.txt", "nothing")
	g.put("b.go", "needle at end")
	g.put("bin", "needle\x00")
	g.put("large", "needle"+strings.Repeat(" ", 2000))
	g.put("long", strings.Repeat("y", 10_000)+"needle\n")
	must(t, os.Symlink("b.go", filepath.Join(g.work, "link")))
	brief := func(m []*wire.GrepMatch) (out []string) {
		for _, x := range m {
			rel, _ := filepath.Rel(g.work, string(x.Path))
			out = append(out, fmt.Sprintf("%s:%d:%d:%.20s|%s|%s", rel, x.Line, x.Column, x.Text, bytes.Join(x.Before, []byte(",")), bytes.Join(x.After, []byte(","))))
		}
		return out
	}
	m, last, err := g.grep(&wire.GrepRequest{Pattern: "needle", Literal: true, FileBytesMax: 1000, Context: 1})
	must(t, err)
	want := []string{"a/1.txt:2:5:two needle|one|three", "b.go:1:1:needle at end||"}
	if diff := cmp.Diff(want, brief(m)); diff != "" {
		t.Fatal(diff)
	}
	if !last.Done || last.Truncated || last.FilesSearched != 3 || last.FilesSkipped != 3 {
		t.Fatalf("%v", last)
	}
	m, _, err = g.grep(&wire.GrepRequest{Pattern: `^(two )?needle`, IgnoreCase: true, Include: "**/*.txt"})
	must(t, err)
	want = []string{"a/1.txt:2:1:two needle||", "a/1.txt:4:1:NEEDLE four||"}
	if diff := cmp.Diff(want, brief(m)); diff != "" {
		t.Fatal(diff)
	}
	m, _, err = g.grep(&wire.GrepRequest{Pattern: `three$`})
	must(t, err)
	if len(m) != 1 || string(m[0].Text) != "three" {
		t.Fatalf("a carriage return must not hide the end of a line: %v", m)
	}
	m, last, err = g.grep(&wire.GrepRequest{Pattern: "needle", IgnoreCase: true, Limit: 1})
	must(t, err)
	if len(m) != 1 || !last.Truncated || !last.Done {
		t.Fatalf("%v %v", m, last)
	}
	m, _, err = g.grep(&wire.GrepRequest{Base: []byte("long"), Pattern: "needle"})
	must(t, err)
	if len(m) != 1 || m[0].Column != 10_001 || len(m[0].Text) != 4096 {
		t.Fatalf("a single file, a long line: %d matches", len(m))
	}
	for name, bad := range map[string]*wire.GrepRequest{
		"empty":       {},
		"not RE2":     {Pattern: `(?=x)`},
		"bad include": {Pattern: "x", Include: "["},
		"context":     {Pattern: "x", Context: 21},
		"limit":       {Pattern: "x", Limit: 100_001},
		"negative":    {Pattern: "x", FileBytesMax: -1},
	} {
		_, _, err := g.grep(bad)
		if !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGrep_manyFilesStayInOrder(t *testing.T) {
	g := newGuest(t)
	for i := range 500 {
		g.put(fmt.Sprintf("f%04d", i), strings.Repeat("x\n", i%97)+"hit\n")
	}
	m, last, err := g.grep(&wire.GrepRequest{Pattern: "hit"})
	must(t, err)
	for i, x := range m {
		if want := fmt.Sprintf("f%04d", i); filepath.Base(string(x.Path)) != want || int(x.Line) != i%97+1 {
			t.Fatalf("match %d is %s:%d", i, x.Path, x.Line)
		}
	}
	if len(m) != 500 || last.FilesSearched != 500 {
		t.Fatalf("%d matches, %v", len(m), last)
	}
}

func TestUsers_rootOnlyWhenGranted(t *testing.T) {
	g := newGuest(t)
	g.put("f", "x")
	for _, user := range []string{"root", "nobody", "user\n", "\x00"} {
		_, err := g.stat(&wire.StatRequest{Path: []byte("f"), User: user})
		wantClass(t, err, errs.Denied)
	}
	_, err := g.stat(&wire.StatRequest{Path: []byte("f"), User: "user"})
	must(t, err)

	needRoot(t)
	secret := filepath.Join(g.home, "secret")
	must(t, os.WriteFile(secret, []byte("s"), 0o600))
	_, err = g.readFile("~/secret")
	wantClass(t, err, errs.Denied)
	granted := newGuest(t, func(c *file.Config) { c.Root = true })
	b, _, err := granted.read(&wire.ReadRequest{Path: []byte(secret), User: "root"})
	must(t, err)
	if string(b) != "s" {
		t.Fatalf("%q", b)
	}
	_, err = granted.readFile(secret)
	wantClass(t, err, errs.Denied)
}
