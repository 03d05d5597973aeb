package client_test

import (
	"io"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/history/historytest"
	"github.com/skete-dev/skete/workspace"
)

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestHistory(t *testing.T) {
	ctx := t.Context()
	box := historytest.NewBox(t)
	s := historytest.Serve(t, historytest.Boxes{box}, nil)
	c := must[*client.Client](t)(client.New(client.Config{URL: s.URL, Key: s.Key}))
	defer c.Close()
	h := c.Sandbox(string(box.ID)).History()

	box.Write(t, "n\xff", "1")
	first := must[api.Revision](t)(h.Snapshot(ctx, "by hand"))
	if again := must[api.Revision](t)(h.Snapshot(ctx, "by hand")); first.N != 1 || again.N != 1 || again.Label != "by hand" {
		t.Errorf("%+v, %+v", first, again)
	}
	for _, content := range []string{"2", "3", "4"} {
		box.Step(t, "n\xff", content, workspace.Label{Run: "r"})
	}
	var ns []uint64
	for r, err := range h.Revisions(ctx, client.RevisionFilter{Run: "r", PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, r.N)
	}
	if len(ns) != 3 || ns[0] != 4 || ns[2] != 2 {
		t.Errorf("%v", ns)
	}
	if of := must[api.PathRevisions](t)(h.Of(ctx, "n\xff")); len(of.Items) != 4 {
		t.Errorf("%+v", of)
	}
	d := must[api.Diff](t)(h.Diff(ctx, 1, 0, client.DiffOptions{Path: "n\xff", Hunks: true, Context: 1}))
	if len(d.Files) != 1 || client.ChangedPath(d.Files[0]) != "n\xff" || len(d.Files[0].Hunks) != 1 || d.To != 4 {
		t.Errorf("%+v", d)
	}
	if got := must[api.RevisionChanges](t)(h.Get(ctx, 2)); got.From != 1 || len(got.Files) != 1 {
		t.Errorf("%+v", got)
	}
	r := must[io.ReadCloser](t)(h.Open(ctx, 2, "n\xff"))
	defer r.Close()
	if data := must[[]byte](t)(io.ReadAll(r)); string(data) != "2" {
		t.Errorf("%q", data)
	}

	plan := must[api.ChangePlan](t)(h.Plan(ctx, api.PlanChange{Do: api.PlanRestore, N: 1, PathBytes: []byte("n\xff")}))
	done := must[api.Applied](t)(h.Apply(ctx, plan.ID))
	if box.Read(t, "n\xff") != "1" || done.Revision.N != 5 {
		t.Errorf("%+v", done)
	}
	if _, err := h.Apply(ctx, "undo-1-abc"); !errs.Is(err, errs.Conflict) {
		t.Errorf("%v", err)
	}
	if page := must[api.RevisionPage](t)(h.Page(ctx, 1, "")); len(page.Items) != 1 || page.Current != 5 || page.Undo != 4 || page.Redo != 0 || page.NextPageToken == "" {
		t.Errorf("%+v", page)
	}
}
