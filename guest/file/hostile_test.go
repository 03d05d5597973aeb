package file_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// every calls each method that takes a path with this one.
func (g *guest) every(path []byte) map[string]error {
	ok := []byte("ok")
	errOf := func(_ any, err error) error { return err }
	_, _, readErr := g.read(&wire.ReadRequest{Path: path})
	_, writeErr := g.write(&wire.WriteRequest_Header{Path: path}, "x")
	_, appendErr := g.write(&wire.WriteRequest_Header{Path: path, Append: true}, "x")
	_, uploadErr := g.upload(&wire.UploadRequest_Header{Path: path}, archiveOf(tar.Header{Name: "x", Typeflag: tar.TypeReg}))
	_, downloadErr := g.download(string(path))
	_, _, globErr := g.glob(&wire.GlobRequest{Base: path, Pattern: "*"})
	_, _, grepErr := g.grep(&wire.GrepRequest{Base: path, Pattern: "x"})
	return map[string]error{
		"stat":     errOf(g.stat(&wire.StatRequest{Path: path, Follow: true})),
		"list":     errOf(g.list(&wire.ListRequest{Path: path})),
		"read":     readErr,
		"write":    writeErr,
		"append":   appendErr,
		"mkdir":    errOf(call(g.c.MakeDir, &wire.MakeDirRequest{Path: path, Parents: true})),
		"move":     errOf(call(g.c.Move, &wire.MoveRequest{Source: path, Destination: ok})),
		"move to":  errOf(call(g.c.Move, &wire.MoveRequest{Source: ok, Destination: path})),
		"copy":     errOf(call(g.c.Copy, &wire.CopyRequest{Source: path, Destination: ok})),
		"copy to":  errOf(call(g.c.Copy, &wire.CopyRequest{Source: ok, Destination: path})),
		"remove":   errOf(call(g.c.Remove, &wire.RemoveRequest{Path: path})),
		"chmod":    errOf(call(g.c.Chmod, &wire.ChmodRequest{Path: path, Mode: 0o644})),
		"symlink":  errOf(call(g.c.Symlink, &wire.SymlinkRequest{Target: ok, Path: path})),
		"upload":   uploadErr,
		"download": downloadErr,
		"glob":     globErr,
		"grep":     grepErr,
		"watch":    g.watchError(path),
	}
}

func (g *guest) watchError(path []byte) error {
	ctx, cancel := patience.Context(context.Background(), 5*time.Second)
	defer cancel()
	in, err := g.c.Watch(ctx, connect.NewRequest(&wire.WatchRequest{Path: path}))
	if err != nil {
		return err
	}
	defer in.Close()
	in.Receive()
	return in.Err()
}

func TestEveryCall_refusesBadPaths(t *testing.T) {
	g := newGuest(t)
	for name, path := range map[string]string{
		"NUL":             "a\x00b",
		"NUL at the end":  "f\x00",
		"256 bytes":       strings.Repeat("n", 256),
		"256 inside":      "a/" + strings.Repeat("n", 256) + "/b",
		"4096 bytes":      strings.Repeat("a/", 2048),
		"a megabyte":      strings.Repeat("a/", 500_000),
		"long when whole": strings.Repeat("a/", 2046) + "a",
	} {
		for method, err := range g.every([]byte(path)) {
			if !errs.Is(wire.Err(err), errs.Invalid) {
				t.Errorf("%s, %s: %q (%.200v)", name, method, errs.Of(wire.Err(err)), err)
			}
		}
	}
	for method, err := range g.every(nil) {
		if method == "glob" || method == "grep" {
			continue // no base is the working directory
		}
		if !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("empty, %s: %v", method, err)
		}
	}
}

func TestEveryCall_takesOddNames(t *testing.T) {
	for name, path := range map[string]string{
		"newline":       "a\nb",
		"255 bytes":     strings.Repeat("n", 255),
		"invalid UTF-8": "\xff\xfe",
		"spaces":        "  ",
		"dash":          "-rf",
		"unicode":       "ä…\u202e",
		"star":          "*",
		"dot dot":       "x/../../work/./up", // cleaned; stays what it says
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			p := []byte(path)
			_, err := g.write(&wire.WriteRequest_Header{Path: p}, "content")
			must(t, err)
			res, err := g.stat(&wire.StatRequest{Path: p})
			must(t, err)
			want := filepath.Join(g.work, path)
			if string(res.Entry.Path) != want {
				t.Fatalf("path %q, want %q", res.Entry.Path, want)
			}
			if got, err := g.readFile(path); err != nil || got != "content" {
				t.Fatalf("%q %v", got, err)
			}
			page, err := g.list(&wire.ListRequest{Path: []byte(".")})
			must(t, err)
			if len(page.Entries) != 1 || string(page.Entries[0].Path) != want {
				t.Fatalf("%v", page.Entries)
			}
			_, err = g.move(path, "moved", false)
			must(t, err)
			_, err = g.copy("moved", path, false)
			must(t, err)
			_, err = g.remove(path, true)
			must(t, err)
		})
	}
}

func TestEveryCall_loopsOfLinks(t *testing.T) {
	g := newGuest(t)
	must(t, os.Symlink("b", filepath.Join(g.work, "a")))
	must(t, os.Symlink("a", filepath.Join(g.work, "b")))
	for method, err := range g.every([]byte("a/x")) {
		if !errs.Is(wire.Err(err), errs.Invalid) && method != "move to" && method != "copy to" {
			t.Errorf("%s: %q (%v)", method, errs.Of(wire.Err(err)), err)
		}
	}
}

// Magic links of /proc would lead to what the guest itself has open.
func TestEveryCall_neverThroughMagicLinks(t *testing.T) {
	g := newGuest(t)
	f, err := os.Open(g.put("f", "x"))
	must(t, err)
	defer f.Close()
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	must(t, os.Symlink(link, filepath.Join(g.work, "sly")))
	for _, name := range []string{link, "sly", "/proc/thread-self/root/etc/hostname"} {
		if got, err := g.readFile(name); err == nil {
			t.Errorf("%s: read %q", name, got)
		}
	}
	if err := g.writeFile("sly", "y"); err == nil || g.content("f") != "x" {
		t.Errorf("wrote through a magic link: %v", err)
	}
}

// canary is a root-owned tree that no call may read or change.
type canary struct {
	dir, file string
	content   string
}

func newCanary(t *testing.T) canary {
	dir := filepath.Join(tempDir(t), "canary")
	c := canary{dir: dir, file: filepath.Join(dir, "x"), content: "canary-" + strings.Repeat("c", 100)}
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(c.file, []byte(c.content), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	return c
}

func (c canary) check(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(c.file)
	must(t, err)
	fi, err := os.Lstat(c.file)
	must(t, err)
	names, err := os.ReadDir(c.dir)
	must(t, err)
	st := fi.Sys().(*syscall.Stat_t)
	if string(b) != c.content || fi.Mode() != 0o600 || st.Uid != 0 || len(names) != 2 {
		t.Fatalf("the canary was touched: %q %v uid %d, %d names", b, fi.Mode(), st.Uid, len(names))
	}
	if fi, _ := os.Lstat(c.dir); fi.Mode().Perm() != 0o755 {
		t.Fatalf("the canary's directory is %v", fi.Mode())
	}
}

// holds reports whether a file beneath a directory has a text in it. How much was copied
// says nothing: what is appended each time may stay for some times.
func holds(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || strings.Contains(string(b), text)
		return err
	}))
	return found
}

// swap exchanges a directory and a link to the canary as fast as it can, as a
// program in the sandbox would.
func swap(t *testing.T, dir, link string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func TestSymlinkRaces_canaryOutsideSurvives(t *testing.T) {
	needRoot(t)
	g := newGuest(t)
	c := newCanary(t)
	g.put("t/d/x", "mine")
	g.put("t/d/empty", "")
	must(t, os.Symlink(c.dir, filepath.Join(g.work, "evil")))
	must(t, os.Lchown(filepath.Join(g.work, "evil"), uid, gid))
	stop := swap(t, filepath.Join(g.work, "t/d"), filepath.Join(g.work, "evil"))
	defer stop()
	link := []byte("t/d/x")
	for i := range 150 {
		for _, path := range []string{"t/d/x", "t/d"} {
			if b, _, _ := g.read(&wire.ReadRequest{Path: []byte(path)}); strings.Contains(string(b), "canary-") {
				t.Fatal("read the canary")
			}
		}
		if b, _ := g.download("t"); strings.Contains(string(b), "canary-") {
			t.Fatal("downloaded the canary")
		}
		if m, _, _ := g.grep(&wire.GrepRequest{Base: []byte("t"), Pattern: "canary-"}); len(m) > 0 {
			t.Fatal("searched the canary")
		}
		_, _ = g.write(&wire.WriteRequest_Header{Path: link}, "overwritten")
		_, _ = g.write(&wire.WriteRequest_Header{Path: link, Append: true}, "appended")
		_, _ = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("t"), Mode: 0o777, Recursive: true})
		_, _ = g.upload(&wire.UploadRequest_Header{Path: []byte("t")}, archiveOf(
			tar.Header{Name: "d/x", Typeflag: tar.TypeReg}, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o777}))
		_, _ = call(g.c.Symlink, &wire.SymlinkRequest{Target: link, Path: []byte("t/d/new")})
		_, _ = g.move("t/d/empty", fmt.Sprintf("stolen%d", i), false)
		to := fmt.Sprintf("copy%d", i)
		if _, err := g.copy("t", to, false); err == nil && holds(t, filepath.Join(g.work, to), "canary-") {
			t.Fatal("copied the canary")
		}
		_, _ = g.remove("t/d/x", true)
		_, _ = g.remove("t/d/empty", true)
		c.check(t)
	}
}

// Even with root's rights a walk never leaves its tree.
func TestSymlinkRaces_rootWalksStayInside(t *testing.T) {
	needRoot(t)
	g := newGuest(t, func(c *file.Config) { c.Root = true })
	c := newCanary(t)
	must(t, os.Symlink(c.dir, filepath.Join(g.work, "evil")))
	for range 60 {
		g.put("t/d/x", "mine")
		g.put("t/d/empty", "")
		stop := swap(t, filepath.Join(g.work, "t/d"), filepath.Join(g.work, "evil"))
		_, _ = call(g.c.Chmod, &wire.ChmodRequest{Path: []byte("t"), Mode: 0o777, Recursive: true, User: "root"})
		_, _ = g.upload(&wire.UploadRequest_Header{Path: []byte("t"), User: "root"}, archiveOf(
			tar.Header{Name: "d/x", Typeflag: tar.TypeReg}, tar.Header{Name: "d/empty", Typeflag: tar.TypeSymlink, Linkname: "/"}))
		m, _, _ := g.grep(&wire.GrepRequest{Base: []byte("t"), Pattern: "canary-", User: "root"})
		_, _ = call(g.c.Remove, &wire.RemoveRequest{Path: []byte("t"), Recursive: true, User: "root"})
		stop()
		if len(m) > 0 {
			t.Fatal("searched the canary")
		}
		c.check(t)
		must(t, os.RemoveAll(filepath.Join(g.work, "t")))
		must(t, os.RemoveAll(filepath.Join(g.work, "evil")))
		must(t, os.Symlink(c.dir, filepath.Join(g.work, "evil")))
	}
}

func TestWrite_concurrentCompareAndSwapHasOneWinner(t *testing.T) {
	g := newGuest(t)
	old := "start"
	g.put("f", old)
	for round := range 10 {
		const writers = 8
		var mu sync.Mutex
		var won []string
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				mine := fmt.Sprintf("round %d writer %d", round, i)
				_, err := g.write(&wire.WriteRequest_Header{Path: []byte("f"), ExpectSha256: sum(old)}, mine)
				if err == nil {
					mu.Lock()
					won = append(won, mine)
					mu.Unlock()
				} else if !errs.Is(wire.Err(err), errs.Conflict) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 || g.content("f") != won[0] {
			t.Fatalf("winners %q, content %q", won, g.content("f"))
		}
		old = won[0]
	}
	// The same for a file that must not exist yet.
	var wins sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := g.write(&wire.WriteRequest_Header{Path: []byte("new"), ExpectSha256: "absent"}, fmt.Sprint(i)); err == nil {
				wins.Store(fmt.Sprint(i), true)
			}
		})
	}
	wg.Wait()
	count := 0
	wins.Range(func(k, _ any) bool {
		count++
		if g.content("new") != k {
			t.Errorf("content %q, winner %q", g.content("new"), k)
		}
		return true
	})
	if count != 1 {
		t.Fatalf("%d winners", count)
	}
	g.noTemps()
}

func TestWrite_brokenOffLeavesNothing(t *testing.T) {
	g := newGuest(t)
	g.put("f", "old")
	ctx, cancel := context.WithCancel(context.Background())
	out := g.c.Write(ctx)
	must(t, out.Send(&wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte("f")}, Data: bytes.Repeat([]byte("x"), 100_000)}))
	waitFor(t, "the temporary file", func() bool { return len(temps(g.work)) == 1 })
	// Only the context ends: closing the stream as well would say that the
	// content is complete.
	cancel()
	waitFor(t, "the clean-up", func() bool { return len(temps(g.work)) == 0 })
	if g.content("f") != "old" {
		t.Fatal("a broken write changed the file")
	}
	_, _ = out.CloseAndReceive()
}

func temps(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, ".skete-*"))
	return names
}

// waitFor polls a condition.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, 10*time.Second, what, ok)
}

func TestWrite_fullDiskIsALimit(t *testing.T) {
	needRoot(t)
	g := newGuest(t)
	small := filepath.Join(g.work, "small")
	must(t, os.Mkdir(small, 0o755))
	if err := unix.Mount("none", small, "tmpfs", 0, fmt.Sprintf("size=1m,uid=%d,gid=%d", uid, gid)); err != nil {
		t.Skipf("needs to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	chunk := strings.Repeat("x", 1<<20)
	must(t, g.writeFile("small/f", "old"))
	_, err := g.write(&wire.WriteRequest_Header{Path: []byte("small/f")}, chunk, chunk)
	wantClass(t, err, errs.Limit)
	if !strings.Contains(err.Error(), "no space left in the sandbox") {
		t.Fatal(err)
	}
	if got, _ := g.readFile("small/f"); got != "old" || len(temps(small)) != 0 {
		t.Fatalf("content %q, left %v", got, temps(small))
	}
	g.put("big", strings.Repeat("y", 3<<20))
	_, err = g.copy("big", "small/big", false)
	wantClass(t, err, errs.Limit)
	_, err = g.move("big", "small/big", false)
	wantClass(t, err, errs.Limit)
	if len(temps(small)) != 0 || len(g.content("big")) != 3<<20 {
		t.Fatal("a failed copy or move left something, or lost the source")
	}
	_, err = g.upload(&wire.UploadRequest_Header{Path: []byte("small")}, archiveOf(tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 2 << 20}))
	wantClass(t, err, errs.Limit)
}

// archiveOf packs headers; regular files are zeros of their size.
func archiveOf(headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = io.CopyN(w, zeros{}, h.Size)
	}
	_ = w.Close()
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestUpload_hostileArchives(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 3} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	hard := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}
	}
	sparse := archiveOf(file("a"))
	copy(sparse[124:], "77777777777\x00") // the size field: 8 GiB that do not follow
	fixSum(sparse)
	for _, c := range []struct {
		name string
		tar  []byte
		want errs.Class
	}{
		{"absolute", archiveOf(file("/tmp/x")), errs.Invalid},
		{"dot dot", archiveOf(file("../x")), errs.Invalid},
		{"dot dot inside", archiveOf(file("a/../../x")), errs.Invalid},
		{"through a link", archiveOf(link("a", ".."), file("a/x")), errs.Invalid},
		{"through an absolute link", archiveOf(link("a", "/tmp"), file("a/x")), errs.Invalid},
		{"through a link that stays inside", archiveOf(tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, link("a", "d"), file("a/x")), errs.Invalid},
		{"through a chain of links", archiveOf(link("a", "b"), link("b", "../.."), file("a/x")), errs.Invalid},
		{"hard link outside", archiveOf(hard("a", "/etc/passwd")), errs.Invalid},
		{"hard link dot dot", archiveOf(hard("a", "../outside")), errs.Invalid},
		{"hard link through a link", archiveOf(link("l", "/etc"), hard("a", "l/passwd")), errs.Invalid},
		{"hard link to a link", archiveOf(link("l", "/etc/passwd"), hard("a", "l"), file("a")), errs.Invalid},
		{"device", archiveOf(tar.Header{Name: "d", Typeflag: tar.TypeBlock}), errs.Invalid},
		{"fifo", archiveOf(tar.Header{Name: "d", Typeflag: tar.TypeFifo}), errs.Invalid},
		{"256 bytes", archiveOf(file(strings.Repeat("n", 256))), errs.Invalid},
		{"deep", archiveOf(file(strings.Repeat("d/", 300) + "x")), errs.Limit},
		{"too many bytes", archiveOf(tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 2000}), errs.Limit},
		{"claims to be huge", sparse, errs.Limit},
		{"too many entries", archiveOf(file("1"), file("2"), file("3"), file("4"), file("5"), file("6"), file("7")), errs.Limit},
		{"not an archive", bytes.Repeat([]byte("garbage!"), 500), errs.Invalid},
		{"cut off", archiveOf(file("a"))[:514], errs.Invalid},
		{"a file where a full directory is", archiveOf(file("d/x"), file("d")), errs.Exists},
		{"beneath a file", archiveOf(file("f"), file("f/x")), errs.Exists},
		{"link without a target", archiveOf(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x", 4096)}), errs.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuest(t)
			g.put("outside", "outside")
			h := &wire.UploadRequest_Header{Path: []byte("up"), BytesMax: 1000, EntriesMax: 6}
			_, err := g.upload(h, c.tar)
			wantClass(t, err, c.want)
			if g.content("outside") != "outside" {
				t.Error("changed a file outside")
			}
			names, _ := os.ReadDir(g.work)
			if len(names) > 2 {
				t.Errorf("made something outside: %v", names)
			}
		})
	}
}

// fixSum sets the checksum of the first header.
func fixSum(archive []byte) {
	copy(archive[148:156], "        ")
	total := 0
	for _, b := range archive[:512] {
		total += int(b)
	}
	copy(archive[148:156], fmt.Sprintf("%06o\x00 ", total))
}

func TestUpload_dropsSetIDSaysHowFarItCame(t *testing.T) {
	g := newGuest(t)
	_, err := g.upload(&wire.UploadRequest_Header{Path: []byte(".")}, archiveOf(
		tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o6755, Size: 1},
		tar.Header{Name: "ro/", Typeflag: tar.TypeDir, Mode: 0o555},
		tar.Header{Name: "ro/x", Typeflag: tar.TypeReg, Mode: 0o444},
		tar.Header{Name: "again", Typeflag: tar.TypeLink, Linkname: "suid"}))
	must(t, err)
	fi, err := os.Lstat(filepath.Join(g.work, "suid"))
	must(t, err)
	if fi.Mode() != 0o755 || fi.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Fatalf("%v", fi.Mode())
	}
	if fi, _ := os.Lstat(filepath.Join(g.work, "ro")); fi.Mode().Perm() != 0o555 {
		t.Fatalf("%v", fi.Mode())
	}
	must(t, os.Chmod(filepath.Join(g.work, "ro"), 0o755))
	_, err = g.upload(&wire.UploadRequest_Header{Path: []byte("p")}, archiveOf(
		tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 10}, tar.Header{Name: "../b", Typeflag: tar.TypeReg}))
	wantClass(t, err, errs.Invalid)
	if !strings.Contains(err.Error(), "stopped at entry 1, 10 bytes") || len(g.content("p/a")) != 10 {
		t.Fatalf("%v", err)
	}
}

func TestDownload_fileThatChangesKeepsItsSize(t *testing.T) {
	g := newGuest(t)
	const size = 32 << 20
	full := g.put("d/f", "")
	must(t, os.Truncate(full, size))
	in, err := g.c.Download(context.Background(), connect.NewRequest(&wire.DownloadRequest{Path: []byte("d")}))
	must(t, err)
	defer in.Close()
	var b bytes.Buffer
	for first := true; in.Receive(); first = false {
		if first {
			must(t, os.Truncate(full, 1000)) // it shrinks, then grows beyond
			must(t, os.Truncate(full, 2*size))
			must(t, os.Truncate(full, 1000))
		}
		b.Write(in.Msg().Data)
	}
	must(t, in.Err())
	r := tar.NewReader(&b)
	hdr, err := r.Next()
	must(t, err)
	n, err := io.Copy(io.Discard, r)
	must(t, err)
	if _, end := r.Next(); hdr.Size != size || n != size || !errors.Is(end, io.EOF) {
		t.Fatalf("size %d, read %d, then %v", hdr.Size, n, end)
	}
}
