package store_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
)

func logOf(t *testing.T, s *store.Store, tenant string) thread.Log {
	t.Helper()
	l, err := s.Threads().Log(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func blobsOf(t *testing.T, s *store.Store, tenant string) thread.Blobs {
	t.Helper()
	b, err := s.Threads().Blobs(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b thread.Blobs, content string) string {
	t.Helper()
	hash, err := b.Put(t.Context(), []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func appendTo(t *testing.T, l thread.Log, id thread.ID, after uint64, bodies ...thread.Body) uint64 {
	t.Helper()
	var events []thread.Event
	for _, b := range bodies {
		events = append(events, thread.New("run_x", b))
	}
	seq, err := l.Append(t.Context(), id, after, events...)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// begin opens a thread with three events.
func begin(t *testing.T, l thread.Log, id thread.ID) {
	t.Helper()
	appendTo(t, l, id, 0, thread.Opened{Agent: json.RawMessage(`{}`)}, thread.RunStarted{}, thread.Input{From: "user"})
}

func TestSweep_takesOnlyWhatNobodyNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	ts, l, b, kv := s.Threads(), logOf(t, s, "a"), blobsOf(t, s, "a"), openKV(t, s, "memories")
	id := thread.NewID()
	kept := map[string]string{}
	keep := func(what, content string) string {
		hash := put(t, b, content)
		kept[hash] = what
		return hash
	}
	media := keep("media named only by a message in a blob", "an image")
	message, err := json.Marshal(llm.Assistant(llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Hash: media}}))
	if err != nil {
		t.Fatal(err)
	}
	seq := appendTo(t, l, id, 0,
		thread.Opened{},
		thread.ModelCompleted{Blob: keep("a message", string(message))},
		thread.ToolCompleted{Blob: keep("an output", "out"), Files: []thread.FileChange{{Path: "/a", Blob: keep("a file", "file")}}},
		thread.Input{Shown: keep("an input", "[]")},
		thread.ToolStarted{Plan: json.RawMessage(`{"whatever":"` + keep("a plan's", "plan") + `"}`)},
		thread.Unknown{Name: "x", V: 1, Data: json.RawMessage(`{"deep":[{"name": "` + keep("of an unknown kind", "new") + `"}]}`)},
	)
	if _, err := kv.Put(t.Context(), "a/memory", []byte(`{"file":"`+keep("a record's", "memory")+`"}`)); err != nil {
		t.Fatal(err)
	}
	records := store.ThreadRecords{Keys: kv, Prefix: "a/"}
	loose := put(t, b, "nobody names this")
	other := put(t, blobsOf(t, s, "b"), "nobody names this")
	fine, err := ts.Fsck(t.Context(), "a")
	if err != nil || fine.Threads != 1 {
		t.Errorf("fsck: %+v, %v", fine, err)
	}
	if done, err := ts.Sweep(t.Context(), "a", time.Hour, records); err != nil || done.Removed != 0 {
		t.Errorf("sweep within the grace: %+v, %v", done, err)
	}
	done, err := ts.Sweep(t.Context(), "a", time.Nanosecond, records)
	if want := (store.SweptBlobs{Threads: 1, Blobs: len(kept) + 1, Removed: 1, Bytes: int64(len("nobody names this"))}); err != nil || done != want {
		t.Errorf("sweep: %+v, %v, want %+v", done, err, want)
	}
	_, err = b.Get(t.Context(), loose)
	wantClass(t, "the loose blob", err, errs.NotFound)
	if _, err := blobsOf(t, s, "b").Get(t.Context(), other); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	for hash, what := range kept {
		if _, err := b.Get(t.Context(), hash); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A blob that is put again is young again, however old it was.
	old := put(t, b, "old")
	file := filepath.Join(dir, "blobs", "a", old[:2], old[2:4], old)
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(file, past, past); err != nil {
		t.Fatal(err)
	}
	put(t, b, "old")
	if done, err := ts.Sweep(t.Context(), "a", 0, records); err != nil || done.Removed != 0 {
		t.Errorf("sweep after it was put again: %+v, %v", done, err)
	}
	if err := os.Chtimes(file, past, past); err != nil {
		t.Fatal(err)
	}
	if done, err := ts.Sweep(t.Context(), "a", 0, records); err != nil || done.Removed != 1 {
		t.Errorf("sweep of what is two days old: %+v, %v", done, err)
	}
	// With its thread a blob loses its name.
	appendTo(t, l, id, seq, thread.Input{})
	if err := ts.DeleteThread(t.Context(), "a", id); err != nil {
		t.Fatal(err)
	}
	if done, err := ts.Sweep(t.Context(), "a", time.Nanosecond, records); err != nil || done.Removed != len(kept)-1 || done.Threads != 0 {
		t.Errorf("sweep after the deletion: %+v, %v; %d were named", done, err, len(kept))
	}
}

func TestSweep_deletesThreadsWithoutARoot(t *testing.T) {
	s := open(t, store.Config{})
	l := logOf(t, s, "a")
	orphan := thread.NewID().Sub("c")
	begin(t, l, orphan)
	root := thread.NewID()
	begin(t, l, root)
	begin(t, l, root.Sub("c"))
	if done, err := s.Threads().Sweep(t.Context(), "a", 0); err != nil || done.Orphans != 0 {
		t.Errorf("a young orphan: %+v, %v", done, err)
	}
	if done, err := s.Threads().Sweep(t.Context(), "a", time.Nanosecond); err != nil || done.Orphans != 1 || done.Threads != 3 {
		t.Errorf("%+v, %v", done, err)
	}
	if head, err := l.Head(t.Context(), orphan); head != 0 || err != nil {
		t.Errorf("the orphan is at %d, %v", head, err)
	}
}

func TestFsck_findsBlobsThatAreGoneOrDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	l, b, id := logOf(t, s, "a"), blobsOf(t, s, "a"), thread.NewID()
	gone, bad, good := put(t, b, "gone"), put(t, b, "bad"), put(t, b, "good")
	appendTo(t, l, id, 0, thread.Opened{}, thread.Context{Memory: []thread.ContextFile{{Blob: good}, {Blob: gone}}}, thread.Context{Skills: []thread.ContextFile{{Blob: bad}}})
	file := func(hash string) string { return filepath.Join(dir, "blobs", "a", hash[:2], hash[2:4], hash) }
	if err := os.Remove(file(gone)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file(bad), []byte("BAD"), 0o600); err != nil {
		t.Fatal(err)
	}
	checked, err := s.Threads().Fsck(t.Context(), "a")
	want := store.CheckedThreads{Threads: 1, Events: 3, Blobs: 3, Problems: []store.ThreadProblem{
		{Thread: id, Event: 2, Stream: 1, Blob: gone, Text: "no blob " + gone},
		{Thread: id, Event: 3, Stream: 1, Blob: bad, Text: "blob " + bad + " is damaged: its 3 bytes have another hash"},
	}}
	if d := cmp.Diff(want, checked); d != "" || err != nil {
		t.Error(d, err)
	}
	_, err = b.Get(t.Context(), bad)
	wantClass(t, "a damaged blob", err, errs.Corrupt)
	put(t, b, "bad") // to put the content again heals it
	if got, err := b.Get(t.Context(), bad); string(got) != "bad" || err != nil {
		t.Errorf("after it was put again: %q, %v", got, err)
	}
}

func TestRetain_deletesOldTreesOnly(t *testing.T) {
	s := open(t, store.Config{})
	l := logOf(t, s, "a")
	plain, forever, short, odd := thread.NewID(), thread.NewID(), thread.NewID(), thread.NewID()
	for id, label := range map[thread.ID]string{plain: "", forever: "forever", short: "1ns", odd: "soon"} {
		appendTo(t, l, id, 0, thread.Opened{Labels: map[string]string{store.RetainLabel: label}})
		appendTo(t, l, id.Sub("c"), 0, thread.Opened{})
	}
	retain := func(age time.Duration, want ...thread.ID) {
		t.Helper()
		got, err := s.Threads().Retain(t.Context(), "a", age)
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(d, err)
		}
	}
	retain(0, short)
	retain(time.Hour)
	retain(time.Nanosecond, plain, odd)
	var left []thread.ID
	for id := range l.List(t.Context(), "") {
		left = append(left, id)
	}
	if d := cmp.Diff([]thread.ID{forever, forever.Sub("c")}, left); d != "" {
		t.Error(d)
	}
}

func TestEraseTenant_leavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	ts, kv := s.Threads(), openKV(t, s, "runs")
	id := thread.NewID()
	for _, tenant := range []string{"a", "b"} {
		begin(t, logOf(t, s, tenant), id)
		put(t, blobsOf(t, s, tenant), "secret of "+tenant)
		if _, err := kv.Put(t.Context(), tenant+"/run/1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	zombie := logOf(t, s, "a")
	watched := make(chan error, 1)
	seen := make(chan struct{}, 10)
	go func() {
		for _, err := range zombie.Watch(t.Context(), id, 1) {
			if err != nil {
				watched <- err
				return
			}
			seen <- struct{}{}
		}
	}()
	<-seen
	for range 2 {
		if err := ts.EraseTenant(t.Context(), "a", store.ThreadRecords{Keys: kv, Prefix: "a/"}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-watched:
		wantClass(t, "a watch of an erased thread", err, errs.NotFound)
	case <-time.After(patience.Of(30 * time.Second)):
		t.Error("the watch of an erased thread goes on")
	}
	_, err := zombie.Append(t.Context(), id, 0, thread.New("", thread.Opened{}))
	wantClass(t, "a zombie of an erased tenant", err, errs.NotFound)
	var keys []string
	if err := kv.List(t.Context(), "", func(key string, _ []byte, _ uint64) error { keys = append(keys, key); return nil }); err != nil {
		t.Fatal(err)
	}
	tenants, err := ts.Tenants(t.Context())
	if d := cmp.Diff([]string{"b/run/1", "b"}, append(keys, tenants...)); d != "" || err != nil {
		t.Error(d, err)
	}
	_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if content, _ := os.ReadFile(name); bytes.Contains(content, []byte("secret of a")) {
				t.Errorf("%s still holds it", name)
			}
		}
		return nil
	})
	if head, err := logOf(t, s, "b").Head(t.Context(), id); head != 3 || err != nil {
		t.Errorf("the other tenant's thread: %d, %v", head, err)
	}
	begin(t, logOf(t, s, "a"), id) // a new life
}
