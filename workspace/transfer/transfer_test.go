package transfer_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/transfer"
	"github.com/skete-dev/skete/workspace/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// source is a workspace with revisions.
type source struct {
	t   testing.TB
	dir string
	w   *workspace.Workspace
}

func newSource(t testing.TB) source {
	t.Helper()
	base := t.TempDir()
	s := source{t: t, dir: filepath.Join(base, "files")}
	must(t, os.Mkdir(s.dir, 0o755))
	var err error
	s.w, err = workspace.Open(workspace.Config{Dir: s.dir, Staging: filepath.Join(base, "staging"), Store: filepath.Join(base, "history")})
	must(t, err)
	t.Cleanup(func() { _ = s.w.Close() })
	return s
}

func (s source) snapshot() workspace.Revision {
	s.t.Helper()
	rev, _, err := s.w.Snapshot(s.t.Context(), workspace.Label{Actor: "test"})
	must(s.t, err)
	return rev
}

func (s source) stream(base object.Hash, revs ...workspace.Revision) []byte {
	s.t.Helper()
	var b bytes.Buffer
	must(s.t, s.w.Export(func(store *object.Store, _ []workspace.Revision) error {
		return transfer.Send(s.t.Context(), &b, store, base, revs)
	}))
	return b.Bytes()
}

func newStore(t testing.TB, c object.Config) *object.Store {
	t.Helper()
	s, err := object.Open(t.TempDir(), c)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func nothing(revlog.Revision) error { return nil }

// taken receives a stream and returns what was done.
func taken(r *transfer.Receiver, known object.Hash, stream []byte) (revs []revlog.Revision, err error) {
	err = r.Receive(context.Background(), bytes.NewReader(stream), known, nothing, func(rev revlog.Revision) error {
		revs = append(revs, rev)
		return nil
	})
	return revs, err
}

// whole walks over everything that a revision needs.
func whole(t testing.TB, s *object.Store, h object.Hash) {
	t.Helper()
	data, err := s.Get(object.Tree, h)
	must(t, err)
	entries, err := tree.Decode(data)
	must(t, err)
	for _, e := range entries {
		switch {
		case e.Type == tree.Dir:
			whole(t, s, e.Hash)
		case e.Type == tree.File && !e.Listed:
			_, err := s.Get(object.Blob, e.Hash)
			must(t, err)
		case e.Type == tree.File:
			data, err := s.Get(object.List, e.Hash)
			must(t, err)
			chunks, err := tree.DecodeList(data)
			must(t, err)
			for _, c := range chunks {
				_, err := s.Get(object.Blob, c.Hash)
				must(t, err)
			}
		}
	}
}

func TestRevisionsArriveWhole_andOnlyWhatIsNewIsSent(t *testing.T) {
	s := newSource(t)
	for _, name := range []string{"a", "dir/b", "dir/deep/c", "dir/deep/d"} {
		write(t, s.dir, name, "content of "+name)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB: in parts
	for i := range large {
		large[i] ^= byte(i >> 13)
	}
	write(t, s.dir, "large", string(large))
	one := s.snapshot()
	write(t, s.dir, "dir/deep/c", "changed")
	two := s.snapshot()
	must(t, os.Rename(filepath.Join(s.dir, "dir"), filepath.Join(s.dir, "moved")))
	copy(large[9<<20:], "changed in the middle")
	write(t, s.dir, "large", string(large))
	three := s.snapshot()

	store := newStore(t, object.Config{})
	r := transfer.NewReceiver(store, transfer.Limits{})
	first, err := taken(r, object.Hash{}, s.stream(object.Hash{}, one))
	must(t, err)
	rest := s.stream(one.Root, two, three)
	later, err := taken(r, one.Root, rest)
	must(t, err)
	if diff := cmp.Diff([]revlog.Revision{one, two, three}, append(first, later...)); diff != "" {
		t.Error(diff)
	}
	for _, rev := range []workspace.Revision{one, two, three} {
		whole(t, store, rev.Root)
	}
	if n := len(rest); n > 9<<20 { // at most two of the parts, of 4 MiB each
		t.Errorf("%d bytes were sent for a small change, a moved directory and 21 bytes of a large file", n)
	}
	t.Logf("%d bytes first, %d later", len(s.stream(object.Hash{}, one)), len(rest))
	again, err := taken(r, one.Root, rest)
	if err != nil || len(again) != 2 {
		t.Errorf("a stream that comes again: %v, %v", again, err)
	}
}

func TestAStreamThatBrokeOff_goesOn(t *testing.T) {
	s := newSource(t)
	for _, name := range []string{"a", "dir/b", "dir/deep/c", "dir/deep/d"} {
		write(t, s.dir, name, "content of "+name)
	}
	rev := s.snapshot()
	stream := s.stream(object.Hash{}, rev)
	store := newStore(t, object.Config{})
	for end := range stream {
		r := transfer.NewReceiver(store, transfer.Limits{})
		revs, err := taken(r, object.Hash{}, stream[:end])
		if !errs.Is(err, errs.Unavailable) || len(revs) > 0 {
			t.Fatalf("%d of %d bytes: %v, %v", end, len(stream), revs, err)
		}
	}
	revs, err := taken(transfer.NewReceiver(store, transfer.Limits{}), object.Hash{}, stream)
	if err != nil || len(revs) != 1 {
		t.Fatal(revs, err)
	}
	whole(t, store, rev.Root)
}
