// Package guest is the sandbox as a backend: its files and its commands,
// through guest.v1.
//
//	env := tool.Env{Files: guest.NewFiles(client), Commands: guest.NewCommands(client)}
//
// The client is a *wire.Client, as sandbox/manager's Guest gives it.
//
// Every method of tool.Files is a call of the guest's own file service; no
// shell is asked. What comes from the guest is trusted no more than the programs
// that run in it: names that are no names are dropped, sizes are bounded here
// too, and a stream whose offsets make no sense ends the call.
//
// Commands outlive their callers, this process included: the guest knows them
// by their keys.
package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
)

// Bounds.
const (
	hashBytesMax   = 64 << 20 // Stat does not ask for the hash of larger files
	listPage       = 2000
	linksMax       = 100 // that List follows to see whether they are directories
	searchMax      = 100_000
	nameBytesMax   = 255
	globPatternMax = 1024
)

// Files are the files of one machine. Safe for concurrent use.
type Files struct {
	c *wire.Client
}

// NewFiles returns the files of the machine that the client speaks to.
func NewFiles(c *wire.Client) *Files { return &Files{c: c} }

func fail(code, p, hint string) error { return &tool.FileError{Code: code, Path: p, Hint: hint} }

// trouble turns the guest's error into one that the model can act on.
func (g *Files) trouble(ctx context.Context, err error, p string) error {
	if fe := (*tool.FileError)(nil); err == nil || errors.As(err, &fe) {
		return err
	}
	err = wire.Err(err)
	switch errs.Of(err) {
	case errs.NotFound:
		return fail(tool.CodeNotFound, p, "")
	case errs.Denied:
		return fail(tool.CodeDenied, p, "")
	case errs.Conflict, errs.Exists:
		return fail(tool.CodeConflict, p, "")
	case errs.Limit:
		return fail(tool.CodeTooLarge, p, "there is no space, or a bound of the sandbox was reached")
	case errs.Invalid:
		return g.odd(ctx, p)
	}
	return fmt.Errorf("a file of the sandbox: %w", err)
}

// odd says what is odd about a path that the guest called invalid.
func (g *Files) odd(ctx context.Context, p string) error {
	res, err := g.c.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(p), Follow: true}))
	if err == nil && res.Msg.Entry.GetType() == wire.FileType_FILE_TYPE_DIRECTORY {
		return fail(tool.CodeIsDirectory, p, "")
	}
	if err == nil {
		return fail(tool.CodeInvalidPath, p, "it is not a directory, or not a regular file")
	}
	return fail(tool.CodeInvalidPath, p, "a part of the path is a file, or a name is too long")
}

func infoOf(p string, e *wire.Entry) tool.FileInfo {
	f := tool.FileInfo{Path: p, Dir: e.GetType() == wire.FileType_FILE_TYPE_DIRECTORY, Modified: time.Unix(0, e.GetModifiedUnixNs()).UTC()}
	if !f.Dir {
		f.Bytes = max(e.GetSize(), 0)
	}
	return f
}

// Stat implements tool.Files. Links are followed.
func (g *Files) Stat(ctx context.Context, p string) (tool.FileInfo, error) {
	res, err := g.stat(ctx, p, false)
	if err != nil {
		return tool.FileInfo{}, err
	}
	f := infoOf(p, res.Entry)
	if res.Entry.GetType() != wire.FileType_FILE_TYPE_REGULAR || f.Bytes > hashBytesMax {
		return f, nil
	}
	hashed, err := g.stat(ctx, p, true)
	if codeOf(err) == tool.CodeDenied {
		return f, nil // it is there and cannot be read
	}
	if err != nil {
		return tool.FileInfo{}, err
	}
	f = infoOf(p, hashed.Entry)
	if isHash(hashed.Sha256) {
		f.Hash = hashed.Sha256
	}
	return f, nil
}

func codeOf(err error) string {
	if fe, ok := errors.AsType[*tool.FileError](err); ok {
		return fe.Code
	}
	return ""
}

func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

func (g *Files) stat(ctx context.Context, p string, hash bool) (*wire.StatResponse, error) {
	res, err := g.c.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(p), Follow: true, Hash: hash}))
	if err != nil {
		return nil, g.trouble(ctx, err, p)
	}
	return res.Msg, nil
}

// List implements tool.Files. Names that are not UTF-8 are shown with U+FFFD.
func (g *Files) List(ctx context.Context, dir string) ([]tool.FileInfo, error) {
	var list []tool.FileInfo
	links := 0
	for token := []byte(nil); ; {
		res, err := g.c.File.List(ctx, connect.NewRequest(&wire.ListRequest{Path: []byte(dir), PageSize: listPage, PageToken: token}))
		if err != nil {
			return nil, g.listTrouble(ctx, err, dir)
		}
		for _, e := range res.Msg.Entries {
			name := string(e.GetName())
			if !isName(name) || len(list) == tool.ListMax {
				continue
			}
			f := infoOf(path.Join(dir, strings.ToValidUTF8(name, "\uFFFD")), e)
			if e.GetType() == wire.FileType_FILE_TYPE_SYMLINK && links < linksMax {
				links++
				if to, err := g.stat(ctx, path.Join(dir, name), false); err == nil {
					f = infoOf(f.Path, to.Entry)
				}
			}
			list = append(list, f)
		}
		token = res.Msg.NextPageToken
		if len(token) == 0 || len(res.Msg.Entries) == 0 || len(list) >= tool.ListMax {
			return list, nil
		}
	}
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= nameBytesMax && !strings.ContainsAny(s, "/\x00")
}

// listTrouble: for a search, a file is what is odd.
func (g *Files) listTrouble(ctx context.Context, err error, dir string) error {
	err = g.trouble(ctx, err, dir)
	if codeOf(err) == tool.CodeIsDirectory {
		return fail(tool.CodeInvalidPath, dir, "")
	}
	return err
}

// Read implements tool.Files.
func (g *Files) Read(ctx context.Context, p string, limit int64) ([]byte, string, error) {
	tooLarge := func(n int64) error { return fail(tool.CodeTooLarge, p, fmt.Sprintf("it has %d bytes", n)) }
	content, size, err := g.read(ctx, &wire.ReadRequest{Path: []byte(p), Length: limit + 1}, limit+1)
	if err != nil {
		return nil, "", g.trouble(ctx, err, p)
	}
	if int64(len(content)) > limit {
		return nil, "", tooLarge(max(size, int64(len(content))))
	}
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:]), nil
}

// ReadAt implements tool.Files.
func (g *Files) ReadAt(ctx context.Context, p string, off int64, limit int) ([]byte, int64, error) {
	want := int64(limit)
	if limit <= 0 || off < 0 {
		off, limit, want = max(off, 0), 0, 1 // for the size; 0 would mean all
	}
	content, size, err := g.read(ctx, &wire.ReadRequest{Path: []byte(p), Offset: off, Length: want}, want)
	if err != nil {
		return nil, 0, g.trouble(ctx, err, p)
	}
	return content[:min(len(content), limit)], size, nil
}

// read takes a range, at most limit bytes of it, and the file's size.
func (g *Files) read(ctx context.Context, req *wire.ReadRequest, limit int64) ([]byte, int64, error) {
	st, err := g.c.File.Read(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, 0, err
	}
	defer st.Close()
	var content []byte
	size := int64(0)
	for first := true; st.Receive(); first = false {
		m := st.Msg()
		if first {
			size = max(m.Entry.GetSize(), 0)
			content = make([]byte, 0, min(size, limit, 16<<20))
		}
		if int64(len(content)+len(m.Data)) > limit {
			return nil, 0, errs.New(errs.Corrupt, "the guest sent more than it was asked for")
		}
		content = append(content, m.Data...)
	}
	return content, size, st.Err()
}

// Write implements tool.Files. The guest checks the hash and puts the file in
// place under one lock.
func (g *Files) Write(ctx context.Context, p string, content []byte, ifHash string) (string, error) {
	st := g.c.File.Write(ctx)
	err := st.Send(&wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte(p), MakeParents: true, ExpectSha256: ifHash}})
	for rest := content; err == nil && len(rest) > 0; {
		n := min(len(rest), wire.ChunkBytes)
		err = st.Send(&wire.WriteRequest{Data: rest[:n]})
		rest = rest[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says why
		_, _ = st.CloseAndReceive()
		return "", g.trouble(ctx, err, p)
	}
	res, err := st.CloseAndReceive()
	if err != nil {
		return "", g.trouble(ctx, err, p)
	}
	sum := sha256.Sum256(content)
	if hash := hex.EncodeToString(sum[:]); res.Msg.Sha256 == hash {
		return hash, nil
	}
	return "", errs.New(errs.Corrupt, "the guest wrote something else than it was given")
}

// Delete implements tool.Files. A link is removed, not what it points to.
func (g *Files) Delete(ctx context.Context, p string) error {
	_, err := g.c.File.Remove(ctx, connect.NewRequest(&wire.RemoveRequest{Path: []byte(p), Recursive: true}))
	return g.trouble(ctx, err, p)
}

// beneath returns the path of a found file relative to the directory that was
// searched; false: it is not a file there, whatever the guest says.
func beneath(dir string, found []byte) (p, rel string, ok bool) {
	p = string(found)
	rel, ok = strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return p, rel, ok && rel != "" && len(p) <= tool.PathBytesMax && path.Clean(p) == p && utf8.ValidString(p) && strings.IndexByte(p, 0) < 0
}

// guestPattern is what the guest is asked for: at least what g means. The
// rest is sorted out here, so that all backends have the same rules.
func guestPattern(g *backend.Glob) string {
	if p := g.String(); len(p) <= globPatternMax {
		return p
	}
	return "**"
}

// Glob implements tool.Files.
func (g *Files) Glob(ctx context.Context, dir, pattern string, limit int) (files []tool.FileInfo, truncated bool, err error) {
	m, err := backend.ParseGlob(pattern)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the search when enough was found
	st, err := g.c.File.Glob(ctx, connect.NewRequest(&wire.GlobRequest{Base: []byte(dir), Pattern: guestPattern(m), Limit: searchMax}))
	if err != nil {
		return nil, false, g.listTrouble(ctx, err, dir)
	}
	defer st.Close()
	for st.Receive() {
		for _, e := range st.Msg().Entries {
			p, rel, ok := beneath(dir, e.GetPath())
			if !ok || e.GetType() != wire.FileType_FILE_TYPE_REGULAR || !m.Match(rel) {
				continue
			}
			if len(files) == limit {
				return files, true, nil
			}
			files = append(files, infoOf(p, e))
		}
		truncated = truncated || st.Msg().Truncated
	}
	if err := st.Err(); err != nil {
		return nil, false, g.listTrouble(ctx, err, dir)
	}
	return files, truncated, nil
}

// Grep implements tool.Files.
func (g *Files) Grep(ctx context.Context, dir string, pattern tool.Pattern, glob string, limit int) (found []tool.Match, truncated bool, err error) {
	if _, err := backend.Matcher(pattern); err != nil {
		return nil, false, err
	}
	wanted, include, most := func(string) bool { return true }, "", min(limit+1, searchMax)
	if glob != "" {
		m, err := backend.ParseGlob(glob)
		if err != nil {
			return nil, false, err
		}
		wanted, include, most = m.Match, guestPattern(m), searchMax
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := g.c.File.Grep(ctx, connect.NewRequest(&wire.GrepRequest{Base: []byte(dir), Pattern: pattern.Text, Literal: !pattern.Regexp, Include: include, Limit: uint32(most)}))
	if err != nil {
		return nil, false, g.trouble(ctx, err, dir)
	}
	defer st.Close()
	for st.Receive() {
		for _, line := range st.Msg().Matches {
			p, rel, ok := beneath(dir, line.GetPath())
			if string(line.GetPath()) == dir { // the file that was searched
				p, rel, ok = dir, path.Base(dir), true
			}
			if !ok || !wanted(rel) {
				continue
			}
			if len(found) == limit {
				return found, true, nil
			}
			found = append(found, tool.Match{Path: p, Line: int(line.GetLine()), Text: backend.MatchText(line.GetText())})
		}
		truncated = truncated || st.Msg().Truncated
	}
	if err := st.Err(); err != nil {
		return nil, false, g.trouble(ctx, err, dir)
	}
	return found, truncated, nil
}
