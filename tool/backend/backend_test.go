package backend_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/tooltest"
)

func recorded(t *testing.T) (context.Context, *[]thread.FileChange) {
	var changes []thread.FileChange
	return tool.WithRecorder(t.Context(), func(c thread.FileChange) { changes = append(changes, c) }), &changes
}

func TestFiles_everyPlaceKeepsThePromises(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (tool.Files, string){
		"map":             func(*testing.T) (tool.Files, string) { return backend.NewMap(thread.NewMemory()), "/" },
		"map at a prefix": func(*testing.T) (tool.Files, string) { return backend.NewMap(thread.NewMemory()), "/files" },
		"store": func(*testing.T) (tool.Files, string) {
			return backend.NewStore(kvtest.NewMemory(), thread.NewMemory(), "memories/acme"), "/memories"
		},
		"composite, mounted": func(*testing.T) (tool.Files, string) {
			return backend.NewComposite(backend.NewMap(thread.NewMemory()), backend.Route{At: "/m", Files: backend.NewMap(thread.NewMemory())}), "/m"
		},
		"composite, default": func(*testing.T) (tool.Files, string) {
			return backend.NewComposite(backend.NewMap(thread.NewMemory()), backend.Route{At: "/m", Files: backend.NewMap(thread.NewMemory())}), "/work"
		},
		"composite, mounts within": func(t *testing.T) (tool.Files, string) {
			// Half of what the suite writes lands in another backend.
			none := func() tool.Files { return backend.NewMap(thread.NewMemory()) }
			return backend.NewComposite(none(), backend.Route{At: "/w/g/s", Files: none()}, backend.Route{At: "/w/s/d", Files: none()}, backend.Route{At: "/w/l/a", Files: none()}), "/w"
		},
	} {
		t.Run(name, func(t *testing.T) { tooltest.Files(t, tooltest.FilesOf{New: make}) })
	}
}

func code(err error) string {
	if fe, ok := errors.AsType[*tool.FileError](err); ok {
		return fe.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestMap_recordsEveryChange(t *testing.T) {
	blobs := thread.NewMemory()
	m := backend.NewMap(blobs)
	if _, err := m.Write(t.Context(), "/a", []byte("x"), ""); !errs.Is(err, errs.Denied) {
		t.Errorf("a write that nobody records: %v", err)
	}
	if _, err := m.Stat(t.Context(), "/a"); code(err) != tool.CodeNotFound {
		t.Errorf("it is there nevertheless: %v", err)
	}
	ctx, changes := recorded(t)
	for _, p := range []string{"/d/a", "/d/b", "/c"} {
		if _, err := m.Write(ctx, p, []byte(p), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Delete(ctx, "/d"); err != nil {
		t.Fatal(err)
	}
	want := []thread.FileChange{
		{Path: "/d/a", Blob: thread.Hash([]byte("/d/a")), Bytes: 4},
		{Path: "/d/b", Blob: thread.Hash([]byte("/d/b")), Bytes: 4},
		{Path: "/c", Blob: thread.Hash([]byte("/c")), Bytes: 2},
		{Path: "/d/a"},
		{Path: "/d/b"},
	}
	if d := cmp.Diff(want, *changes); d != "" {
		t.Error(d)
	}
	// The log makes the same files again.
	again := backend.NewMap(blobs)
	again.Apply(*changes...)
	list, err := again.List(t.Context(), "/")
	if err != nil || len(list) != 1 || list[0].Path != "/c" {
		t.Errorf("from the log: %v, %v", list, err)
	}
	content, _, err := again.Read(t.Context(), "/c", 10)
	if err != nil || string(content) != "/c" {
		t.Errorf("from the log: %q, %v", content, err)
	}
}

func TestMap_deletesOnlyWhatOneEventCanTell(t *testing.T) {
	m := backend.NewMap(thread.NewMemory())
	ctx, changes := recorded(t)
	for i := range 101 {
		if _, err := m.Write(ctx, "/d/"+strings.Repeat("x", i+1), nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	n := len(*changes)
	if err := m.Delete(ctx, "/d"); code(err) != tool.CodeTooLarge || len(*changes) != n {
		t.Errorf("%v, %d changes", err, len(*changes)-n)
	}
}

func TestReadOnly(t *testing.T) {
	m := backend.NewMap(thread.NewMemory())
	ctx, changes := recorded(t)
	if _, err := m.Write(ctx, "/a", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	ro := backend.ReadOnly(m)
	_, err := ro.Write(ctx, "/a", []byte("y"), "")
	if code(err) != tool.CodeDenied || code(ro.Delete(ctx, "/a")) != tool.CodeDenied || len(*changes) != 1 {
		t.Errorf("%v, %d", err, len(*changes))
	}
	if got, _, err := ro.Read(ctx, "/a", 9); string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestStore_namespacesShareNothing(t *testing.T) {
	kv, blobs := kvtest.NewMemory(), thread.NewMemory()
	a, b := backend.NewStore(kv, blobs, "t/a"), backend.NewStore(kv, blobs, "t/ab")
	for _, s := range []*backend.Store{a, b} {
		if _, err := s.Write(t.Context(), "/memories/x", []byte("x"), tool.Absent); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Delete(t.Context(), "/memories"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Read(t.Context(), "/memories/x", 9); err != nil {
		t.Errorf("another namespace's file went too: %v", err)
	}
	again := backend.NewStore(kv, blobs, "t/ab")
	if list, err := again.List(t.Context(), "/memories"); err != nil || len(list) != 1 {
		t.Errorf("it is not durable: %v, %v", list, err)
	}
	if _, err := b.Write(t.Context(), "/"+strings.Repeat("x", 300), nil, ""); code(err) != tool.CodeInvalidPath {
		t.Errorf("a long path: %v", err)
	}
}

func TestComposite_routes(t *testing.T) {
	ctx, _ := recorded(t)
	blobs := thread.NewMemory()
	other, a, b := backend.NewMap(blobs), backend.NewMap(blobs), backend.NewMap(blobs)
	c := backend.NewComposite(other, backend.Route{At: "/a", Files: a}, backend.Route{At: "/a/b", Files: b}, backend.Route{At: "/x/y/z", Files: backend.ReadOnly(a)})
	if _, err := other.Write(ctx, "/a/hidden.md", []byte("hit"), ""); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/f.md", "/ab.md", "/a/f.md", "/a/b/f.md", "/a/bc/f.md"} {
		if _, err := c.Write(ctx, p, []byte("hit "+p), ""); err != nil {
			t.Errorf("write %s: %v", p, err)
		}
	}
	for p, files := range map[string]tool.Files{"/f.md": other, "/ab.md": other, "/a/f.md": a, "/a/b/f.md": b, "/a/bc/f.md": a} {
		if _, _, err := files.Read(ctx, p, 99); err != nil {
			t.Errorf("%s is not where it belongs: %v", p, err)
		}
	}
	names := func(files []tool.FileInfo) (list []string) {
		for _, f := range files {
			list = append(list, f.Path)
		}
		return list
	}
	for dir, want := range map[string][]string{
		"/":      {"/a", "/ab.md", "/f.md", "/x"},
		"/a":     {"/a/b", "/a/bc", "/a/f.md"},
		"/x":     {"/x/y"},
		"/x/y":   {"/x/y/z"},
		"/x/y/z": nil, // mounted and empty
	} {
		list, err := c.List(ctx, dir)
		if d := cmp.Diff(want, names(list)); d != "" || err != nil {
			t.Errorf("list %s: %v %s", dir, err, d)
		}
		info, err := c.Stat(ctx, dir)
		if err != nil || !info.Dir {
			t.Errorf("stat %s: %+v, %v", dir, info, err)
		}
		if _, err := c.Write(ctx, dir, nil, ""); dir != "/" && code(err) != tool.CodeIsDirectory {
			t.Errorf("write %s: %v", dir, err)
		}
		if code(c.Delete(ctx, dir)) != tool.CodeDenied {
			t.Errorf("delete %s went through", dir)
		}
	}
	for _, q := range []struct {
		dir, pattern string
		want         []string
	}{
		{"/", "*.md", []string{"/a/b/f.md", "/a/bc/f.md", "/a/f.md", "/ab.md", "/f.md"}},
		{"/", "/a/*.md", []string{"/a/f.md"}},
		{"/", "/a/*/*.md", []string{"/a/b/f.md", "/a/bc/f.md"}},
		{"/", "/*.md", []string{"/ab.md", "/f.md"}},
		{"/a", "b/*", []string{"/a/b/f.md"}},
		{"/", "**/b/**", []string{"/a/b/f.md"}},
	} {
		files, more, err := c.Glob(ctx, q.dir, q.pattern, 99)
		if d := cmp.Diff(q.want, names(files)); d != "" || err != nil || more {
			t.Errorf("glob %s in %s: %v %v %s", q.pattern, q.dir, more, err, d)
		}
		found, _, err := c.Grep(ctx, q.dir, tool.Pattern{Text: "hit"}, q.pattern, 99)
		var paths []string
		for _, m := range found {
			paths = append(paths, m.Path)
		}
		if d := cmp.Diff(q.want, paths); d != "" || err != nil {
			t.Errorf("grep %s in %s: %v %s", q.pattern, q.dir, err, d)
		}
	}
	if files, more, err := c.Glob(ctx, "/", "*.md", 3); err != nil || !more || len(files) != 3 {
		t.Errorf("a limit over places: %v %v %v", names(files), more, err)
	}
	if _, err := c.Write(ctx, "/x/y/z/f", nil, ""); code(err) != tool.CodeDenied {
		t.Errorf("a read-only place: %v", err)
	}
}

func TestStore_overTheRealOne(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), SyncInterval: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	kv, err := s.KV(t.Context(), "memories")
	if err != nil {
		t.Fatal(err)
	}
	blobs, n := thread.NewMemory(), 0
	tooltest.Files(t, tooltest.FilesOf{New: func(*testing.T) (tool.Files, string) {
		n++
		return backend.NewStore(kv, blobs, fmt.Sprintf("t%d", n)), "/memories"
	}})
}
