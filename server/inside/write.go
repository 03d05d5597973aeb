package inside

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
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
	res, err := Pour(r.Context(), body, g.File.Write, func(first bool, data []byte) *wire.WriteRequest {
		if !first {
			return &wire.WriteRequest{Data: data}
		}
		return &wire.WriteRequest{Header: h, Data: data}
	})
	if err != nil {
		return preconditionFailed(err, in.IfMatch+in.IfNoneMatch != "")
	}
	f := stream.FileView(res.GetEntry())
	if hashOK(res.GetSha256()) {
		f.SHA256 = res.GetSha256()
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

// Times of an upload.
const (
	stallMax  = 60 * time.Second // that the guest may take nothing
	finishMax = 10 * time.Minute // from the last byte to the answer
)

// Pour moves a body into a call of the guest. A body that breaks off must not
// look whole to the guest, and neither the end of the context nor that of the
// stream say so reliably: the connection may carry the clean end before it
// breaks. A second header does, which the guest refuses.
func Pour[Req, Res any](ctx context.Context, body io.Reader, open func(context.Context) *connect.ClientStreamForClient[Req, Res], message func(first bool, data []byte) *Req) (*Res, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	watchdog := time.AfterFunc(stallMax, cancel)
	defer watchdog.Stop()
	up := open(ctx)
	send := func(first bool, data []byte) error {
		watchdog.Reset(stallMax)
		defer watchdog.Stop()
		return up.Send(message(first, data))
	}
	broken := chunks(body, send)
	if broken != nil {
		_ = send(true, nil)
	}
	watchdog.Reset(finishMax)
	res, err := up.CloseAndReceive()
	if broken != nil {
		return nil, broken
	}
	if err != nil {
		return nil, wire.Err(err)
	}
	return res.Msg, nil
}

// chunks sends a body in chunks, at least one. When the receiver has refused,
// its answer says why, so that is no error here.
func chunks(body io.Reader, send func(first bool, data []byte) error) error {
	buf := make([]byte, wire.ChunkBytes)
	for first := true; ; first = false {
		n, err := fill(body, buf)
		if (n > 0 || first) && send(first, buf[:n]) != nil {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return route.BodyError(err)
		}
	}
}

// fill is io.ReadFull that tells the end (io.EOF) from a body that broke off
// (io.ErrUnexpectedEOF, as net/http says it).
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}
