package server

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/danielgtaylor/huma/v2"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/view"
)

// filePath names a file of a sandbox. The path is bytes, percent-encoded.
type filePath struct {
	sandboxPath
	Path string `query:"path" required:"true" doc:"absolute, or relative to the working directory; any bytes, percent-encoded"`
	User string `query:"user" maxLength:"64" doc:"whose rights count; default the sandbox's user"`
}

func (s *Server) registerFiles() {
	const tag, base = "files", "/v1/sandboxes/{id}/files"
	binary := func(op *huma.Operation) {
		answers(op, "200", "The content", "application/octet-stream", &huma.Schema{Type: huma.TypeString, Format: "binary"})
	}
	handleRaw(s, operation{method: http.MethodGet, path: base, scope: key.Read, id: "read-file", tag: tag,
		summary: "Read a file, or one range of it", change: binary}, s.readFile)
	handleRaw(s, operation{method: http.MethodPut, path: base, scope: key.Write, id: "write-file", tag: tag,
		summary: "Write a file: whole (atomic), at an offset, or at its end", change: func(op *huma.Operation) {
			takes(op, "application/octet-stream")
			answers(op, "200", "The file as it is now", "application/json", schemaOf[api.FileWritten](s))
		}}, s.writeFile)
	handle(s, operation{method: http.MethodDelete, path: base, scope: key.Write, id: "remove-file", tag: tag,
		summary: "Remove a file or a tree"}, s.removeFile)
	handle(s, operation{method: http.MethodGet, path: base + "/stat", scope: key.Read, id: "stat-file", tag: tag,
		summary: "Look at a path"}, s.statFile)
	handle(s, operation{method: http.MethodGet, path: base + "/list", scope: key.Read, id: "list-files", tag: tag,
		summary: "List a directory"}, s.listFiles)
	handle(s, operation{method: http.MethodPost, path: base + "/mkdir", scope: key.Write, id: "make-directory", tag: tag,
		summary: "Make a directory"}, s.makeDir)
	handle(s, operation{method: http.MethodPost, path: base + "/move", scope: key.Write, id: "move-file", tag: tag,
		summary: "Rename a file or directory"}, s.moveFile)
	handle(s, operation{method: http.MethodPost, path: base + "/copy", scope: key.Write, id: "copy-file", tag: tag,
		summary: "Copy a file or directory"}, s.copyFile)
	handle(s, operation{method: http.MethodPost, path: base + "/chmod", scope: key.Write, id: "chmod-file", tag: tag,
		summary: "Set permission bits"}, s.chmodFile)
	handle(s, operation{method: http.MethodPost, path: base + "/symlink", scope: key.Write, id: "symlink-file", tag: tag,
		summary: "Make a symbolic link"}, s.symlinkFile)
	handle(s, operation{method: http.MethodGet, path: base + "/glob", scope: key.Read, id: "glob-files", tag: tag,
		summary: "Find paths by pattern"}, s.globFiles)
	handle(s, operation{method: http.MethodGet, path: base + "/grep", scope: key.Read, id: "grep-files", tag: tag,
		summary: "Find lines by pattern"}, s.grepFiles)
	handleRaw(s, operation{method: http.MethodGet, path: base + "/watch", scope: key.Read, id: "watch-files", tag: tag,
		summary: "Stream changes in a tree as server-sent events", change: eventStream[api.FileEvent](s)}, s.watchFiles)
}

type fileOut struct{ Body api.File }

type statFileIn struct {
	filePath
	Follow bool `query:"follow" doc:"of a symbolic link show the target"`
	Hash   bool `query:"hash" doc:"read the content for its SHA-256"`
}

func (s *Server) statFile(ctx context.Context, in *statFileIn) (*fileOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	f, err := stat(ctx, g, &wire.StatRequest{Path: []byte(in.Path), User: in.User, Follow: in.Follow, Hash: in.Hash})
	if err != nil {
		return nil, err
	}
	return &fileOut{f}, nil
}

func stat(ctx context.Context, g guest, req *wire.StatRequest) (api.File, error) {
	res, err := g.File.Stat(ctx, connect.NewRequest(req))
	if err != nil {
		return api.File{}, wire.Err(err)
	}
	f := view.File(res.Msg.GetEntry())
	if hashOK(res.Msg.GetSha256()) {
		f.SHA256 = res.Msg.GetSha256()
	}
	return f, nil
}

// hashOK: what the guest says goes into a header.
func hashOK(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}

type listFilesIn struct {
	filePath
	Depth     int    `query:"depth" minimum:"0" maximum:"64" doc:"0 and 1 = this directory only"`
	PageSize  int    `query:"page_size" minimum:"0" maximum:"10000" doc:"default 1000"`
	PageToken string `query:"page_token" maxLength:"16384"`
}

type listFilesOut struct{ Body api.FilePage }

func (s *Server) listFiles(ctx context.Context, in *listFilesIn) (*listFilesOut, error) {
	token, err := hex.DecodeString(in.PageToken)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the page token is none of ours")
	}
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.File.List(ctx, connect.NewRequest(&wire.ListRequest{
		Path: []byte(in.Path), User: in.User, Depth: uint32(in.Depth), PageSize: uint32(in.PageSize), PageToken: token,
	}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &listFilesOut{api.FilePage{
		Items: view.Files(res.Msg.GetEntries()), NextPageToken: hex.EncodeToString(res.Msg.GetNextPageToken()),
	}}, nil
}

type removeFileIn struct {
	filePath
	Recursive bool `query:"recursive"`
	MissingOK bool `query:"missing_ok" doc:"no error if there is nothing"`
}

type removedOut struct{ Body api.Removed }

func (s *Server) removeFile(ctx context.Context, in *removeFileIn) (*removedOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.File.Remove(ctx, connect.NewRequest(&wire.RemoveRequest{
		Path: []byte(in.Path), User: in.User, Recursive: in.Recursive, MissingOk: in.MissingOK,
	}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &removedOut{api.Removed{Removed: res.Msg.GetRemoved()}}, nil
}

// fileIn is a JSON request on the files of a sandbox.
type fileIn[B any] struct {
	sandboxPath
	Body B
}

// changeFile makes a call of the guest that answers with an entry.
func changeFile(ctx context.Context, s *Server, id string, call func(guest) (*wire.Entry, error)) (*fileOut, error) {
	g, err := s.guest(ctx, id)
	if err != nil {
		return nil, err
	}
	defer g.release()
	e, err := call(g)
	if err != nil {
		return nil, wire.Err(err)
	}
	return &fileOut{view.File(e)}, nil
}

// entryOf takes the entry out of a guest's answer.
func entryOf[M any](res *connect.Response[M], err error, get func(*M) *wire.Entry) (*wire.Entry, error) {
	if err != nil {
		return nil, err
	}
	return get(res.Msg), nil
}

func (s *Server) makeDir(ctx context.Context, in *fileIn[api.MakeDir]) (*fileOut, error) {
	b := in.Body
	return changeFile(ctx, s, in.ID, func(g guest) (*wire.Entry, error) {
		res, err := g.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: []byte(b.Path), User: b.User, Parents: b.Parents, Mode: b.Mode}))
		return entryOf(res, err, (*wire.MakeDirResponse).GetEntry)
	})
}

func (s *Server) moveFile(ctx context.Context, in *fileIn[api.MoveFile]) (*fileOut, error) {
	b := in.Body
	return changeFile(ctx, s, in.ID, func(g guest) (*wire.Entry, error) {
		res, err := g.File.Move(ctx, connect.NewRequest(&wire.MoveRequest{Source: []byte(b.Source), Destination: []byte(b.Destination), User: b.User, Overwrite: b.Overwrite}))
		return entryOf(res, err, (*wire.MoveResponse).GetEntry)
	})
}

func (s *Server) copyFile(ctx context.Context, in *fileIn[api.CopyFile]) (*fileOut, error) {
	b := in.Body
	return changeFile(ctx, s, in.ID, func(g guest) (*wire.Entry, error) {
		res, err := g.File.Copy(ctx, connect.NewRequest(&wire.CopyRequest{Source: []byte(b.Source), Destination: []byte(b.Destination), User: b.User, Overwrite: b.Overwrite}))
		return entryOf(res, err, (*wire.CopyResponse).GetEntry)
	})
}

func (s *Server) chmodFile(ctx context.Context, in *fileIn[api.ChmodFile]) (*fileOut, error) {
	b := in.Body
	return changeFile(ctx, s, in.ID, func(g guest) (*wire.Entry, error) {
		res, err := g.File.Chmod(ctx, connect.NewRequest(&wire.ChmodRequest{Path: []byte(b.Path), User: b.User, Mode: b.Mode, Recursive: b.Recursive}))
		return entryOf(res, err, (*wire.ChmodResponse).GetEntry)
	})
}

func (s *Server) symlinkFile(ctx context.Context, in *fileIn[api.SymlinkFile]) (*fileOut, error) {
	b := in.Body
	return changeFile(ctx, s, in.ID, func(g guest) (*wire.Entry, error) {
		res, err := g.File.Symlink(ctx, connect.NewRequest(&wire.SymlinkRequest{Target: []byte(b.Target), Path: []byte(b.Path), User: b.User}))
		return entryOf(res, err, (*wire.SymlinkResponse).GetEntry)
	})
}

type watchFilesIn struct {
	filePath
	Recursive   bool   `query:"recursive"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

func (s *Server) watchFiles(w http.ResponseWriter, r *http.Request, in *watchFilesIn) error {
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	watch := stream.Watch{Path: []byte(in.Path), User: in.User, Recursive: in.Recursive, LastID: in.LastEventID}
	return stream.FileEvents(ctx, g.Client, watch, func() (*stream.SSE, error) { return stream.NewSSE(w) })
}

type writeFileIn struct {
	filePath
	Mode        uint32 `query:"mode" maximum:"4095" doc:"permission bits as a decimal number; default 420 (0644), or what the file has"`
	MakeParents bool   `query:"make_parents"`
	Offset      int64  `query:"offset" minimum:"-1" default:"-1" doc:"write in place at this offset"`
	Append      bool   `query:"append" doc:"write in place at the end"`
	IfMatch     string `header:"If-Match" doc:"the SHA-256 of the present content, in quotes: write only over that"`
	IfNoneMatch string `header:"If-None-Match" doc:"*: write only a new file"`
}

func (in *writeFileIn) header() (*wire.WriteRequest_Header, error) {
	h := &wire.WriteRequest_Header{Path: []byte(in.Path), User: in.User, Mode: in.Mode, MakeParents: in.MakeParents, Append: in.Append}
	if in.Offset >= 0 {
		h.Ranged, h.Offset = true, in.Offset
	}
	switch {
	case in.IfMatch != "" && in.IfNoneMatch != "":
		return nil, errs.New(errs.Invalid, "If-Match and If-None-Match exclude each other")
	case in.IfNoneMatch != "" && in.IfNoneMatch != "*":
		return nil, errs.New(errs.Invalid, "If-None-Match can only be *")
	case in.IfNoneMatch != "":
		h.ExpectSha256 = "absent"
	case in.IfMatch != "":
		hash := strings.TrimSuffix(strings.TrimPrefix(in.IfMatch, `"`), `"`)
		if len(hash)+2 != len(in.IfMatch) || !hashOK(hash) {
			return nil, errs.New(errs.Invalid, "If-Match is not a SHA-256 in quotes")
		}
		h.ExpectSha256 = hash
	}
	inPlace := h.Ranged || h.Append
	if h.Ranged && h.Append || inPlace && h.ExpectSha256 != "" {
		return nil, errs.New(errs.Invalid, "offset, append and a condition exclude each other")
	}
	return h, nil
}

func (s *Server) writeFile(w http.ResponseWriter, r *http.Request, in *writeFileIn) error {
	h, err := in.header()
	if err != nil {
		return err
	}
	if r.ContentLength > s.limits.UploadBytesMax {
		return bodyError(&http.MaxBytesError{Limit: s.limits.UploadBytesMax})
	}
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // a body that broke off must not look whole to the guest
	up := g.File.Write(ctx)
	send := func(data []byte) error {
		err := up.Send(&wire.WriteRequest{Header: h, Data: data})
		h = nil
		return err
	}
	if err := upload(http.MaxBytesReader(w, r.Body, s.limits.UploadBytesMax), send); err != nil {
		return err
	}
	res, err := up.CloseAndReceive()
	if err != nil {
		return preconditionFailed(wire.Err(err), in.IfMatch+in.IfNoneMatch != "")
	}
	f := view.File(res.Msg.GetEntry())
	if hashOK(res.Msg.GetSha256()) {
		f.SHA256 = res.Msg.GetSha256()
		w.Header().Set("ETag", strconv.Quote(f.SHA256))
	}
	return writeJSON(w, http.StatusOK, api.FileWritten{File: f})
}

// preconditionFailed gives a failed condition the status that HTTP has for it.
func preconditionFailed(err error, conditional bool) error {
	if conditional && (errs.Is(err, errs.Conflict) || errs.Is(err, errs.Exists)) {
		return problem.At(http.StatusPreconditionFailed, err)
	}
	return err
}

// upload moves a body to the guest in chunks, at least one. The guest's own
// error comes out when its answer is received, so the sender's is dropped.
func upload(body io.Reader, send func([]byte) error) error {
	buf := make([]byte, wire.ChunkBytes)
	for first := true; ; first = false {
		n, err := io.ReadFull(body, buf)
		if n > 0 || first {
			if send(buf[:n]) != nil {
				return nil
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), err == io.ErrUnexpectedEOF && n < len(buf):
			return endOfBody(body)
		default:
			return bodyError(err)
		}
	}
}

// watchedBody remembers why a body could not be read, for who reads it far away.
type watchedBody struct {
	r   io.Reader
	err error
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// endOfBody tells the end from a connection that broke, which net/http also
// reports as an unexpected end.
func endOfBody(body io.Reader) error {
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return bodyError(err)
	}
	return nil
}

type treeIn struct{ filePath }

func (s *Server) registerTrees() {
	const path = "/v1/sandboxes/{id}/tree"
	handleRaw(s, operation{method: http.MethodGet, path: path, scope: key.Read, id: "download-tree", tag: "files",
		summary: "Download a tree as tar", change: func(op *huma.Operation) {
			answers(op, "200", "The tree", "application/x-tar", &huma.Schema{Type: huma.TypeString, Format: "binary"})
		}}, s.downloadTree)
	handleRaw(s, operation{method: http.MethodPut, path: path, scope: key.Write, id: "upload-tree", tag: "files",
		summary: "Unpack a tar beneath a directory", change: func(op *huma.Operation) {
			takes(op, "application/x-tar")
			answers(op, "200", "What was unpacked", "application/json", schemaOf[api.TreeWritten](s))
		}}, s.uploadTree)
}

func (s *Server) downloadTree(w http.ResponseWriter, r *http.Request, in *treeIn) error {
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	down, err := g.File.Download(ctx, connect.NewRequest(&wire.DownloadRequest{Path: []byte(in.Path), User: in.User}))
	if err != nil {
		return wire.Err(err)
	}
	defer down.Close()
	more := down.Receive()
	if err := down.Err(); err != nil {
		return wire.Err(err)
	}
	download(w, "application/x-tar")
	for ; more; more = down.Receive() {
		if _, err := w.Write(down.Msg().GetData()); err != nil {
			return nil // the client is gone
		}
	}
	if err := down.Err(); err != nil {
		note(r).err = wire.Err(err)
		panic(http.ErrAbortHandler) // half a tree must not look whole
	}
	return nil
}

// download sets the headers of content that a sandbox wrote: a browser must
// not show it as a page of this server.
func download(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "no-store")
}

func (s *Server) uploadTree(w http.ResponseWriter, r *http.Request, in *treeIn) error {
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	up := g.File.Upload(ctx)
	h := &wire.UploadRequest_Header{Path: []byte(in.Path), User: in.User}
	send := func(data []byte) error {
		err := up.Send(&wire.UploadRequest{Header: h, Data: data})
		h = nil
		return err
	}
	if err := upload(http.MaxBytesReader(w, r.Body, s.limits.UploadBytesMax), send); err != nil {
		return err
	}
	res, err := up.CloseAndReceive()
	if err != nil {
		return wire.Err(err)
	}
	return writeJSON(w, http.StatusOK, api.TreeWritten{Entries: res.Msg.GetEntries(), Bytes: res.Msg.GetBytes()})
}
