package vercel

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/inside"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// Working directories: ours, and what clients know as theirs.
const (
	workspace = "/workspace"
	theirs    = "/vercel/sandbox"
)

// Bounds of an upload.
const (
	entriesMax  = 10000
	cwdHeader   = "X-Cwd"
	tarMIMEType = "application/gzip"
)

// place reads a path as clients write it: what is relative begins in dir, and dir in the
// working directory of the sandbox, which clients know as theirs too. What is beneath
// that is named from there, as the guest does.
func place(work, dir, name string) string {
	if !path.IsAbs(dir) {
		dir = path.Join(work, dir)
	}
	full := name
	if !path.IsAbs(name) {
		full = path.Join(dir, name)
	}
	clean := path.Clean(full)
	for _, top := range []string{theirs, work} {
		if clean == top {
			return "."
		}
		if rest, ok := strings.CutPrefix(clean, strings.TrimSuffix(top, "/")+"/"); ok {
			return rest
		}
	}
	return full
}

// filePath names a file in a request.
type filePath struct {
	Path string `json:"path"`
	Cwd  string `json:"cwd"`
}

// in is where the file is in a sandbox with that working directory.
func (f filePath) in(work string) (string, error) {
	if f.Path == "" {
		return "", errs.New(errs.Invalid, "path is missing")
	}
	return place(work, f.Cwd, f.Path), nil
}

// makeDir makes one directory.
func (b *Bridge) makeDir(w http.ResponseWriter, r *http.Request) error {
	var in filePath
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx := r.Context()
	c, err := b.inside(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	name, err := in.in(cwdOf(c.info))
	if err != nil {
		return err
	}
	step := route.Begin(ctx, fmt.Sprintf("mkdir %q", name))
	res, err := c.guest.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: []byte(name)}))
	step.End()
	if err != nil {
		return parentError(wire.Err(err))
	}
	if !res.Msg.GetCreated() {
		return errs.New(errs.Exists, "the directory %.200q is there already", name)
	}
	return writeJSON(w, http.StatusOK, struct{}{})
}

// parentError is of a directory above that is not there: a 404 would be of the sandbox.
func parentError(err error) error {
	if errs.Is(err, errs.NotFound) {
		return errs.Wrap(errs.Invalid, err, "%s", errs.Public(err))
	}
	return err
}

func (b *Bridge) readFile(w http.ResponseWriter, r *http.Request) error {
	var in filePath
	if err := decode(w, r, &in); err != nil {
		return err
	}
	c, err := b.inside(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	name, err := in.in(cwdOf(c.info))
	if err != nil {
		return err
	}
	ctx, release, err := b.Hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	return inside.SendFile(ctx, w, r, c.guest, name, "")
}

// writeFiles unpacks an upload. Each file is replaced whole: readers see the old content
// or the new.
func (b *Bridge) writeFiles(w http.ResponseWriter, r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); kind != tarMIMEType {
		return errs.New(errs.Invalid, "an upload is %s, not %.60q", tarMIMEType, kind)
	}
	body, err := route.Body(w, r, b.UploadBytesMax)
	if err != nil {
		return err
	}
	ctx := r.Context()
	c, err := b.inside(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	defer c.release()
	z, err := gzip.NewReader(body)
	if err != nil {
		return route.BodyError(err)
	}
	end := func() {}
	defer func() { end() }()
	err = unpack(http.MaxBytesReader(w, io.NopCloser(z), b.UploadBytesMax), cwdOf(c.info), r.Header.Get(cwdHeader), func(n int, e entry) error {
		if n == 0 { // what else comes is not known yet
			end = route.Begin(ctx, fmt.Sprintf("write files, first %q", e.name)).End
		}
		return c.write(ctx, e)
	})
	if errs.Is(err, errs.Limit) { // of the disk: another try does not help
		err = problem.At(http.StatusRequestEntityTooLarge, err)
	}
	if err != nil {
		return err
	}
	end() // who has the answer may count on the revision
	return writeJSON(w, http.StatusOK, struct{}{})
}

// write makes what an entry says.
func (c call) write(ctx context.Context, e entry) error {
	if e.dir {
		_, err := c.guest.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: []byte(e.name), Parents: true}))
		return wire.Err(err)
	}
	h := &wire.WriteRequest_Header{Path: []byte(e.name), Mode: e.mode, MakeParents: true}
	_, err := inside.Pour(ctx, e.content, c.guest.File.Write, func(first bool, data []byte) *wire.WriteRequest {
		if !first {
			return &wire.WriteRequest{Data: data}
		}
		return &wire.WriteRequest{Header: h, Data: data}
	})
	return err
}

// entry of an upload.
type entry struct {
	name    string // for the guest
	dir     bool
	mode    uint32 // of a file
	content io.Reader
}

// unpack visits the entries of a tar, the first as number 0, beneath a
// directory of a sandbox with that working directory. Nothing but files and
// directories is taken, and nothing that is named to be elsewhere.
func unpack(from io.Reader, work, dir string, visit func(n int, e entry) error) error {
	t := tar.NewReader(from)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tarError(err)
		}
		if n == entriesMax {
			return errs.New(errs.Invalid, "an upload has at most %d entries", entriesMax)
		}
		e, err := entryOf(h, work, dir)
		if err != nil {
			return err
		}
		e.content = tarContent{t}
		if err := visit(n, e); err != nil {
			return err
		}
	}
}

// entryOf reads the head of an entry.
func entryOf(h *tar.Header, work, dir string) (entry, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	default:
		return entry{}, errs.New(errs.Invalid, "%.200q is neither a file nor a directory: links and devices are not uploaded", h.Name).
			WithHint("a command makes links")
	}
	if h.Name == "" || path.IsAbs(h.Name) || strings.IndexByte(h.Name, 0) >= 0 {
		return entry{}, errs.New(errs.Invalid, "%.200q is not a name beneath a directory", h.Name)
	}
	for part := range strings.SplitSeq(h.Name, "/") {
		if part == ".." {
			return entry{}, errs.New(errs.Invalid, "%.200q has .. in it", h.Name)
		}
	}
	return entry{name: place(work, dir, h.Name), dir: h.Typeflag == tar.TypeDir, mode: uint32(h.Mode & 0o777)}, nil
}

// tarContent is the content of an entry, whose errors say what is wrong with the upload.
type tarContent struct{ *tar.Reader }

// Read implements io.Reader.
func (t tarContent) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = tarError(err)
	}
	return n, err
}

// tarError says why an upload could not be read.
func tarError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return route.BodyError(err)
	}
	return errs.Wrap(errs.Invalid, err, "the upload is no whole tar in gzip")
}
