package inside

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/view"
)

type writeFileIn struct {
	FilePath
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

func (s *service) writeFile(w http.ResponseWriter, r *http.Request, in *writeFileIn) error {
	h, err := in.header()
	if err != nil {
		return err
	}
	body, err := route.Body(w, r, s.uploadBytesMax)
	if err != nil {
		return err
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
	if err := upload(body, send); err != nil {
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
	return route.WriteJSON(w, http.StatusOK, api.FileWritten{File: f})
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
			return route.BodyError(err)
		}
	}
}

// endOfBody tells the end from a connection that broke, which net/http also
// reports as an unexpected end.
func endOfBody(body io.Reader) error {
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return route.BodyError(err)
	}
	return nil
}
