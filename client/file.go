package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
)

// Files reaches the files of a sandbox with the rights of one user.
//
// Paths are absolute or relative to the sandbox's working directory, and may
// hold any bytes but NUL.
type Files struct {
	sb   *Sandbox
	user string
}

// Files acts as the sandbox's user.
func (s *Sandbox) Files() *Files { return &Files{sb: s} }

// As acts as another user; "root" needs a sandbox that grants it.
func (f *Files) As(user string) *Files { return &Files{sb: f.sb, user: user} }

func (f *Files) query(kv ...string) url.Values {
	q := url.Values{}
	if f.user != "" {
		q.Set("user", f.user)
	}
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			q.Set(kv[i], kv[i+1])
		}
	}
	return q
}

func yes(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// PathOf returns the exact path of f, also when it is not UTF-8.
func PathOf(f api.File) string {
	if f.PathBytes != nil {
		return string(f.PathBytes)
	}
	return f.Path
}

// Stat returns what is known of a path. A symlink itself is described unless follow.
func (f *Files) Stat(ctx context.Context, path string, follow bool) (api.File, error) {
	return transport.Fetch[api.File](ctx, f.sb.c.t, transport.Get(f.sb.path("/files/stat"), f.query("path", path, "follow", yes(follow))))
}

// Hash is Stat of a regular file with the SHA-256 of its content.
func (f *Files) Hash(ctx context.Context, path string) (api.File, error) {
	return transport.Fetch[api.File](ctx, f.sb.c.t, transport.Get(f.sb.path("/files/stat"),
		f.query("path", path, "follow", "true", "hash", "true")))
}

// List goes through a directory, and its subdirectories down to depth.
func (f *Files) List(ctx context.Context, path string, depth int) iter.Seq2[api.File, error] {
	d := ""
	if depth > 1 {
		d = strconv.Itoa(depth)
	}
	return pages(ctx, f.query("path", path, "depth", d), func(q url.Values) ([]api.File, string, error) {
		p, err := transport.Fetch[api.FilePage](ctx, f.sb.c.t, transport.Get(f.sb.path("/files/list"), q))
		return p.Items, p.NextPageToken, err
	})
}

// Read returns the whole content of a file, at most bytesMax of it; more is an
// error. Open is the one for large files.
func (f *Files) Read(ctx context.Context, path string, bytesMax int64) ([]byte, error) {
	r, err := f.Open(ctx, path, 0, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, bytesMax+1))
	if err != nil {
		return nil, transport.Broken(ctx, err)
	}
	if int64(len(data)) > bytesMax {
		return nil, errs.New(errs.Limit, "%q is larger than %d bytes", path, bytesMax)
	}
	return data, nil
}

// Open streams length bytes of a file from an offset; length 0 = to the end.
func (f *Files) Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	k := transport.Get(f.sb.path("/files"), f.query("path", path))
	switch {
	case length > 0:
		k.Header = http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)}}
	case offset > 0:
		k.Header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	res, err := f.sb.c.t.Do(ctx, k)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// WriteOptions say how a file is written; the zero value replaces the whole
// file: its readers see the old content or the new one, never a mix.
type WriteOptions struct {
	Mode        uint32 // 0 = 0644, or what the file has
	MakeParents bool
	// IfSHA256 writes only over exactly this content; errs.Conflict otherwise.
	IfSHA256 string
	// IfAbsent writes only where nothing is.
	IfAbsent bool
	// Ranged writes in place at Offset; Append at the end. Neither is atomic.
	Ranged bool
	Offset int64
	Append bool
}

// Write writes content to a file.
func (f *Files) Write(ctx context.Context, path string, content []byte, o WriteOptions) (api.File, error) {
	k := f.write(path, o)
	k.Body = content
	if content == nil {
		k.Body = []byte{}
	}
	// A repeated whole or ranged write has the effect of one; the others do not.
	k.Repeatable = !o.Append && !o.IfAbsent && o.IfSHA256 == ""
	return f.written(ctx, k)
}

// WriteFrom is Write of a stream; it is not repeated after an error.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, o WriteOptions) (api.File, error) {
	k := f.write(path, o)
	k.Stream = r
	return f.written(ctx, k)
}

func (f *Files) written(ctx context.Context, k transport.Call) (api.File, error) {
	w, err := transport.Fetch[api.FileWritten](ctx, f.sb.c.t, k)
	return w.File, err
}

func (f *Files) write(path string, o WriteOptions) transport.Call {
	q := f.query("path", path, "make_parents", yes(o.MakeParents), "append", yes(o.Append))
	if o.Mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(o.Mode), 10))
	}
	if o.Ranged {
		q.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	if o.IfAbsent {
		h.Set("If-None-Match", "*")
	}
	if o.IfSHA256 != "" {
		h.Set("If-Match", strconv.Quote(o.IfSHA256))
	}
	return transport.Call{Method: http.MethodPut, Path: f.sb.path("/files"), Query: f.sb.changing(q), Header: h}
}

// Remove removes a file or an empty directory; recursive: whatever it is.
// missingOK makes a path that is not there no error.
func (f *Files) Remove(ctx context.Context, path string, recursive, missingOK bool) (int64, error) {
	r, err := transport.Fetch[api.Removed](ctx, f.sb.c.t, transport.Call{
		Method: http.MethodDelete, Path: f.sb.path("/files"), Repeatable: missingOK,
		Query: f.sb.changing(f.query("path", path, "recursive", yes(recursive), "missing_ok", yes(missingOK))),
	})
	return r.Removed, err
}

func (f *Files) post(ctx context.Context, verb string, body any) (api.File, error) {
	return transport.Fetch[api.File](ctx, f.sb.c.t, transport.Call{Method: http.MethodPost, Path: f.sb.path("/files/" + verb), Query: f.sb.changing(nil)}.WithJSON(body))
}

// MakeDir makes a directory; parents makes those above too, and accepts one
// that is there.
func (f *Files) MakeDir(ctx context.Context, path string, parents bool) (api.File, error) {
	text, exact := named(path)
	return f.post(ctx, "mkdir", api.MakeDir{Path: text, PathBytes: exact, User: f.user, Parents: parents})
}

// Move renames.
func (f *Files) Move(ctx context.Context, from, to string, overwrite bool) (api.File, error) {
	b := api.MoveFile{User: f.user, Overwrite: overwrite}
	b.Source, b.SourceBytes = named(from)
	b.Destination, b.DestinationBytes = named(to)
	return f.post(ctx, "move", b)
}

// Copy copies inside the sandbox.
func (f *Files) Copy(ctx context.Context, from, to string, overwrite bool) (api.File, error) {
	b := api.CopyFile{User: f.user, Overwrite: overwrite}
	b.Source, b.SourceBytes = named(from)
	b.Destination, b.DestinationBytes = named(to)
	return f.post(ctx, "copy", b)
}

// Chmod sets permission bits.
func (f *Files) Chmod(ctx context.Context, path string, mode uint32, recursive bool) (api.File, error) {
	text, exact := named(path)
	return f.post(ctx, "chmod", api.ChmodFile{Path: text, PathBytes: exact, User: f.user, Mode: mode, Recursive: recursive})
}

// Symlink makes a symbolic link at path.
func (f *Files) Symlink(ctx context.Context, target, path string) (api.File, error) {
	b := api.SymlinkFile{User: f.user}
	b.Target, b.TargetBytes = named(target)
	b.Path, b.PathBytes = named(path)
	return f.post(ctx, "symlink", b)
}

// named is a path as requests carry it: what is not UTF-8 goes as bytes too,
// and those count.
func named(path string) (text string, exact []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return strings.ToValidUTF8(path, "\uFFFD"), []byte(path)
}

// Glob lists the paths beneath base that match a pattern of **, *, ?, [..], {a,b}.
func (f *Files) Glob(ctx context.Context, base, pattern string, limit int) (api.GlobResult, error) {
	return transport.Fetch[api.GlobResult](ctx, f.sb.c.t, transport.Get(f.sb.path("/files/glob"),
		f.query("base", base, "pattern", pattern, "limit", number(limit))))
}

// GrepQuery asks for lines; see api for its limits.
type GrepQuery struct {
	Base       string
	Pattern    string // RE2 unless Literal
	Literal    bool
	IgnoreCase bool
	Include    string // a glob on the path beneath Base
	Limit      int
	Context    int // lines before and after
}

// Grep lists the lines that match.
func (f *Files) Grep(ctx context.Context, g GrepQuery) (api.GrepResult, error) {
	return transport.Fetch[api.GrepResult](ctx, f.sb.c.t, transport.Get(f.sb.path("/files/grep"), f.query(
		"base", g.Base, "pattern", g.Pattern, "literal", yes(g.Literal), "ignore_case", yes(g.IgnoreCase),
		"include", g.Include, "limit", number(g.Limit), "context", number(g.Context))))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Watch reports changes at a path. After a disconnect it goes on behind the
// last event seen; an event of type overflow says which ones are lost.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[api.FileEvent, error] {
	return transport.Events[api.FileEvent](ctx, f.sb.c.t, f.sb.path("/files/watch"),
		f.query("path", path, "recursive", yes(recursive)), "")
}

// Upload unpacks a tar stream beneath a directory of the sandbox.
func (f *Files) Upload(ctx context.Context, path string, tar io.Reader) (api.TreeWritten, error) {
	return transport.Fetch[api.TreeWritten](ctx, f.sb.c.t, transport.Call{
		Method: http.MethodPut, Path: f.sb.path("/tree"), Query: f.sb.changing(f.query("path", path)), Stream: tar,
		Header: http.Header{"Content-Type": {"application/x-tar"}},
	})
}

// Download streams a tree of the sandbox as tar. Its content is the guest's:
// unpack it with tree.Unpack, which trusts nothing of it.
func (f *Files) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	res, err := f.sb.c.t.Do(ctx, transport.Get(f.sb.path("/tree"), f.query("path", path)))
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// UploadDir copies a directory of this machine to a directory of the sandbox.
func (f *Files) UploadDir(ctx context.Context, local, remote string) (api.TreeWritten, error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packTree(w, local)
		w.CloseWithError(err)
		packed <- err
	}()
	written, err := f.Upload(ctx, remote, r)
	r.CloseWithError(io.ErrClosedPipe) // lets tree.Pack end when the server did not read to the end
	if perr := <-packed; perr != nil && err == nil {
		err = perr
	}
	return written, err
}

// DownloadDir copies a directory of the sandbox to one of this machine.
func (f *Files) DownloadDir(ctx context.Context, remote, local string) (TreeStat, error) {
	r, err := f.Download(ctx, remote)
	if err != nil {
		return TreeStat{}, err
	}
	defer r.Close()
	return unpackTree(r, local)
}
