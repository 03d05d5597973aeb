package acp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/skete-dev/skete/errs"
)

// change is a file that the agent changed and the person has not.
type change struct {
	content        // of the sandbox; nil data = removed
	before  []byte // the editor's; nil = none
}

// Bounds of what is offered at once.
const (
	offeredMax      = 1000
	offeredBytesMax = 64 << 20
	shownBytesMax   = 4 << 20 // as diffs, in one message
)

// offer brings what the agent changed back, if the person permits.
func (a *Agent) offer(ctx context.Context, s *session, t *turn) error {
	f := s.files
	if f == nil || a.Write == Never || t.view.waits.Load() {
		return nil
	}
	root, err := f.root()
	if err != nil {
		return err
	}
	defer root.Close()
	list, conflicts, err := a.compare(ctx, s, root)
	if err != nil {
		return err
	}
	if len(conflicts) > 0 {
		a.say(s, fmt.Sprintf("\n\nChanged by you and by the agent, so not written: %s. The agent's is in the sandbox (`skete cp %s:%s …`).", some(conflicts), s.id, workspace))
	}
	if len(list) > 0 {
		err = a.deliver(ctx, s, root, list)
	}
	return errors.Join(err, f.save())
}

// compare finds out what differs in the sandbox from what was agreed on, and whether the
// editor still has what was.
func (a *Agent) compare(ctx context.Context, s *session, root *os.Root) (list []change, conflicts []string, err error) {
	f := s.files
	names, cut, err := a.sandboxChanges(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if cut || len(names) > offeredMax {
		return nil, nil, errs.New(errs.Limit, "too many files changed in the sandbox").WithHint("skete cp %s:%s DIR copies them", s.id, workspace)
	}
	ignored, total := newIgnores(root), 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if why := hostile(name); why != "" {
			a.Log.Warn("a file of the sandbox is not written", "file", name, "why", why)
			continue
		}
		if ignored.file(name) {
			continue
		}
		c, err := a.fromSandbox(ctx, s, name)
		if err != nil {
			return nil, nil, err
		}
		if c == nil || f.unchanged(c) {
			continue
		}
		if total += len(c.data); total > offeredBytesMax {
			return nil, nil, errs.New(errs.Limit, "more than %d MB changed in the sandbox", offeredBytesMax>>20).WithHint("skete cp %s:%s DIR copies them", s.id, workspace)
		}
		mine, err := a.editor(ctx, s, root, name)
		switch {
		case errors.Is(err, errLink):
			conflicts = append(conflicts, name)
			f.refuse(c)
		case err != nil:
			return nil, nil, err
		case mine == nil && c.data == nil, mine != nil && c.data != nil && bytes.Equal(mine, c.data):
			f.agree(root, name, c.data)
		case mine == nil && f.Files[name].SHA256 == "", mine != nil && hashOf(mine) == f.Files[name].SHA256:
			list = append(list, change{*c, mine})
		default:
			conflicts = append(conflicts, name)
			f.refuse(c)
		}
	}
	return list, conflicts, nil
}

// unchanged reports whether a file is as agreed on, or as it was refused.
func (f *files) unchanged(c *content) bool {
	is := ""
	if c.data != nil {
		is = hashOf(c.data)
	}
	if was, ok := f.refused[c.name]; ok && was == is {
		return true
	}
	if f.Files[c.name].SHA256 == is {
		delete(f.Pending, c.name)
		return true
	}
	return false
}

// refuse keeps a file from being offered again before it changes again.
func (f *files) refuse(c *content) {
	f.refused[c.name] = ""
	if c.data != nil {
		f.refused[c.name] = hashOf(c.data)
	}
	f.Pending[c.name] = true
}

// fromSandbox reads a file of the workspace; nil: it is no file, or too large.
func (a *Agent) fromSandbox(ctx context.Context, s *session, name string) (*content, error) {
	at := path.Join(workspace, name)
	info, err := s.sandbox().Files().Stat(ctx, at, false)
	if errs.Is(err, errs.NotFound) {
		return &content{name: name}, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Type != "file" {
		return nil, nil
	}
	if info.Size > fileBytesMax {
		a.say(s, fmt.Sprintf("\n\n%s has %d MB and is not written.", name, info.Size>>20))
		return nil, nil
	}
	data, err := s.sandbox().Files().Read(ctx, at, fileBytesMax)
	if errs.Is(err, errs.NotFound) {
		return &content{name: name}, nil
	}
	if data == nil {
		data = []byte{}
	}
	return &content{name, data, info.Mode&0o100 != 0}, err
}

// deliver shows changes as a call of its own, asks, and writes.
func (a *Agent) deliver(ctx context.Context, s *session, root *os.Root, list []change) error {
	shown := s.shownChanges(list)
	a.update(s.id, sdk.StartToolCall(shown.ToolCallId, *shown.Title, sdk.WithStartKind(sdk.ToolKindEdit), sdk.WithStartStatus(sdk.ToolCallStatusPending),
		sdk.WithStartContent(shown.Content), startLocations(shown.Locations)))
	status := func(st sdk.ToolCallStatus, content ...sdk.ToolCallContent) {
		opts := []sdk.ToolCallUpdateOpt{sdk.WithUpdateStatus(st)}
		if len(content) > 0 {
			opts = append(opts, sdk.WithUpdateContent(append(slices.Clone(shown.Content), content...)))
		}
		a.update(s.id, sdk.UpdateToolCall(shown.ToolCallId, opts...))
	}
	if a.Write == Ask && !s.files.always {
		chosen, err := a.permission(ctx, s, shown, []sdk.PermissionOption{
			{OptionId: optAllow, Name: "Write", Kind: sdk.PermissionOptionKindAllowOnce},
			{OptionId: optAlways, Name: "Always write in this session", Kind: sdk.PermissionOptionKindAllowAlways},
			{OptionId: optReject, Name: "Leave my files alone", Kind: sdk.PermissionOptionKindRejectOnce},
		})
		if err != nil || chosen != optAllow && chosen != optAlways {
			for _, c := range list {
				s.files.refuse(&c.content)
			}
			status(sdk.ToolCallStatusFailed, sdk.ToolContent(sdk.TextBlock("Not written. The sandbox keeps it.")))
			return nil // a client that cannot ask gets nothing written
		}
		s.files.always = chosen == optAlways
	}
	status(sdk.ToolCallStatusInProgress)
	if failed := a.writeAll(ctx, s, root, list); len(failed) > 0 {
		status(sdk.ToolCallStatusFailed, sdk.ToolContent(sdk.TextBlock(strings.Join(failed, "\n"))))
		return nil
	}
	status(sdk.ToolCallStatusCompleted)
	return nil
}

// writeAll writes what the person permitted, and says what it could not.
func (a *Agent) writeAll(ctx context.Context, s *session, root *os.Root, list []change) (failed []string) {
	for _, c := range list {
		mine, err := a.editor(ctx, s, root, c.name)
		switch {
		case err == nil && (mine == nil) != (c.before == nil), err == nil && !bytes.Equal(mine, c.before):
			err = errs.New(errs.Conflict, "you changed it in the meantime")
		case err == nil:
			err = a.write(ctx, s, root, c)
		}
		if err != nil {
			s.files.refuse(&c.content)
			failed = append(failed, c.name+" was not written: "+refusal(err).Message)
			continue
		}
		s.files.agree(root, c.name, c.data)
		s.files.ours[c.name] = true
	}
	return failed
}

// write writes one file: a text through the editor, where it can, so that its buffers know.
func (a *Agent) write(ctx context.Context, s *session, root *os.Root, c change) error {
	if c.data == nil {
		return removeFile(root, c.name)
	}
	h := a.greeting()
	if h == nil || !h.ClientCapabilities.Fs.WriteTextFile || !isText(c.data) || bytes.Contains(c.data, []byte("\r")) {
		return writeFile(root, c.name, c.data, c.exec)
	}
	if _, err := plainFile(root, c.name); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(c.name), 0o755); err != nil {
		return err
	}
	_, err := sdk.SendRequest[*sdk.WriteTextFileResponse](a.conn, ctx, sdk.ClientMethodFsWriteTextFile,
		sdk.WriteTextFileRequest{SessionId: sdk.SessionId(s.id), Path: filepath.Join(s.cwd, filepath.FromSlash(c.name)), Content: string(c.data)})
	if err == nil && c.exec && c.before == nil {
		_ = root.Chmod(c.name, 0o755) // an editor that writes later has its own bits
	}
	return err
}

// shownChanges is the call that writes changes.
func (s *session) shownChanges(list []change) sdk.ToolCallUpdate {
	word := "files"
	if len(list) == 1 {
		word = "file"
	}
	u := sdk.ToolCallUpdate{
		ToolCallId: sdk.ToolCallId("write-" + strings.ToLower(rand.Text()[:12])), Title: new(fmt.Sprintf("Write %d %s to %s", len(list), word, s.cwd)),
		Kind: new(sdk.ToolKindEdit), Status: new(sdk.ToolCallStatusPending),
	}
	var rest []string
	total := 0
	for _, c := range list {
		at := filepath.Join(s.cwd, filepath.FromSlash(c.name))
		u.Locations = append(u.Locations, sdk.ToolCallLocation{Path: at})
		size := len(c.before) + len(c.data)
		switch {
		case c.data == nil:
			rest = append(rest, "removes "+c.name)
		case !isText(c.data), c.before != nil && !isText(c.before), size > diffBytesMax, total+size > shownBytesMax:
			rest = append(rest, fmt.Sprintf("writes %s, %d bytes", c.name, len(c.data)))
		case c.before == nil:
			u.Content = append(u.Content, sdk.ToolDiffContent(at, string(c.data)))
			total += size
		default:
			u.Content = append(u.Content, sdk.ToolDiffContent(at, string(c.data), string(c.before)))
			total += size
		}
	}
	if len(rest) > 0 {
		u.Content = append(u.Content, sdk.ToolContent(sdk.TextBlock(strings.Join(rest, "\n"))))
	}
	return u
}
