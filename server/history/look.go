package history

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"path"
	"slices"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/tree"
)

const pageSizeDefault = 100

// durable returns the newest revision that survives the sandbox.
func (o opened) durable(ctx context.Context) (uint64, error) {
	if d, ok := o.History.(Durable); ok {
		return d.Durable(ctx)
	}
	return 1<<64 - 1, nil
}

type listIn struct {
	SandboxPath
	PageSize  int    `query:"page_size" minimum:"0" maximum:"1000" doc:"default 100"`
	PageToken string `query:"page_token" maxLength:"20"`
	Thread    string `query:"thread" maxLength:"256" doc:"only revisions of this thread"`
	Run       string `query:"run" maxLength:"256" doc:"only revisions of this run"`
}

type listOut struct{ Body api.RevisionPage }

func (s *service) list(ctx context.Context, in *listIn) (*listOut, error) {
	below := uint64(1<<64 - 1)
	if in.PageToken != "" {
		var err error
		if below, err = strconv.ParseUint(in.PageToken, 10, 64); err != nil {
			return nil, errs.New(errs.Invalid, "the page token is none of ours")
		}
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	var now workspace.Unsaved
	unseen := error(nil)
	if in.PageToken == "" {
		now, unseen = h.Unsaved(ctx) // first: the look may find that there is a new one
	}
	revs, err := h.Revisions(ctx)
	if err != nil {
		return nil, err
	}
	durable, err := h.durable(ctx)
	if err != nil {
		return nil, err
	}
	size := cmp.Or(in.PageSize, pageSizeDefault)
	page := api.RevisionPage{Items: []api.Revision{}}
	page.Current, page.Undo, page.Redo = workspace.Position(revs)
	showUnsaved(&page, revs, now, unseen)
	for _, r := range slices.Backward(revs) {
		switch {
		case r.N >= below, in.Thread != "" && r.Thread != in.Thread, in.Run != "" && r.Run != in.Run:
			continue
		case len(page.Items) == size:
			page.NextPageToken = strconv.FormatUint(page.Items[size-1].N, 10)
			return &listOut{page}, nil
		}
		page.Items = append(page.Items, revisionView(r, durable))
	}
	return &listOut{page}, nil
}

// showUnsaved says where the files are if no revision has them.
func showUnsaved(page *api.RevisionPage, revs []workspace.Revision, now workspace.Unsaved, unseen error) {
	last := uint64(0)
	if n := len(revs); n > 0 {
		last = revs[n-1].N
	}
	switch {
	case errs.Is(unseen, errs.NotFound): // there are no files any more
	case unseen != nil:
		page.Unseen = errs.Public(unseen)
	case now.Any && now.Since == last: // else it has become one meanwhile
		page.Unsaved = &api.Unsaved{Files: now.Files, Cut: now.Cut}
		if !now.Aside {
			page.Current, page.Undo, page.Redo = 0, page.Current, 0
		}
	}
}

// find returns a revision and the one before it; the zero Revision: none is kept.
func find(revs []workspace.Revision, n uint64) (rev, before workspace.Revision, err error) {
	i, ok := slices.BinarySearchFunc(revs, n, func(r workspace.Revision, n uint64) int { return cmp.Compare(r.N, n) })
	if !ok {
		return rev, before, errs.New(errs.NotFound, "there is no revision %d", n).WithHint("GET …/history lists them")
	}
	if i > 0 {
		before = revs[i-1]
	}
	return revs[i], before, nil
}

type getOut struct{ Body api.RevisionChanges }

func (s *service) get(ctx context.Context, in *RevisionPath) (*getOut, error) {
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	revs, err := h.Revisions(ctx)
	if err != nil {
		return nil, err
	}
	rev, before, err := find(revs, in.N)
	if err != nil {
		return nil, err
	}
	durable, err := h.durable(ctx)
	if err != nil {
		return nil, err
	}
	d, err := h.Diff(ctx, before.N, rev.N, workspace.DiffOptions{FilesMax: filesMax})
	if err != nil {
		return nil, err
	}
	return &getOut{api.RevisionChanges{Revision: revisionView(rev, durable), From: before.N, Files: diffView(d), Cut: d.Cut}}, nil
}

type diffIn struct {
	SandboxPath
	From    uint64 `query:"from" doc:"a revision; 0 = the empty tree"`
	To      uint64 `query:"to" minimum:"0" doc:"a revision; 0 = the files as they are now"`
	Path    string `query:"path" doc:"this path, and what is beneath it; any bytes, percent-encoded"`
	Hunks   bool   `query:"hunks" doc:"the changed lines of texts too"`
	Context int    `query:"context" minimum:"0" maximum:"1000" doc:"lines around a change, default 3"`
	Files   int    `query:"files" minimum:"0" maximum:"1000" doc:"how many at most, default 1000"`
}

type diffOut struct{ Body api.Diff }

func (s *service) diff(ctx context.Context, in *diffIn) (*diffOut, error) {
	path, err := place(in.Path)
	if err != nil {
		return nil, err
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	o := workspace.DiffOptions{
		Path: path, Hunks: in.Hunks, Context: in.Context, FilesMax: cmp.Or(in.Files, filesMax), BytesMax: hunkBytesMax,
	}
	var d workspace.Diff
	if in.To == 0 {
		d, in.To, err = h.DiffNow(ctx, in.From, o)
	} else {
		d, err = h.Diff(ctx, in.From, in.To, o)
	}
	if err != nil {
		return nil, err
	}
	return &diffOut{api.Diff{From: in.From, To: in.To, Files: diffView(d), Cut: d.Cut}}, nil
}

type pathIn struct {
	SandboxPath
	Path     string `query:"path" required:"true" doc:"relative to the workspace; any bytes, percent-encoded"`
	PageSize int    `query:"page_size" minimum:"0" maximum:"1000" doc:"default 100"`
}

type pathOut struct{ Body api.PathRevisions }

func (s *service) pathHistory(ctx context.Context, in *pathIn) (*pathOut, error) {
	path, err := place(in.Path)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errs.New(errs.Invalid, "the workspace as a whole is in every revision").WithHint("GET …/history lists them")
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	revs, err := h.Revisions(ctx)
	if err != nil {
		return nil, err
	}
	durable, err := h.durable(ctx)
	if err != nil {
		return nil, err
	}
	out := api.PathRevisions{Items: []api.PathRevision{}}
	size := cmp.Or(in.PageSize, pageSizeDefault)
	if len(revs) == 0 {
		return &pathOut{out}, nil
	}
	entry, err := entryAt(ctx, h, revs[len(revs)-1].N, path)
	for i := len(revs) - 1; i >= 0 && err == nil; i-- {
		var before tree.Entry
		if i > 0 && revs[i-1].Root == revs[i].Root {
			continue // the same tree
		}
		if i > 0 {
			if before, err = entryAt(ctx, h, revs[i-1].N, path); err != nil {
				break
			}
		}
		if before.Type != entry.Type || before.Type != 0 && !before.Same(entry) {
			if out.Cut = len(out.Items) == size; out.Cut {
				break
			}
			out.Items = append(out.Items, api.PathRevision{Revision: revisionView(revs[i], durable), Entry: entryView(entry)})
		}
		entry = before
	}
	return &pathOut{out}, err
}

// entryAt returns what is at a path; the zero Entry is nothing.
func entryAt(ctx context.Context, h workspace.History, n uint64, path string) (tree.Entry, error) {
	e, err := h.Entry(ctx, n, path)
	if errs.Is(err, errs.NotFound) {
		return tree.Entry{}, nil
	}
	return e, err
}

type directoryIn struct {
	RevisionPath
	Path      string `query:"path" doc:"relative to the workspace; any bytes, percent-encoded; default all of it"`
	PageSize  int    `query:"page_size" minimum:"0" maximum:"1000" doc:"default 1000"`
	PageToken string `query:"page_token" maxLength:"400"`
}

type directoryOut struct{ Body api.TreePage }

func (s *service) directory(ctx context.Context, in *directoryIn) (*directoryOut, error) {
	dir, err := place(in.Path)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.PageToken)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the page token is none of ours")
	}
	h, err := s.open(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer h.release()
	entries, err := h.List(ctx, in.N, dir)
	if err != nil {
		return nil, err
	}
	if len(after) > 0 {
		i, found := slices.BinarySearchFunc(entries, string(after), func(e tree.Entry, name string) int { return cmp.Compare(e.Name, name) })
		if found {
			i++
		}
		entries = entries[i:]
	}
	page := api.TreePage{Items: []api.TreeNode{}}
	if size := cmp.Or(in.PageSize, filesMax); len(entries) > size {
		entries = entries[:size]
		page.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(entries[size-1].Name))
	}
	for _, e := range entries {
		n := api.TreeNode{TreeEntry: *entryView(e)}
		n.Path, n.PathBytes = named(path.Join(dir, e.Name))
		page.Items = append(page.Items, n)
	}
	return &directoryOut{page}, nil
}

type contentIn struct {
	RevisionPath
	Path string `query:"path" required:"true" doc:"relative to the workspace; any bytes, percent-encoded"`
}

func (s *service) content(w http.ResponseWriter, r *http.Request, in *contentIn) error {
	path, err := place(in.Path)
	if err != nil {
		return err
	}
	h, err := s.open(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer h.release()
	e, err := h.Entry(r.Context(), in.N, path)
	if err != nil {
		return err
	}
	if e.Type != tree.File {
		return errs.New(errs.Invalid, "%.200q is no file in revision %d", path, in.N)
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	out := &download{w: w, contentType: "application/octet-stream", size: e.Size}
	return out.finish(r, h.Content(ctx, in.N, path, out))
}

type archiveIn struct {
	RevisionPath
	Path string `query:"path" doc:"relative to the workspace; any bytes, percent-encoded; default all of it"`
}

// archive writes a directory of a revision as a tar.
func (s *service) archive(w http.ResponseWriter, r *http.Request, in *archiveIn) error {
	path, err := place(in.Path)
	if err != nil {
		return err
	}
	h, ctx, release, err := s.sending(w, r, in.ID)
	if err != nil {
		return err
	}
	defer release()
	write, err := workspace.Archive(ctx, h, in.N, path)
	if err != nil {
		return err
	}
	out := &download{w: w, contentType: "application/x-tar", size: -1}
	return out.finish(r, write(out))
}

func (s *service) export(w http.ResponseWriter, r *http.Request, in *SandboxPath) error {
	h, ctx, release, err := s.sending(w, r, in.ID)
	if err != nil {
		return err
	}
	defer release()
	out := &download{w: w, contentType: "application/x-git-fast-import", size: -1}
	return out.finish(r, workspace.ExportGit(ctx, h, out))
}

// sending opens a history of which a stream is sent, as long as ctx lasts. release
// must be called.
func (s *service) sending(w http.ResponseWriter, r *http.Request, id string) (h opened, ctx context.Context, release func(), err error) {
	if h, err = s.open(r.Context(), id); err != nil {
		return h, nil, nil, err
	}
	ctx, admitted, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		h.release()
		return h, nil, nil, err
	}
	return h, ctx, func() { admitted(); h.release() }, nil
}

// download sends content that a sandbox wrote; its header goes out with the
// first byte, so that what fails before it is still a problem with a status.
type download struct {
	w           http.ResponseWriter
	contentType string
	size        int64 // -1 = not known
	begun       bool
	gone        bool // the client is
}

func (d *download) begin() {
	if d.begun {
		return
	}
	d.begun = true
	h := d.w.Header()
	h.Set("Content-Type", d.contentType)
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // never a page of this server
	h.Set("Cache-Control", "no-store")
	if d.size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(d.size, 10))
	}
	d.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (d *download) Write(p []byte) (int, error) {
	d.begin()
	n, err := d.w.Write(p)
	d.gone = d.gone || err != nil
	return n, err
}

// finish ends a download: half of it must not look whole.
func (d *download) finish(r *http.Request, err error) error {
	switch {
	case err == nil:
		d.begin()
		return nil
	case !d.begun:
		return err
	case !d.gone:
		route.Note(r, err)
		panic(http.ErrAbortHandler)
	}
	return nil
}
