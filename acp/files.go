package acp

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// files are those of the editor's directory, and what it and the sandbox agree on.
type files struct {
	dir   string
	state string // the file in which it is kept
	now   map[string]found
	agreement
	refused map[string]string // hashes of what the person did not want
	ours    map[string]bool   // written in this session: perhaps open in the editor
	always  bool              // the person permitted all writes of the session
}

// agreement is what is kept between sessions.
type agreement struct {
	Dir      string            `json:"dir"`
	Revision uint64            `json:"revision"` // of the sandbox, that holds what was copied last
	Files    map[string]agreed `json:"files"`    // equal on both sides when they were looked at
	// Pending differ in the sandbox since before Revision: they were not written.
	Pending map[string]bool `json:"pending,omitempty"`
}

type agreed struct {
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
	ModTime int64  `json:"mtime_ns"`
}

func openFiles(dir string) (*files, error) {
	return &files{
		dir: dir, refused: map[string]string{}, ours: map[string]bool{},
		agreement: agreement{Dir: dir, Files: map[string]agreed{}, Pending: map[string]bool{}},
	}, nil
}

func (f *files) root() (*os.Root, error) { return os.OpenRoot(f.dir) }

func (f *files) scan() error {
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	f.now, err = scanDir(root)
	return err
}

// stateBytesMax bounds what is read of an agreement.
const stateBytesMax = 64 << 20

// keptAs says where the agreement of a session is kept.
func (f *files) keptAs(dir, id string) {
	if dir != "" && filepath.IsLocal(id) && !strings.ContainsAny(id, `/\`) {
		f.state = filepath.Join(dir, id+".json")
	}
}

// restore reads what was agreed on before; false: it is not known here.
func (f *files) restore(dir, id string) bool {
	f.keptAs(dir, id)
	file, err := os.Open(f.state)
	if err != nil {
		return false
	}
	defer file.Close()
	var was agreement
	if json.NewDecoder(io.LimitReader(file, stateBytesMax)).Decode(&was) != nil || was.Dir != f.dir || was.Files == nil {
		return false
	}
	if was.Pending == nil {
		was.Pending = map[string]bool{}
	}
	f.agreement = was
	return true
}

// save keeps the agreement: whole, or as it was.
func (f *files) save() error {
	if f.state == "" {
		return nil
	}
	data, err := json.Marshal(f.agreement)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return err
	}
	temp := f.state + "." + rand.Text()
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, f.state)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// agree notes that both sides have this content.
func (f *files) agree(root *os.Root, name string, data []byte) {
	delete(f.Pending, name)
	delete(f.refused, name)
	if data == nil {
		delete(f.Files, name)
		return
	}
	e := agreed{SHA256: hashOf(data), Size: int64(len(data))}
	if info, err := root.Lstat(name); err == nil && info.Size() == e.Size {
		e.ModTime = info.ModTime().UnixNano()
	}
	f.Files[name] = e
}

// seen notes what the disk's file was when it was read: one that is written meanwhile
// is looked at again.
func (f *files) seen(name string, was found) {
	if e, ok := f.Files[name]; ok {
		e.ModTime = 0
		if was.size == e.Size {
			e.ModTime = was.mtime
		}
		f.Files[name] = e
	}
}

// content is a file on its way into the sandbox; nil data = it is removed there.
type content struct {
	name string
	data []byte
	exec bool
}

// upload copies all files into a new sandbox.
func (a *Agent) upload(ctx context.Context, s *session) error {
	f := s.files
	f.keptAs(a.State, s.id)
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	names := slices.Sorted(maps.Keys(f.now))
	next := func(yield func(content, error) bool) {
		for _, name := range names {
			data, err := readFile(root, name)
			if err == nil && data == nil {
				continue // it is gone
			}
			if err == nil {
				f.agree(root, name, data)
				f.seen(name, f.now[name])
			}
			if !yield(content{name, data, f.now[name].exec}, err) {
				return
			}
		}
	}
	if err := send(ctx, s.sandbox(), next); err != nil {
		return err
	}
	return a.noted(ctx, s)
}

// noted makes a revision of what was copied, and keeps the agreement.
func (a *Agent) noted(ctx context.Context, s *session) error {
	rev, err := s.sandbox().History().Snapshot(ctx, "files of the editor")
	if err != nil {
		return err
	}
	s.files.Revision = rev.N
	return s.files.save()
}

// send writes files into the workspace as one tree.
func send(ctx context.Context, sb *client.Sandbox, files func(func(content, error) bool)) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, files)
		w.CloseWithError(err)
		packed <- err
	}()
	_, err := sb.Files().Upload(ctx, workspace, r)
	r.CloseWithError(io.ErrClosedPipe) // lets pack end when the server did not read to the end
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return err
}

func pack(w io.Writer, files func(func(content, error) bool)) error {
	t := tar.NewWriter(w)
	for c, err := range files {
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if c.exec {
			mode = 0o755
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: c.name, Mode: mode, Size: int64(len(c.data)), ModTime: time.Now(), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(c.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// editor returns a file as the person sees it: an open buffer that is not saved, where the
// client tells it, else the disk. nil: there is none.
func (a *Agent) editor(ctx context.Context, s *session, root *os.Root, name string) ([]byte, error) {
	disk, err := readFile(root, name)
	h := a.greeting()
	if err != nil || h == nil || !h.ClientCapabilities.Fs.ReadTextFile || disk == nil || !isText(disk) {
		return disk, err
	}
	res, err := sdk.SendRequest[sdk.ReadTextFileResponse](a.conn, ctx, sdk.ClientMethodFsReadTextFile,
		sdk.ReadTextFileRequest{SessionId: sdk.SessionId(s.id), Path: filepath.Join(s.cwd, filepath.FromSlash(name))})
	if err != nil {
		return disk, ctx.Err() // the client has no such buffer
	}
	if len(res.Content) > fileBytesMax || res.Content == strings.ReplaceAll(string(disk), "\r\n", "\n") {
		return disk, nil // editors show other ends of lines than the disk has
	}
	return []byte(res.Content), nil
}

func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

// changed returns what the person has changed since the last agreement. mentioned are
// asked for also where the disk is as it was: they may be open and not saved.
func (a *Agent) changed(ctx context.Context, s *session, root *os.Root, mentioned []string) ([]content, error) {
	f := s.files
	ask := map[string]bool{}
	for _, name := range mentioned {
		ask[name] = true
	}
	var out []content
	for _, name := range slices.Sorted(maps.Keys(f.now)) {
		is, was := f.now[name], f.Files[name]
		if was.SHA256 != "" && was.Size == is.size && was.ModTime == is.mtime && !ask[name] && !f.ours[name] {
			continue
		}
		data, err := a.editor(ctx, s, root, name)
		if err != nil {
			return nil, err
		}
		switch {
		case data == nil: // it is gone just now
		case hashOf(data) == was.SHA256:
			f.seen(name, is)
		default:
			out = append(out, content{name, data, is.exec})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Files)) {
		if _, there := f.now[name]; !there {
			if info, err := plainFile(root, name); err == nil && info == nil {
				out = append(out, content{name: name})
			}
		}
	}
	return out, nil
}

// push brings what the person changed into the sandbox.
func (a *Agent) push(ctx context.Context, s *session, mentioned []string) error {
	f := s.files
	if f == nil {
		return nil
	}
	if err := f.scan(); err != nil {
		return err
	}
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := a.changed(ctx, s, root, mentioned)
	if err != nil || len(list) == 0 {
		return err
	}
	theirs, _, err := a.sandboxChanges(ctx, s)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(c content) bool { // the same on both sides
		if c.data == nil || !theirs[c.name] {
			return false
		}
		now, err := s.sandbox().Files().Hash(ctx, workspace+"/"+c.name)
		same := err == nil && now.SHA256 == hashOf(c.data)
		if same {
			f.agree(root, c.name, c.data)
			delete(theirs, c.name)
		}
		return same
	})
	if err := a.put(ctx, s, root, list, theirs); err != nil {
		return err
	}
	for name := range theirs {
		f.Pending[name] = true
	}
	return a.noted(ctx, s)
}

// put writes the person's files over those of the sandbox, whose history keeps them.
func (a *Agent) put(ctx context.Context, s *session, root *os.Root, list []content, theirs map[string]bool) error {
	var both []string
	err := send(ctx, s.sandbox(), func(yield func(content, error) bool) {
		for _, c := range list {
			if c.data != nil && !yield(c, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.data == nil {
			if _, err := s.sandbox().Files().Remove(ctx, workspace+"/"+c.name, false, true); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		if theirs[c.name] {
			both = append(both, c.name)
		}
		delete(theirs, c.name)
		s.files.agree(root, c.name, c.data)
		s.files.seen(c.name, found{size: -1}) // perhaps it was not saved: it is looked at again
	}
	if len(both) > 0 {
		s.note("Changed by you and in the sandbox: %s. Yours counts now; `skete history %s` has the other.", some(both), s.id)
	}
	return nil
}

// some names a few of many.
func some(names []string) string {
	const few = 10
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// sandboxChanges are the paths that may differ in the sandbox from what was agreed on.
// cut: there are more.
func (a *Agent) sandboxChanges(ctx context.Context, s *session) (names map[string]bool, cut bool, err error) {
	d, err := s.sandbox().History().Diff(ctx, s.files.Revision, 0, client.DiffOptions{})
	if err != nil {
		return nil, false, err
	}
	names = maps.Clone(s.files.Pending)
	for _, c := range d.Files {
		if kindOfChange(c) == "file" {
			names[client.ChangedPath(c)] = true
		}
	}
	return names, d.Cut, nil
}

// kindOfChange is the type of what is at a path, or was.
func kindOfChange(c api.PathChange) string {
	if c.After != nil && (c.Before == nil || c.Before.Type != "file") {
		return c.After.Type
	}
	if c.Before != nil {
		return c.Before.Type
	}
	return ""
}
