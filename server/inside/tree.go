package inside

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

type treeIn struct{ FilePath }

func (s *service) registerTrees(t *route.Table) {
	const path = "/v1/sandboxes/{id}/tree"
	guestRaw(s, t, route.Operation{
		Method: http.MethodGet, Path: path, Scope: key.Read, ID: "download-tree", Tag: "files",
		Summary: "Download a tree as tar", Sends: route.Bytes("application/x-tar", "The tree"),
	}, s.downloadTree)
	route.Raw(t, route.Operation{
		Method: http.MethodPut, Path: path, Scope: key.Write, ID: "upload-tree", Tag: "files",
		Summary: "Unpack a tar beneath a directory", Takes: "application/x-tar", Step: uploadStep,
		Sends: route.Object[api.TreeWritten]("What was unpacked"),
	}, s.uploadTree)
}

func (s *service) downloadTree(w http.ResponseWriter, r *http.Request, g guest, in *treeIn) error {
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	down, err := g.File.Download(ctx, connect.NewRequest(&wire.DownloadRequest{Path: []byte(in.Path), User: in.User}))
	if err != nil {
		cancel()
		return wire.Err(err)
	}
	defer hangUp(cancel, down.Close)
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
		route.Note(r, wire.Err(err))
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

func (s *service) uploadTree(w http.ResponseWriter, r *http.Request, in *treeIn) error {
	body, err := route.Body(w, r, s.uploadBytesMax)
	if err != nil {
		return err
	}
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	h := &wire.UploadRequest_Header{Path: []byte(in.Path), User: in.User}
	res, err := Pour(r.Context(), body, g.File.Upload, func(first bool, data []byte) *wire.UploadRequest {
		if !first {
			return &wire.UploadRequest{Data: data}
		}
		return &wire.UploadRequest{Header: h, Data: data}
	})
	if err != nil {
		return err
	}
	return route.WriteJSON(w, http.StatusOK, api.TreeWritten{Entries: res.GetEntries(), Bytes: res.GetBytes()})
}
