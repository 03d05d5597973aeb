package inside

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

type readFileIn struct {
	FilePath
	Hash        bool   `query:"hash" doc:"read the content twice: once for the ETag, its SHA-256"`
	Range       string `header:"Range" doc:"one range of bytes"`
	IfMatch     string `header:"If-Match" doc:"the SHA-256 of the content, in quotes"`
	IfNoneMatch string `header:"If-None-Match" doc:"the SHA-256 of the content, in quotes: 304 if it is that"`
}

// readFile answers GET and HEAD. The content is hashed only on demand: it
// would be read twice.
func (s *service) readFile(w http.ResponseWriter, r *http.Request, g guest, in *readFileIn) error {
	ctx, release, err := s.hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	rng, ranged, err := parseRange(in.Range)
	if err != nil {
		return err
	}
	hashed := in.Hash || in.IfMatch != "" || in.IfNoneMatch != ""
	var known api.File
	if hashed || rng.suffix > 0 || r.Method == http.MethodHead {
		known, err = stat(ctx, g, &wire.StatRequest{Path: []byte(in.Path), User: in.User, Follow: true, Hash: hashed})
		if err != nil {
			return err
		}
		if known.Type == "directory" {
			return errs.New(errs.Invalid, "%.200q is a directory", in.Path).WithCode(errs.IsDirectory).WithHint("list it, or download it as a tree")
		}
		done, err := conditions(w, in, known.SHA256)
		if done || err != nil {
			return err
		}
	}
	if r.Method == http.MethodHead {
		download(w, "application/octet-stream")
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("Content-Length", strconv.FormatInt(known.Size, 10))
		w.Header().Set("Last-Modified", known.ModifiedAt.Format(http.TimeFormat))
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if rng.suffix > 0 {
		rng.from = max(0, known.Size-rng.suffix)
	}
	return sendFile(ctx, w, r, g.Client, in.Path, in.User, rng, ranged)
}

// SendFile answers with a file of a guest, or with the one range of it that the
// request asks for. Nothing was written when it returns an error.
func SendFile(ctx context.Context, w http.ResponseWriter, r *http.Request, guest *wire.Client, path, user string) error {
	rng, ranged, err := parseRange(r.Header.Get("Range"))
	if err != nil {
		return err
	}
	if rng.suffix > 0 {
		res, err := guest.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(path), User: user, Follow: true}))
		if err != nil {
			return wire.Err(err)
		}
		rng.from = max(0, res.Msg.GetEntry().GetSize()-rng.suffix)
	}
	return sendFile(ctx, w, r, guest, path, user, rng, ranged)
}

// conditions answers If-Match and If-None-Match. done: nothing more is to be sent.
func conditions(w http.ResponseWriter, in *readFileIn, hash string) (done bool, err error) {
	if hash == "" {
		return false, nil
	}
	etag := strconv.Quote(hash)
	w.Header().Set("ETag", etag)
	if in.IfMatch != "" && in.IfMatch != "*" && in.IfMatch != etag {
		return true, problem.At(http.StatusPreconditionFailed, errs.New(errs.Conflict, "the content is not what If-Match says").WithCode(errs.FileChanged))
	}
	if in.IfNoneMatch == "*" || in.IfNoneMatch == etag {
		w.WriteHeader(http.StatusNotModified)
		return true, nil
	}
	return false, nil
}

// byteRange is one range of a file.
type byteRange struct {
	from   int64
	length int64 // 0 = to the end
	suffix int64 // > 0: the last bytes; from is known later
}

const rangeOffsetMax = 1 << 60

// parseRange reads a Range header. Other units than bytes are ignored, as HTTP
// wants it; several ranges are refused.
func parseRange(header string) (r byteRange, ranged bool, err error) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return r, false, nil
	}
	bad := func() error {
		return problem.At(http.StatusRequestedRangeNotSatisfiable, errs.New(errs.Invalid, "range %.60q is not one range of bytes", spec))
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return r, false, bad()
	}
	if first == "" {
		n, err := parseOffset(last)
		if err != nil || n == 0 {
			return r, false, bad()
		}
		return byteRange{suffix: n}, true, nil
	}
	if r.from, err = parseOffset(first); err != nil {
		return r, false, bad()
	}
	if last == "" {
		return r, true, nil
	}
	end, err := parseOffset(last)
	if err != nil || end < r.from {
		return r, false, bad()
	}
	r.length = end - r.from + 1
	return r, true, nil
}

// parseOffset takes digits only: ParseInt would take signs.
func parseOffset(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n > rangeOffsetMax {
		err = strconv.ErrRange
	}
	return n, err
}

// sendFile streams content from the guest. Its first message has the size,
// which decides the headers.
func sendFile(ctx context.Context, w http.ResponseWriter, r *http.Request, guest *wire.Client, path, user string, rng byteRange, ranged bool) error {
	ctx, cancel := context.WithCancel(ctx)
	st, err := guest.File.Read(ctx, connect.NewRequest(&wire.ReadRequest{Path: []byte(path), User: user, Offset: rng.from, Length: rng.length}))
	if err != nil {
		cancel()
		return wire.Err(err)
	}
	defer hangUp(cancel, st.Close)
	if !st.Receive() {
		if err := st.Err(); err != nil {
			return wire.Err(err)
		}
		return errs.New(errs.Unavailable, "the guest sent nothing")
	}
	size := st.Msg().GetEntry().GetSize()
	want, err := headers(w, st.Msg().GetEntry(), rng, ranged)
	if err != nil {
		w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		return err
	}
	sent, gone := sendChunks(w, st, want)
	if gone {
		return nil
	}
	if err := st.Err(); err != nil || want >= 0 && sent < want {
		route.Note(r, wire.Err(err))
		panic(http.ErrAbortHandler) // half a file must not look whole
	}
	// The end of the stream is on its way: then the next call finds a warm connection.
	stop := time.AfterFunc(time.Second, cancel)
	defer stop.Stop()
	st.Receive()
	return nil
}

// headers writes the head of the answer and returns how many bytes follow, -1
// = unknown: files of /proc have content and no size.
func headers(w http.ResponseWriter, e *wire.Entry, rng byteRange, ranged bool) (want int64, err error) {
	size := e.GetSize()
	if ranged && (rng.from >= size) {
		return 0, problem.At(http.StatusRequestedRangeNotSatisfiable, errs.New(errs.Invalid, "the file has %d bytes", size))
	}
	h := w.Header()
	download(w, "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", time.Unix(0, e.GetModifiedUnixNs()).UTC().Format(http.TimeFormat))
	if !ranged {
		if size <= 0 {
			w.WriteHeader(http.StatusOK)
			return -1, nil
		}
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		w.WriteHeader(http.StatusOK)
		return size, nil
	}
	want = size - rng.from
	if rng.length > 0 {
		want = min(want, rng.length)
	}
	h.Set("Content-Length", strconv.FormatInt(want, 10))
	h.Set("Content-Range", "bytes "+strconv.FormatInt(rng.from, 10)+"-"+strconv.FormatInt(rng.from+want-1, 10)+"/"+strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusPartialContent)
	return want, nil
}

// sendChunks sends what the guest sends, at most want bytes of it: a file may
// grow while it is read.
func sendChunks(w http.ResponseWriter, st *connect.ServerStreamForClient[wire.ReadResponse], want int64) (sent int64, gone bool) {
	for {
		data := st.Msg().GetData()
		if want >= 0 && int64(len(data)) > want-sent {
			data = data[:want-sent]
		}
		if len(data) > 0 {
			n, err := w.Write(data)
			sent += int64(n)
			if err != nil {
				return sent, true
			}
		}
		if sent == want || !st.Receive() {
			return sent, false
		}
	}
}
