package envd

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/inside"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// Operations that an address can be signed for.
const (
	readOperation  = "read"
	writeOperation = "write"
)

// partsMax bounds the parts of one upload, also those that are no files.
const partsMax = 10000

// signed lets in who has the token, or a signature made with it.
func (b *Bridge) signed(operation string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := recordOf(r.Context())
		var err error
		if r.Header.Get(tokenHeader) != "" {
			err = b.withToken(r, rec)
		} else {
			err = b.withSignature(r, rec, operation)
		}
		if err != nil {
			route.Refused(r)
			refuse(w, r, err)
			return
		}
		b.withGuest(w, r, rec, "envd-"+operation+"-file", operation == writeOperation, h)
	}
}

// withSignature checks the signature of a request. It is over the path as the
// request has it.
func (b *Bridge) withSignature(r *http.Request, rec record, operation string) error {
	token, err := b.records.token(r.Context(), rec)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	expires := q.Get("signature_expiration")
	if q.Get("signature") == "" || signature(q.Get("path"), operation, q.Get("username"), token, expires) != q.Get("signature") {
		return unsigned(errUnsigned)
	}
	if expires == "" {
		return nil
	}
	at, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || at < now().Unix() {
		return unsigned(errExpired)
	}
	return nil
}

func unsigned(why error) error { return problem.At(http.StatusUnauthorized, why) }

// What may be wrong with a signature, in the words that clients know.
var (
	errUnsigned = errs.New(errs.Denied, "the signature is not one for this")
	errExpired  = errs.New(errs.Denied, "signature is already expired")
)

// serveSigned serves a signed address, which does not say for which sandbox it is:
// that is the one whose token has made the signature.
func (b *Bridge) serveSigned(w http.ResponseWriter, r *http.Request) {
	operation := writeOperation
	if r.Method == http.MethodGet {
		operation = readOperation
	}
	all, err := b.records.known(r.Context())
	if err != nil {
		refuse(w, r, err)
		return
	}
	for _, rec := range all {
		if err := b.withSignature(r, rec, operation); err == nil || errors.Is(err, errExpired) {
			b.serveEnvd(w, r, rec)
			return
		}
	}
	route.Refused(r)
	refuse(w, r, unsigned(errUnsigned))
}

// as is the call with the user whom the query names, if it does.
func (c call) as(r *http.Request) call {
	if name := r.URL.Query().Get("username"); name != "" {
		c.user = userName(name)
	}
	return c
}

func (b *Bridge) readFile(w http.ResponseWriter, r *http.Request) error {
	c := callOf(r.Context()).as(r)
	name, err := c.path(r.Context(), r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	ctx, release, err := b.Hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	return inside.SendFile(ctx, w, r, c.guest, name, c.user)
}

// written is a file that was uploaded.
type written struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
}

func (b *Bridge) writeFiles(w http.ResponseWriter, r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Metadata-") {
			return errs.New(errs.Invalid, "metadata of files is not supported here").WithHint("keep it in a file beside")
		}
	}
	c := callOf(r.Context()).as(r)
	body, err := b.body(w, r)
	if err != nil {
		return err
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	named := r.URL.Query().Get("path")
	step := c.step(r.Context(), "write", cmp.Or(named, "several files"))
	defer step.End()
	var all []written
	switch {
	case kind == "application/octet-stream" && named == "":
		return errs.New(errs.Invalid, "path is missing")
	case kind == "application/octet-stream":
		var one written
		one, err = c.write(r.Context(), named, body)
		all = []written{one}
	case strings.HasPrefix(kind, "multipart/") && params["boundary"] != "":
		all, err = c.writeParts(r.Context(), named, multipart.NewReader(body, params["boundary"]))
	default:
		return errs.New(errs.Invalid, "an upload is multipart/form-data or application/octet-stream, not %.60q", kind)
	}
	if err != nil {
		return uploadError(err)
	}
	step.End() // who has the answer may count on the revision
	writeJSON(w, http.StatusOK, all)
	return nil
}

// uploadError gives a full disk the status that clients know it by.
func uploadError(err error) error {
	if errs.Is(err, errs.Limit) {
		return problem.At(http.StatusInsufficientStorage, err)
	}
	return err
}

// body is what a client sends, unpacked. The bound holds for what was packed and
// for what comes out.
func (b *Bridge) body(w http.ResponseWriter, r *http.Request) (io.Reader, error) {
	body, err := route.Body(w, r, b.UploadBytesMax)
	if err != nil {
		return nil, err
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "the body is not gzip")
		}
		return http.MaxBytesReader(w, z, b.UploadBytesMax), nil
	default:
		return nil, errs.New(errs.Invalid, "the encoding %.40q is not known; gzip is", encoding)
	}
}

// writeParts writes one file for each part.
func (c call) writeParts(ctx context.Context, named string, parts *multipart.Reader) ([]written, error) {
	all := []written{}
	seen := map[string]bool{}
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, route.BodyError(err)
		}
		if n == partsMax {
			return nil, errs.New(errs.Invalid, "an upload has at most %d parts", partsMax)
		}
		if part.FormName() != "file" {
			continue
		}
		name := named
		if name == "" {
			if name, err = partName(part); err != nil {
				return nil, err
			}
		}
		if seen[name] {
			return nil, errs.New(errs.Invalid, "two parts are for %.200q; the first was written", name)
		}
		seen[name] = true
		one, err := c.write(ctx, name, part)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// partName is a part's file name with its directories, which package multipart
// leaves out.
func partName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return "", errs.New(errs.Invalid, "a part has no file name, and no path was given")
	}
	return params["filename"], nil
}

// write replaces a file whole: readers see the old content or the new.
func (c call) write(ctx context.Context, named string, body io.Reader) (written, error) {
	name, err := c.path(ctx, named)
	if err != nil {
		return written{}, err
	}
	h := &wire.WriteRequest_Header{Path: []byte(name), User: c.user, MakeParents: true}
	res, err := inside.Pour(ctx, body, c.guest.File.Write, func(first bool, data []byte) *wire.WriteRequest {
		if !first {
			return &wire.WriteRequest{Data: data}
		}
		return &wire.WriteRequest{Header: h, Data: data}
	})
	if err != nil {
		return written{}, err
	}
	at := text(res.GetEntry().GetPath())
	return written{Path: at, Name: path.Base(at), Type: "file"}, nil
}
