package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

var historyTools = []*tool{
	does(tool{
		name: "history_list", title: "List revisions", scope: read, hints: reads,
		about: "List the revisions of /workspace, newest first: what each is the result of and who made it, where the files are now, and where undo and redo would go.",
	}, listHistory),
	does(tool{
		name: "history_diff", title: "Compare revisions", scope: read, hints: reads,
		about: "Show what a revision changed, or what differs between two of them, line by line.",
	}, diffHistory),
	does(tool{
		name: "history_undo", title: "Undo changes of files", scope: write, hints: destroys,
		about: "Take the files of /workspace back: undo the last change, redo, restore a revision, or revert what one revision changed. " +
			"It is a revision itself, so it can be undone too. With preview nothing is done.",
	}, undo),
}

type historyIn struct {
	onSandbox
	Limit int    `json:"limit,omitempty" minimum:"1" maximum:"200" about:"default 50"`
	Next  string `json:"page_token,omitempty" about:"next_page_token of the call before"`
}

type revisionView struct {
	N      uint64    `json:"n"`
	Time   time.Time `json:"time"`
	Title  string    `json:"title"`
	Who    string    `json:"who"`
	Run    string    `json:"run,omitempty"`
	Undoes uint64    `json:"undoes,omitempty"`
}

func viewOfRevision(r api.Revision) revisionView {
	return revisionView{r.N, r.Time, r.Title, r.Who, r.Run, r.Undoes}
}

func listHistory(ctx context.Context, s *Server, in *historyIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	p, err := sb.History().Page(ctx, cmp.Or(in.Limit, listMax), in.Next)
	if err != nil {
		return nil, err
	}
	out := struct {
		Items   []revisionView `json:"items"`
		Current uint64         `json:"current"`
		Undo    uint64         `json:"undo"`
		Redo    uint64         `json:"redo"`
		Unsaved *api.Unsaved   `json:"unsaved,omitempty"`
		Next    string         `json:"next_page_token,omitempty"`
	}{[]revisionView{}, p.Current, p.Undo, p.Redo, p.Unsaved, p.NextPageToken}
	for _, r := range p.Items {
		out.Items = append(out.Items, viewOfRevision(r))
	}
	return object(out)
}

type diffIn struct {
	onSandbox
	Revision uint64 `json:"revision,omitempty" about:"what this one changed; or:"`
	From     uint64 `json:"from,omitempty" about:"the older revision; left out with to: the current one"`
	To       uint64 `json:"to,omitempty" about:"the newer one; left out: the files as they are now"`
	Path     string `json:"path,omitempty" about:"this path beneath /workspace alone"`
	Context  int    `json:"context,omitempty" minimum:"1" maximum:"20" about:"lines around a change; default 3"`
}

// diffBytesMax bounds a diff in a result.
const diffBytesMax = 64 << 10

func diffHistory(ctx context.Context, s *Server, in *diffIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	h := sb.History()
	from, to := in.From, in.To
	switch {
	case in.Revision != 0 && (from != 0 || to != 0):
		return nil, errs.New(errs.Invalid, "revision and from or to are both given; give one of them")
	case in.Revision != 0:
		rev, err := h.Get(ctx, in.Revision)
		if err != nil {
			return nil, err
		}
		from, to = rev.From, in.Revision
	case from == 0 && to == 0:
		p, err := h.Page(ctx, 1, "")
		if err != nil {
			return nil, err
		}
		from = p.Current
	}
	d, err := h.Diff(ctx, from, to, client.DiffOptions{Path: in.Path, Hunks: true, Context: in.Context})
	if err != nil {
		return nil, err
	}
	return textResult(diffText(d)), nil
}

// diffText is a diff in the form that patch and git know.
func diffText(d api.Diff) string {
	var b strings.Builder
	left := 0
	for _, f := range d.Files {
		if b.Len() > diffBytesMax {
			left++
			continue
		}
		writeChange(&b, f)
	}
	if b.Len() == 0 {
		return "nothing differs"
	}
	text := b.String()
	if len(text) > diffBytesMax {
		text = clip.Text(text, diffBytesMax) + "\n"
		left++
	}
	if left > 0 || d.Cut {
		text += fmt.Sprintf("[… there is more, of %d files at least; path shows one of them …]\n", max(left, 1))
	}
	return text
}

func writeChange(b *strings.Builder, f api.PathChange) {
	fmt.Fprintf(b, "%s %s", f.Action, f.Path)
	switch {
	case f.Binary:
		b.WriteString(" (no text)")
	case f.Large:
		b.WriteString(" (too large to show)")
	}
	b.WriteByte('\n')
	marks := map[string]string{"same": " ", "remove": "-", "add": "+"}
	for _, h := range f.Hunks {
		fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", h.Before, h.BeforeLines, h.After, h.AfterLines)
		for _, l := range h.Lines {
			b.WriteString(marks[l.Kind] + clip.Text(l.Text, 4*lineMax) + "\n")
		}
	}
}

type undoIn struct {
	onSandbox
	Do      string `json:"do,omitempty" enum:"undo,redo,restore,revert" about:"default undo"`
	N       uint64 `json:"n,omitempty" about:"of restore and revert: the revision"`
	Path    string `json:"path,omitempty" about:"of restore: this path beneath /workspace alone"`
	Preview bool   `json:"preview,omitempty" about:"only say what would change"`
}

// wayBack is what a way back does, or would.
type wayBack struct {
	Do        string             `json:"do"`
	N         uint64             `json:"n" `
	Revision  *revisionView      `json:"revision,omitempty"`
	Preview   bool               `json:"preview,omitempty"`
	Files     []string           `json:"files"`
	Total     int                `json:"files_total"`
	Conflicts []api.PathConflict `json:"conflicts,omitempty"`
	Left      []api.PathLeft     `json:"left,omitempty"`
}

func undo(ctx context.Context, s *Server, in *undoIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	h := sb.History()
	plan, err := h.Plan(ctx, api.PlanChange{Do: cmp.Or(in.Do, api.PlanUndo), N: in.N, Path: in.Path})
	if err != nil {
		return nil, err
	}
	out := wayBack{Do: plan.Do, N: plan.N, Preview: in.Preview, Files: []string{}, Total: plan.Total, Conflicts: firstOf(plan.Conflicts), Left: firstOf(plan.Left)}
	for _, f := range firstOf(plan.Files) {
		out.Files = append(out.Files, f.Action+" "+f.Path)
	}
	if in.Preview {
		return object(out)
	}
	if n := len(plan.Conflicts); n > 0 {
		return nil, errs.New(errs.Conflict, "%d paths were changed again since, first %q: %s", n, plan.Conflicts[0].Path, plan.Conflicts[0].Why).
			WithHint("restore a revision, or the paths one by one; preview lists them")
	}
	done, err := h.Apply(ctx, plan.ID)
	if err != nil {
		return nil, err
	}
	rev := viewOfRevision(done.Revision)
	out.Revision = &rev
	return object(out)
}

func firstOf[T any](all []T) []T { return all[:min(len(all), searchMax)] }
