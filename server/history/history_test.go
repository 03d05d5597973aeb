package history_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/history/historytest"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/apply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with one workspace.
type world struct {
	*historytest.Server
	*historytest.Box
	t *testing.T
}

func newWorld(t *testing.T) *world {
	b := historytest.NewBox(t)
	return &world{historytest.Serve(t, historytest.Boxes{b}, nil), b, t}
}

func (w *world) path(rest string) string { return "/v1/sandboxes/" + string(w.ID) + "/history" + rest }

// ask makes a request that must be answered with the status.
func ask[T any](w *world, status int, method, rest string, body any) T {
	w.t.Helper()
	text := ""
	if body != nil {
		data, err := json.Marshal(body)
		must(w.t, err)
		text = string(data)
	}
	var v T
	got, _, answer := w.Send(w.t, w.Key, method, w.path(rest), text)
	if got != status {
		w.t.Fatalf("%s %s %s: status %d, want %d: %s", method, rest, text, got, status, answer)
	}
	must(w.t, json.Unmarshal(answer, &v))
	return v
}

func (w *world) plan(p api.PlanChange) api.ChangePlan {
	w.t.Helper()
	return ask[api.ChangePlan](w, http.StatusOK, "POST", "/plan", p)
}

func (w *world) apply(plan api.ChangePlan) api.Applied {
	w.t.Helper()
	return ask[api.Applied](w, http.StatusOK, "POST", "/apply", api.ApplyPlan{Plan: plan.ID})
}

func (w *world) page() api.RevisionPage {
	w.t.Helper()
	return ask[api.RevisionPage](w, http.StatusOK, "GET", "", nil)
}

func (w *world) want(path, content string) {
	w.t.Helper()
	if got := w.Read(w.t, path); got != content {
		w.t.Errorf("%s is %q, want %q", path, got, content)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lines is a plan or diff in short: action and path.
func lines(files []api.PathChange) string {
	var b strings.Builder
	for _, f := range files {
		b.WriteString(f.Action + " " + f.Path + "\n")
	}
	return b.String()
}

func TestList(t *testing.T) {
	w := newWorld(t)
	if p := w.page(); len(p.Items) != 0 || p.Current != 0 || p.Undo != 0 || p.Redo != 0 || p.NextPageToken != "" {
		t.Errorf("an empty history: %+v", p)
	}
	for i, content := range []string{"1", "2", "3", "4", "5"} {
		w.Step(t, "a", content, workspace.Label{Thread: "t", Run: []string{"r0", "r1"}[i%2], Step: i, Call: "c", Actor: "agent", Text: "l\xff"})
	}
	var got []uint64
	token := ""
	for {
		p := ask[api.RevisionPage](w, http.StatusOK, "GET", "?page_size=2&page_token="+token, nil)
		for _, r := range p.Items {
			got = append(got, r.N)
		}
		if token = p.NextPageToken; token == "" {
			break
		}
	}
	if d := cmp.Diff([]uint64{5, 4, 3, 2, 1}, got); d != "" {
		t.Error(d)
	}
	p := ask[api.RevisionPage](w, http.StatusOK, "GET", "?run=r1", nil)
	if len(p.Items) != 2 || p.Items[0].N != 4 || p.Items[1].N != 2 || p.Current != 5 || p.Undo != 4 {
		t.Errorf("revisions of r1: %+v", p)
	}
	want := api.Revision{N: 4, Files: 1, Bytes: 1, Thread: "t", Run: "r1", Step: 3, Call: "c", Actor: "agent", Label: "l\uFFFD", Title: "l\uFFFD", Who: "the agent", State: "durable"}
	r := p.Items[0]
	if r.Root == "" || r.Time.IsZero() {
		t.Errorf("%+v", r)
	}
	r.Root, r.Time = "", want.Time
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

func TestSnapshotMakesOneRevisionOfOneChange(t *testing.T) {
	w := newWorld(t)
	w.Write(t, "a", "1")
	first := ask[api.Revision](w, http.StatusCreated, "POST", "", api.MakeRevision{Label: "before lunch"})
	again := ask[api.Revision](w, http.StatusOK, "POST", "", api.MakeRevision{})
	if first.N != 1 || first.Label != "before lunch" || !strings.HasPrefix(first.Actor, "user:key_") || again.N != 1 {
		t.Errorf("%+v, then %+v", first, again)
	}
}

// A name that a person gives to files that have a revision is kept, once, and
// is no step of undo.
func TestSnapshotKeepsANameOfWhatDidNotChange(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{Actor: "agent", Text: "edit a"})
	w.Step(t, "a", "2", workspace.Label{Actor: "agent", Text: "edit a"})
	label := api.MakeRevision{Label: "before lunch"}
	first := ask[api.Revision](w, http.StatusCreated, "POST", "", label)
	again := ask[api.Revision](w, http.StatusOK, "POST", "", label)
	other := ask[api.Revision](w, http.StatusCreated, "POST", "", api.MakeRevision{Label: "after"})
	if first.N != 3 || first.Label != "before lunch" || again.N != 3 || other.N != 4 || other.Root != first.Root {
		t.Errorf("%+v, then %+v, then %+v", first, again, other)
	}
	if rev, fresh, err := w.History.Snapshot(t.Context(), workspace.Label{Actor: "agent", Text: "nothing new"}); err != nil || fresh || rev.N != 4 {
		t.Errorf("a label that is no name: %+v, %v", rev, err)
	}
	page := w.page()
	if page.Current != 2 || page.Undo != 1 || page.Redo != 0 || page.Items[1].Label != "before lunch" {
		t.Errorf("%+v", page)
	}
	w.Step(t, "a", "3", workspace.Label{Actor: "agent"})
	w.apply(w.plan(api.PlanChange{Do: api.PlanRestore, N: first.N}))
	w.want("a", "2")
	w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	w.want("a", "3")
}

func TestGetAndDiff(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "src/a.txt", "one\ntwo\nthree\n", workspace.Label{})
	must(t, os.Symlink("a.txt", w.Dir+"/src/link"))
	w.Write(t, "src/n\xff", "odd")
	w.Write(t, "bin", "\x00\x01")
	w.Step(t, "src/a.txt", "one\n2\nthree", workspace.Label{})

	got := ask[api.RevisionChanges](w, http.StatusOK, "GET", "/2", nil)
	if want := "add bin\nchange src/a.txt\nadd src/link\nadd src/n\uFFFD\n"; lines(got.Files) != want || got.From != 1 || got.N != 2 {
		t.Errorf("revision %d from %d:\n%swant\n%s", got.N, got.From, lines(got.Files), want)
	}
	if f := got.Files[3]; string(f.PathBytes) != "src/n\xff" {
		t.Errorf("the exact path is %q", f.PathBytes)
	}
	if e := got.Files[2].After; e == nil || e.Type != "symlink" || e.Target != "a.txt" {
		t.Errorf("the link: %+v", e)
	}

	d := ask[api.Diff](w, http.StatusOK, "GET", "/diff?from=1&hunks=true&path=/workspace/src/a.txt", nil)
	want := []api.DiffHunk{{Before: 1, BeforeLines: 3, After: 1, AfterLines: 3, Lines: []api.DiffLine{
		{Kind: "same", Text: "one"},
		{Kind: "remove", Text: "two"},
		{Kind: "remove", Text: "three"},
		{Kind: "add", Text: "2"},
		{Kind: "add", Text: "three", NoNewline: true},
	}}}
	if len(d.Files) != 1 || d.To != 2 {
		t.Fatalf("%+v", d)
	}
	if diff := cmp.Diff(want, d.Files[0].Hunks); diff != "" {
		t.Error(diff)
	}
	if d = ask[api.Diff](w, http.StatusOK, "GET", "/diff?from=1&to=2&hunks=true&path=bin", nil); len(d.Files) != 1 || !d.Files[0].Binary {
		t.Errorf("bytes that are no text: %+v", d)
	}
	if d = ask[api.Diff](w, http.StatusOK, "GET", "/diff?from=0&to=2&files=2", nil); len(d.Files) != 2 || !d.Cut {
		t.Errorf("more than was asked for: %+v", d)
	}
	if d = ask[api.Diff](w, http.StatusOK, "GET", "/diff?from=1&to=2&path="+url.QueryEscape("src/n\xff"), nil); len(d.Files) != 1 {
		t.Errorf("a path of any bytes: %+v", d)
	}
	for _, rest := range []string{"/3", "/diff?from=1&to=9", "/diff?from=9"} {
		if p := ask[api.Problem](w, http.StatusNotFound, "GET", rest, nil); p.Class != "not_found" {
			t.Errorf("%s: %+v", rest, p)
		}
	}
}

// A directory of a revision has what was in it then, and nothing of what is beneath.
func TestDirectory(t *testing.T) {
	w := newWorld(t)
	w.Write(t, "src/deep/er/a", "1")
	w.Write(t, "src/n\xff", "four")
	must(t, os.Symlink("n", w.Dir+"/src/link"))
	w.Step(t, "b", "1", workspace.Label{})
	w.Write(t, "src/late", "x")
	w.Step(t, "b", "", workspace.Label{})
	names := func(p api.TreePage) (list []string) {
		for _, n := range p.Items {
			list = append(list, fmt.Sprintf("%s %s %d%s", n.Type, n.Path, n.Size, n.Target))
		}
		return list
	}
	for rest, want := range map[string][]string{
		"/1/list":                      {"file b 1", "directory src 0"},
		"/2/list":                      {"directory src 0"},
		"/1/list?path=src":             {"directory src/deep 0", "symlink src/link 0n", "file src/n\uFFFD 4"},
		"/2/list?path=/workspace/src/": {"directory src/deep 0", "file src/late 1", "symlink src/link 0n", "file src/n\uFFFD 4"},
		"/1/list?path=src/deep/er":     {"file src/deep/er/a 1"},
	} {
		if d := cmp.Diff(want, names(ask[api.TreePage](w, http.StatusOK, "GET", rest, nil))); d != "" {
			t.Errorf("%s: %s", rest, d)
		}
	}
	var got []string
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		p := ask[api.TreePage](w, http.StatusOK, "GET", "/2/list?path=src&page_size=1&page_token="+token, nil)
		got = append(got, names(p)...)
		if token = p.NextPageToken; pages > 3 || token == "" && string(p.Items[0].PathBytes) != "src/n\xff" {
			t.Fatalf("page %d: %+v", pages, p)
		}
	}
	if len(got) != 4 {
		t.Errorf("page by page: %q", got)
	}
	for rest, want := range map[string]int{
		"/1/list?path=b":        http.StatusBadRequest, // no directory
		"/1/list?path=src/late": http.StatusNotFound,
		"/2/list?path=b":        http.StatusNotFound,
		"/9/list":               http.StatusNotFound,
		"/0/list":               http.StatusBadRequest,
		"/1/list?path=..":       http.StatusBadRequest,
	} {
		ask[any](w, want, "GET", rest, nil)
	}
}

func TestContent(t *testing.T) {
	w := newWorld(t)
	page := "<script>alert(1)</script>"
	w.Step(t, "d/x\xff.html", page, workspace.Label{})
	w.Step(t, "d/x\xff.html", "", workspace.Label{})
	status, h, body := w.Send(t, w.Key, "GET", w.path("/1/file?path="+url.QueryEscape("d/x\xff.html")), "")
	if status != http.StatusOK || string(body) != page || h.Get("Content-Length") != "25" {
		t.Errorf("%d %v %q", status, h, body)
	}
	// What a sandbox wrote must not become a page of this server.
	if h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Disposition") != "attachment" ||
		!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", h)
	}
	for rest, want := range map[string]int{
		"/2/file?path=" + url.QueryEscape("d/x\xff.html"): http.StatusNotFound,
		"/1/file?path=d":               http.StatusBadRequest,
		"/1/file?path=":                http.StatusBadRequest,
		"/1/file":                      http.StatusBadRequest,
		"/1/file?path=d/../../x":       http.StatusBadRequest,
		"/1/file?path=/etc/passwd":     http.StatusBadRequest,
		"/1/file?path=/workspaces/x":   http.StatusBadRequest,
		"/1/file?path=a%00b":           http.StatusBadRequest,
		"/9/file?path=" + "d/x":        http.StatusNotFound,
		"/x/file?path=" + "d/x":        http.StatusBadRequest,
		"/-1/file?path=" + "d/x":       http.StatusBadRequest,
		"/path?path=" + "nothing/here": http.StatusOK,
	} {
		ask[any](w, want, "GET", rest, nil)
	}
}

// A directory of any revision is a tar with names beneath it.
func TestArchive(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "d/e/x\xff", "one", workspace.Label{})
	w.Step(t, "d/y", "two", workspace.Label{})
	w.Step(t, "d/y", "three", workspace.Label{})
	for rest, want := range map[string]map[string]string{
		"/2/archive?path=d":            {"e/": "", "e/x\xff": "one", "y": "two"},
		"/3/archive?path=/workspace/d": {"e/": "", "e/x\xff": "one", "y": "three"},
		"/1/archive?path=d/e":          {"x\xff": "one"},
		"/1/archive":                   {"d/": "", "d/e/": "", "d/e/x\xff": "one"},
	} {
		status, h, body := w.Send(t, w.Key, "GET", w.path(rest), "")
		if status != http.StatusOK || h.Get("Content-Type") != "application/x-tar" || h.Get("Content-Disposition") != "attachment" {
			t.Errorf("%s: %d %v", rest, status, h)
		}
		got := map[string]string{}
		for r := tar.NewReader(bytes.NewReader(body)); ; {
			head, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			got[head.Name] = string(data)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", rest, d)
		}
	}
	for rest, want := range map[string]int{
		"/1/archive?path=d/e/x%ff": http.StatusBadRequest, // a file
		"/1/archive?path=nothing":  http.StatusNotFound,
		"/9/archive?path=d":        http.StatusNotFound,
		"/9/archive":               http.StatusNotFound,
		"/1/archive?path=../d":     http.StatusBadRequest,
		"/1/archive?path=/etc":     http.StatusBadRequest,
		"/1/archive?path=a%00b":    http.StatusBadRequest,
		"/x/archive?path=d":        http.StatusBadRequest,
	} {
		ask[any](w, want, "GET", rest, nil)
	}
}

func TestPathHistory(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	w.Step(t, "b", "1", workspace.Label{})
	w.Step(t, "a", "2", workspace.Label{})
	w.Step(t, "a", "", workspace.Label{})
	w.Step(t, "b", "2", workspace.Label{})
	got := ask[api.PathRevisions](w, http.StatusOK, "GET", "/path?path=a", nil)
	var ns []uint64
	for _, r := range got.Items {
		ns = append(ns, r.N)
	}
	if d := cmp.Diff([]uint64{4, 3, 1}, ns); d != "" || got.Items[0].Entry != nil || got.Items[1].Entry == nil {
		t.Errorf("%s\n%+v", d, got)
	}
	if got = ask[api.PathRevisions](w, http.StatusOK, "GET", "/path?path=a&page_size=2", nil); len(got.Items) != 2 || !got.Cut {
		t.Errorf("%+v", got)
	}
}

func TestUndoRedoUndoThreeDeep(t *testing.T) {
	w := newWorld(t)
	for _, content := range []string{"0", "1", "2", "3"} {
		w.Step(t, "a", content, workspace.Label{Actor: "agent"})
	}
	w.Write(t, "kept by nobody", "x") // no revision has it yet
	undo := api.PlanChange{Do: api.PlanUndo}
	w.apply(w.plan(undo))
	w.want("kept by nobody", "")
	for _, want := range []string{"2", "1", "0"} {
		plan := w.plan(undo)
		if lines(plan.Files) != "change a\n" || plan.Total != 1 || plan.Do != "undo" {
			t.Errorf("%+v", plan)
		}
		w.want("a", map[string]string{"2": "3", "1": "2", "0": "1"}[want]) // a plan does nothing
		done := w.apply(plan)
		if len(done.Files) != 1 || done.Files[0].Path != "a" || done.Files[0].Result != "done" || done.Revision.Undoes != plan.N ||
			!strings.HasPrefix(done.Revision.Label, "undo to ") || !strings.HasPrefix(done.Revision.Actor, "user:") {
			t.Errorf("%+v", done)
		}
		w.want("a", want)
	}
	for _, want := range []string{"1", "2", "3"} {
		w.apply(w.plan(api.PlanChange{Do: api.PlanRedo}))
		w.want("a", want)
	}
	w.apply(w.plan(api.PlanChange{Do: api.PlanRedo}))
	w.want("kept by nobody", "x")
	if p := ask[api.Problem](w, http.StatusConflict, "POST", "/plan", api.PlanChange{Do: api.PlanRedo}); !strings.Contains(p.Detail, "redo") {
		t.Errorf("%+v", p)
	}
	w.apply(w.plan(undo))
	w.apply(w.plan(undo))
	w.want("a", "2")
	w.Step(t, "a", "other", workspace.Label{})
	if p := w.page(); p.Redo != 0 {
		t.Errorf("a change after an undo leaves nothing to redo: %+v", p)
	}
	w.apply(w.plan(undo))
	w.want("a", "2")
}

func TestApplyAfterTheFilesMovedIs409AndDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	w.Step(t, "a", "2", workspace.Label{})
	plan := w.plan(api.PlanChange{Do: api.PlanRestore, N: 1})
	w.Write(t, "b", "meanwhile")
	p := ask[api.Problem](w, http.StatusConflict, "POST", "/apply", api.ApplyPlan{Plan: plan.ID})
	if p.Class != "conflict" || p.Hint == "" {
		t.Errorf("%+v", p)
	}
	w.want("a", "2")
	w.want("b", "meanwhile")
	ask[api.Problem](w, http.StatusConflict, "POST", "/apply", api.ApplyPlan{Plan: "undo-1-00000000000000000000000000000000"})
}

func TestRepeatedApplyIsAnsweredAsTheFirst(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	w.Step(t, "a", "2", workspace.Label{})
	restore := api.PlanChange{Do: api.PlanRestore, N: 1}
	plan := w.plan(restore)
	first := w.apply(plan)
	w.Write(t, "a", "2") // and the same plan, sent again by a broken connection, must not undo this
	if d := cmp.Diff(first, w.apply(plan)); d != "" {
		t.Error(d)
	}
	w.want("a", "2")
	// Nor by a server that has not seen the first.
	next := &world{historytest.Serve(t, historytest.Boxes{w.Box}, nil), w.Box, t}
	if d := cmp.Diff(first, next.apply(plan)); d != "" {
		t.Error(d)
	}
	w.want("a", "2")
	// The same way from the same place is planned anew: it must be done again.
	again := w.plan(restore)
	if done := w.apply(again); done.Revision.N == first.Revision.N {
		t.Errorf("nothing was done: %+v", done)
	}
	w.want("a", "1")
}

func TestRestoreOfOnePathLeavesTheOthers(t *testing.T) {
	w := newWorld(t)
	w.Write(t, "d/x\xff", "1")
	w.Step(t, "d/y", "1", workspace.Label{})
	w.Write(t, "d/x\xff", "2")
	w.Step(t, "d/y", "2", workspace.Label{})
	w.apply(w.plan(api.PlanChange{Do: api.PlanRestore, N: 1, PathBytes: []byte("/workspace/d/x\xff")}))
	w.want("d/x\xff", "1")
	w.want("d/y", "2")
}

// What git keeps stays, and a plan says so; commits are no steps of undo.
func TestPlanSaysWhatStays(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "f", "1", workspace.Label{Actor: "agent"})
	w.Step(t, "f", "2", workspace.Label{Actor: "agent"})
	w.Step(t, ".git/HEAD", "ref: refs/heads/main", workspace.Label{})
	plan := w.plan(api.PlanChange{Do: api.PlanUndo})
	if plan.N != 1 || plan.Total != 1 || len(plan.Left) != 1 || plan.Left[0].Path != ".git" || plan.Left[0].Why == "" {
		t.Errorf("%+v", plan)
	}
	w.apply(plan)
	w.want("f", "1")
	w.want(".git/HEAD", "ref: refs/heads/main")
	if page := w.page(); page.Current != 1 || page.Undo != 0 || page.Redo != 2 {
		t.Errorf("at %d, undo to %d, redo to %d", page.Current, page.Undo, page.Redo)
	}
	w.apply(w.plan(api.PlanChange{Do: api.PlanRedo}))
	w.want("f", "2")
	w.apply(w.plan(api.PlanChange{Do: api.PlanRestore, N: 1, Path: ".git"}))
	w.want(".git/HEAD", "")
}

func TestRevertAsksWhereItCannotDecide(t *testing.T) {
	w := newWorld(t)
	w.Write(t, "text", "a\nb\nc\n")
	w.Step(t, "data", "\x001", workspace.Label{})
	w.Write(t, "text", "a\nB\nc\n")
	w.Write(t, "data", "\x002")
	w.Step(t, "other", "made by the step", workspace.Label{})
	w.Write(t, "text", "a\nX\nc\n")
	w.Step(t, "data", "\x003", workspace.Label{})

	revert := api.PlanChange{Do: api.PlanRevert, N: 2}
	plan := w.plan(revert)
	want := []api.PathConflict{
		{Path: "data", Why: "it is no text, and was changed since"},
		{Path: "text", Why: "the same lines were changed since", Markers: true},
	}
	if d := cmp.Diff(want, plan.Conflicts); d != "" {
		t.Error(d)
	}
	ask[api.Problem](w, http.StatusConflict, "POST", "/apply", api.ApplyPlan{Plan: plan.ID})
	w.want("text", "a\nX\nc\n")
	w.want("other", "made by the step")

	revert.Choices = []api.RevertChoice{{Path: "data", Choice: "take"}, {Path: "text", Choice: "markers"}}
	plan = w.plan(revert)
	if len(plan.Conflicts) > 0 {
		t.Fatalf("%+v", plan)
	}
	w.apply(plan)
	w.want("data", "\x001")
	w.want("other", "")
	if got := w.Read(t, "text"); !strings.Contains(got, "<<<<<<<") || !strings.Contains(got, "X") || !strings.Contains(got, "b") {
		t.Errorf("both sides with markers: %q", got)
	}
}

func TestPlanIsCut(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "first", "1", workspace.Label{})
	for i := range 1100 {
		w.Write(t, "many/"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26), "1")
	}
	w.Step(t, "last", "1", workspace.Label{})
	plan := w.plan(api.PlanChange{Do: api.PlanUndo})
	if len(plan.Files) != 1000 || !plan.Cut || plan.Total != 1102 {
		t.Errorf("%d files of %d, cut %v", len(plan.Files), plan.Total, plan.Cut)
	}
	done := w.apply(plan)
	if !done.Cut || w.Read(t, "last") != "" {
		t.Errorf("%d files, cut %v", len(done.Files), done.Cut)
	}
}

func TestOthersFindNothing(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	other := w.NewKey(t, "other", key.Read, key.Write)
	reader := w.NewKey(t, key.DefaultTenant, key.Read)
	for _, tt := range []struct {
		who, method, rest, body string
		want                    int
	}{
		{other, "GET", "", "", 404},
		{other, "GET", "/1/file?path=a", "", 404},
		{other, "POST", "/plan", `{"do":"undo"}`, 404},
		{reader, "GET", "/1", "", 200},
		{reader, "POST", "/plan", `{"do":"undo"}`, 403},
		{reader, "POST", "", `{}`, 403},
		{reader, "POST", "/apply", `{"plan":"x"}`, 403},
		{"", "GET", "", "", 401},
	} {
		if got, _, body := w.Send(t, tt.who, tt.method, w.path(tt.rest), tt.body); got != tt.want {
			t.Errorf("%s %s: %d, want %d: %s", tt.method, tt.rest, got, tt.want, body)
		}
	}
	if got, _, _ := w.Send(t, w.Key, "POST", w.path("/plan"), `{"do":"undo"}`, "Origin", "http://evil.example"); got != http.StatusForbidden {
		t.Errorf("a page of another origin plans: %d", got)
	}
}

// odd is a history with more abilities, some of which fail.
type odd struct {
	workspace.History
	kept    []string
	durable uint64
	bytes   int // that its contents give before they fail
}

func (o odd) Durable(context.Context) (uint64, error) { return o.durable, nil }
func (o odd) Content(_ context.Context, _ uint64, _ string, w io.Writer) error {
	if o.bytes > 0 {
		_, _ = io.WriteString(w, strings.Repeat("x", o.bytes))
	}
	return errors.New("the disk is gone")
}

func (o odd) Apply(ctx context.Context, plan string, l workspace.Label) (workspace.Revision, apply.Result, error) {
	rev, _, err := o.History.Apply(ctx, plan, l)
	return rev, apply.Result{Kept: o.kept}, err
}

func TestWhatAHistoryMaySayBeside(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "1", workspace.Label{})
	w.Step(t, "a", "2", workspace.Label{})
	whole := w.History
	w.History = odd{History: whole, kept: []string{"full/dir\xff"}, durable: 1}
	if p := w.page(); p.Items[0].State != "local" || p.Items[1].State != "durable" {
		t.Errorf("%+v", p.Items)
	}
	if status, _, body := w.Send(t, w.Key, "GET", w.path("/1/file?path=a"), ""); status != 500 || strings.Contains(string(body), "disk") {
		t.Errorf("a failure before the first byte: %d %s", status, body)
	}
	done := w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	want := []api.PathResult{{PathChange: api.PathChange{Path: "a", Action: "change"}, Result: "done"}, {PathChange: api.PathChange{Path: "full/dir\uFFFD", PathBytes: []byte("full/dir\xff"), Action: "change"}, Result: "kept"}}
	for i := range done.Files {
		done.Files[i].Before, done.Files[i].After = nil, nil
	}
	if d := cmp.Diff(want, done.Files); d != "" {
		t.Error(d)
	}

	w.History = odd{History: whole, bytes: 1 << 20}
	if _, _, body := w.Send(t, w.Key, "GET", w.path("/export"), ""); body != nil {
		t.Errorf("half a stream looks whole: %d bytes", len(body))
	}
	w.History = whole
}

// An agent's run of two steps with two calls each, then a person's change.
func TestUndoByScope(t *testing.T) {
	agent := func(run string, step int, call string) workspace.Label {
		return workspace.Label{Actor: "agent", Thread: "t", Run: run, Step: step, Call: call}
	}
	tests := []struct {
		name string
		p    api.PlanChange
		want string // content of a; "" = an error
	}{
		{"the last change", api.PlanChange{}, "r2 s2 c4"},
		{"the last change by name", api.PlanChange{Scope: "last"}, "r2 s2 c4"},
		{"the last call", api.PlanChange{Scope: "call"}, "r2 s2 c3"},
		{"the last step", api.PlanChange{Scope: "step"}, "turn"},
		{"the last turn", api.PlanChange{Scope: "turn"}, "turn"},
		{"the last run", api.PlanChange{Scope: "run"}, "r1"},
		{"a run", api.PlanChange{Scope: "run", Run: "r1"}, "0"},
		{"a run, without saying that it is one", api.PlanChange{Run: "r2"}, "r1"},
		{"a step of a run", api.PlanChange{Scope: "step", Run: "r2", Step: 1}, "r1"},
		{"a call", api.PlanChange{Scope: "call", Call: "c2"}, "r2 s1 c1"},
		{"a run that changed nothing", api.PlanChange{Scope: "run", Run: "r9"}, ""},
		{"a call of another run", api.PlanChange{Scope: "call", Run: "r1", Call: "c2"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.Step(t, "a", "0", workspace.Label{Actor: workspace.Outside})
			w.Step(t, "a", "r1", agent("r1", 1, "c0"))
			w.Step(t, "a", "r2 s1 c1", agent("r2", 1, "c1"))
			w.Step(t, "a", "r2 s1 c2", agent("r2", 1, "c2"))
			w.Step(t, "a", "turn", workspace.Label{Actor: "user", Thread: "t", Run: "r2"})
			w.Step(t, "a", "r2 s2 c3", agent("r2", 2, "c3"))
			w.Step(t, "a", "r2 s2 c4", agent("r2", 2, "c4"))
			w.Step(t, "a", "a person's", workspace.Label{Actor: workspace.Outside})
			tt.p.Do = api.PlanUndo
			if tt.want == "" {
				ask[api.Problem](w, http.StatusNotFound, "POST", "/plan", tt.p)
				return
			}
			w.apply(w.plan(tt.p))
			w.want("a", tt.want)
		})
	}
}

// Programs tell by a code that there is nothing to do; all other refusals have none.
func TestNothingToDo_hasACode(t *testing.T) {
	w := newWorld(t)
	plan := func(what string, status int, p api.PlanChange, code string) {
		t.Helper()
		if got := ask[api.Problem](w, status, "POST", "/plan", p); got.Code != code {
			t.Errorf("%s: code %q, want %q: %+v", what, got.Code, code, got)
		}
	}
	plan("undo of an empty history", http.StatusConflict, api.PlanChange{Do: api.PlanUndo}, "nothing_to_do")
	w.Step(t, "a", "0", workspace.Label{Actor: "user:x"})
	w.Step(t, "a", "1", workspace.Label{Actor: "user:x"})
	for what, p := range map[string]api.PlanChange{
		"a step":              {Scope: "step"},
		"a step of a run":     {Scope: "step", Run: "r9", Step: 3},
		"a turn":              {Scope: "turn"},
		"a run":               {Scope: "run", Run: "r9"},
		"the last call":       {Scope: "call"},
		"a call":              {Scope: "call", Call: "c9"},
		"a call, by its name": {Call: "c9"},
	} {
		p.Do = api.PlanUndo
		plan(what, http.StatusNotFound, p, "nothing_to_do")
	}
	plan("redo", http.StatusConflict, api.PlanChange{Do: api.PlanRedo}, "nothing_to_do")
	plan("a revision that is not there", http.StatusNotFound, api.PlanChange{Do: api.PlanRestore, N: 99}, "")
	for range 2 { // both, back to what the first plan saw
		w.apply(w.plan(api.PlanChange{Do: api.PlanUndo}))
	}
	plan("undo of the first", http.StatusConflict, api.PlanChange{Do: api.PlanUndo}, "nothing_to_do")
}

// Two messages to one run, without a change between them, are two turns.
func TestUndoByScope_turnsOneByOne(t *testing.T) {
	w := newWorld(t)
	says := func() {
		_, _, err := w.History.Snapshot(t.Context(), workspace.Label{Actor: workspace.Outside, Thread: "t", Run: "r", Text: "please"})
		must(t, err)
	}
	w.Step(t, "a", "0", workspace.Label{Actor: workspace.Outside})
	for _, text := range []string{"1", "2"} {
		says()
		w.Step(t, "a", text, workspace.Label{Actor: "agent", Thread: "t", Run: "r", Step: 1, Call: "c" + text})
	}
	says()
	for _, want := range []string{"1", "0"} {
		w.apply(w.plan(api.PlanChange{Do: api.PlanUndo, Scope: "turn"}))
		w.want("a", want)
	}
	if status, _, body := w.Send(t, w.Key, "POST", w.path("/plan"), `{"do": "undo", "scope": "turn"}`); status != http.StatusNotFound && status != http.StatusConflict {
		t.Errorf("a third one: %d %s", status, body)
	}
}

// What was undone is not the last step any more.
func TestUndoByScope_afterAnUndo(t *testing.T) {
	w := newWorld(t)
	w.Step(t, "a", "0", workspace.Label{})
	w.Step(t, "a", "1", workspace.Label{Actor: "agent", Run: "r1", Step: 1, Call: "c1"})
	w.Step(t, "a", "2", workspace.Label{Actor: "agent", Run: "r1", Step: 2, Call: "c2"})
	undo := api.PlanChange{Do: api.PlanUndo, Scope: "step"}
	for _, want := range []string{"1", "0"} {
		w.apply(w.plan(undo))
		w.want("a", want)
	}
	ask[api.Problem](w, http.StatusConflict, "POST", "/plan", undo)
	w.Step(t, "a", "mine", workspace.Label{Actor: "user:anna"})
	if p := ask[api.Problem](w, http.StatusNotFound, "POST", "/plan", undo); p.Hint == "" {
		t.Errorf("%+v", p)
	}
}

// The stream is what git takes, and what git makes of it is what was there.
func TestExportIsARepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	w := newWorld(t)
	w.Write(t, "run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(w.Dir+"/run.sh", 0o755))
	must(t, os.Symlink("run.sh", w.Dir+"/link"))
	w.Write(t, ".git/config", "[core]\n\tfsmonitor = evil\n")
	w.Write(t, "odd\n\"\\\xff", "1")
	w.Step(t, "d/x", "in a directory", workspace.Label{Actor: "agent", Run: "r1", Text: "first <x>\n"})
	must(t, os.RemoveAll(w.Dir+"/d"))
	w.Step(t, "d", "a file in its place", workspace.Label{Actor: "a\nauthor <evil> 0"})
	must(t, os.Remove(w.Dir+"/d"))
	w.Step(t, "d/y", "and back", workspace.Label{})
	status, h, stream := w.Send(t, w.Key, "GET", w.path("/export"), "")
	if status != http.StatusOK || h.Get("Content-Type") != "application/x-git-fast-import" {
		t.Fatalf("%d %v", status, h)
	}
	dir := t.TempDir()
	git := func(in []byte, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git(nil, "init", "--quiet", ".")
	git(stream, "fast-import", "--quiet", "--done")
	git(nil, "fsck", "--strict")
	for n, want := range []string{
		"120000 link\n100644 d/y\n100644 odd\n\"\\\xff\n100755 run.sh\n",
		"120000 link\n100644 d\n100644 odd\n\"\\\xff\n100755 run.sh\n",
		"120000 link\n100644 d/x\n100644 odd\n\"\\\xff\n100755 run.sh\n",
	} {
		var got []string
		for line := range strings.SplitSeq(strings.TrimSuffix(git(nil, "ls-tree", "-rz", fmt.Sprintf("main~%d", n)), "\x00"), "\x00") {
			facts, name, _ := strings.Cut(line, "\t")
			got = append(got, facts[:6]+" "+name+"\n")
		}
		slices.Sort(got)
		wanted := strings.SplitAfter(strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "odd\n", "odd\x01"), "\n")
		for i := range wanted {
			wanted[i] = strings.TrimSuffix(strings.ReplaceAll(wanted[i], "odd\x01", "odd\n"), "\n") + "\n"
		}
		slices.Sort(wanted)
		if d := cmp.Diff(wanted, got); d != "" {
			t.Errorf("main~%d: %s", n, d)
		}
	}
	if got := git(nil, "show", "main~2:d/x"); got != "in a directory" {
		t.Errorf("%q", got)
	}
	if got := git(nil, "log", "-1", "--format=%cn|%s|%b", "main~2"); !strings.HasPrefix(got, "agent|first <x>|") || !strings.Contains(got, "Run: r1") {
		t.Errorf("%q", got)
	}
}
