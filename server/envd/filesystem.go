package envd

import (
	"context"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd/protocol"
)

// Bounds of lists.
const (
	listDepthMax   = 64
	listEntriesMax = 100000
)

// filesystemService is the service Filesystem.
type filesystemService struct{ *Bridge }

// Stat implements protocol.FilesystemHandler.
func (s filesystemService) Stat(ctx context.Context, req *connect.Request[protocol.StatRequest]) (*connect.Response[protocol.StatResponse], error) {
	c := callOf(ctx)
	name, err := c.path(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	e, err := c.stat(ctx, name)
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	return connect.NewResponse(&protocol.StatResponse{Entry: e}), nil
}

func (c call) stat(ctx context.Context, name string) (*protocol.EntryInfo, error) {
	res, err := c.guest.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(name), User: c.user}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return c.entry(ctx, res.Msg.GetEntry()), nil
}

// entry shows an entry. A link is shown as what it leads to, as clients expect it.
func (c call) entry(ctx context.Context, e *wire.Entry) *protocol.EntryInfo {
	v := &protocol.EntryInfo{
		Name: text(e.GetName()), Path: text(e.GetPath()), Type: typeView(e.GetType()), Size: e.GetSize(), Mode: e.GetMode(),
		Permissions: permissions(e), Owner: ownerName(e.GetUid()), Group: ownerName(e.GetGid()),
		ModifiedTime: timestamppb.New(time.Unix(0, e.GetModifiedUnixNs())),
	}
	if e.GetType() != wire.FileType_FILE_TYPE_SYMLINK {
		return v
	}
	target := text(e.GetTarget())
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(v.Path), target)
	}
	v.SymlinkTarget, v.Type, v.Mode = &target, protocol.FileType_FILE_TYPE_UNSPECIFIED, 0
	res, err := c.guest.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: e.GetPath(), User: c.user, Follow: true}))
	if err == nil {
		v.Type, v.Mode = typeView(res.Msg.GetEntry().GetType()), res.Msg.GetEntry().GetMode()
	}
	return v
}

// text is a name as a string of JSON can hold it.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func typeView(t wire.FileType) protocol.FileType {
	switch t {
	case wire.FileType_FILE_TYPE_REGULAR:
		return protocol.FileType_FILE_TYPE_FILE
	case wire.FileType_FILE_TYPE_DIRECTORY:
		return protocol.FileType_FILE_TYPE_DIRECTORY
	case wire.FileType_FILE_TYPE_SYMLINK:
		return protocol.FileType_FILE_TYPE_SYMLINK
	}
	return protocol.FileType_FILE_TYPE_UNSPECIFIED
}

// permissions is how Go writes a mode, which is what clients get elsewhere.
func permissions(e *wire.Entry) string {
	m := fs.FileMode(e.GetMode() & 0o777)
	for bit, mode := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if e.GetMode()&bit != 0 {
			m |= mode
		}
	}
	switch e.GetType() {
	case wire.FileType_FILE_TYPE_DIRECTORY:
		m |= fs.ModeDir
	case wire.FileType_FILE_TYPE_SYMLINK:
		m |= fs.ModeSymlink
	case wire.FileType_FILE_TYPE_OTHER:
		m |= fs.ModeIrregular
	}
	return m.String()
}

// ownerName names those users that all templates have.
func ownerName(id uint32) string {
	switch id {
	case 0:
		return "root"
	case 1000:
		return defaultUser
	}
	return strconv.Itoa(int(id))
}

// MakeDir implements protocol.FilesystemHandler. Parents are made too.
func (s filesystemService) MakeDir(ctx context.Context, req *connect.Request[protocol.MakeDirRequest]) (*connect.Response[protocol.MakeDirResponse], error) {
	c := callOf(ctx)
	name, err := c.path(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	step := c.step(ctx, "mkdir", name)
	defer step.End()
	res, err := c.guest.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: []byte(name), User: c.user, Parents: true}))
	if err != nil {
		return nil, refusedBy(ctx, wire.Err(err))
	}
	if !res.Msg.GetCreated() {
		return nil, refusedBy(ctx, errs.New(errs.Exists, "the directory %.200q is there already", name))
	}
	return connect.NewResponse(&protocol.MakeDirResponse{Entry: c.entry(ctx, res.Msg.GetEntry())}), nil
}

// Move implements protocol.FilesystemHandler. What is at the destination is replaced.
func (s filesystemService) Move(ctx context.Context, req *connect.Request[protocol.MoveRequest]) (*connect.Response[protocol.MoveResponse], error) {
	c := callOf(ctx)
	from, err := c.path(ctx, req.Msg.GetSource())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	to, err := c.path(ctx, req.Msg.GetDestination())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	step := c.step(ctx, "move", from)
	defer step.End()
	if _, err := c.stat(ctx, from); err != nil { // before directories are made for it
		return nil, refusedBy(ctx, err)
	}
	if err := c.parents(ctx, to); err != nil {
		return nil, refusedBy(ctx, err)
	}
	res, err := c.guest.File.Move(ctx, connect.NewRequest(&wire.MoveRequest{Source: []byte(from), Destination: []byte(to), User: c.user, Overwrite: true}))
	if err != nil {
		return nil, refusedBy(ctx, wire.Err(err))
	}
	return connect.NewResponse(&protocol.MoveResponse{Entry: c.entry(ctx, res.Msg.GetEntry())}), nil
}

// parents makes the directories that a path needs.
func (c call) parents(ctx context.Context, name string) error {
	dir := path.Dir(name)
	if dir == "." || dir == "/" {
		return nil
	}
	_, err := c.guest.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: []byte(dir), User: c.user, Parents: true}))
	return wire.Err(err)
}

// ListDir implements protocol.FilesystemHandler.
func (s filesystemService) ListDir(ctx context.Context, req *connect.Request[protocol.ListDirRequest]) (*connect.Response[protocol.ListDirResponse], error) {
	c := callOf(ctx)
	name, err := c.path(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	out, err := c.list(ctx, name, max(1, min(req.Msg.GetDepth(), listDepthMax)))
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	return connect.NewResponse(out), nil
}

func (c call) list(ctx context.Context, name string, depth uint32) (*protocol.ListDirResponse, error) {
	out := &protocol.ListDirResponse{}
	for token := []byte(nil); ; {
		res, err := c.guest.File.List(ctx, connect.NewRequest(&wire.ListRequest{Path: []byte(name), User: c.user, Depth: depth, PageSize: 10000, PageToken: token}))
		if err != nil {
			return nil, wire.Err(err)
		}
		if len(out.Entries)+len(res.Msg.GetEntries()) > listEntriesMax {
			return nil, errs.New(errs.Limit, "%.200q holds more than %d entries", name, listEntriesMax).WithHint("list with less depth")
		}
		for _, e := range res.Msg.GetEntries() {
			out.Entries = append(out.Entries, c.entry(ctx, e))
		}
		if token = res.Msg.GetNextPageToken(); len(token) == 0 {
			return out, nil
		}
	}
}

// Remove implements protocol.FilesystemHandler. What is not there is no error.
func (s filesystemService) Remove(ctx context.Context, req *connect.Request[protocol.RemoveRequest]) (*connect.Response[protocol.RemoveResponse], error) {
	c := callOf(ctx)
	name, err := c.path(ctx, req.Msg.GetPath())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	step := c.step(ctx, "remove", name)
	defer step.End()
	_, err = c.guest.File.Remove(ctx, connect.NewRequest(&wire.RemoveRequest{Path: []byte(name), User: c.user, Recursive: true, MissingOk: true}))
	return connect.NewResponse(&protocol.RemoveResponse{}), refusedBy(ctx, wire.Err(err))
}

// WatchDir implements protocol.FilesystemHandler.
func (s filesystemService) WatchDir(ctx context.Context, req *connect.Request[protocol.WatchDirRequest], to *connect.ServerStream[protocol.WatchDirResponse]) error {
	m := req.Msg
	ctx, release, err := s.Hub.Open(ctx, auth.From(ctx).Owner)
	if err != nil {
		return refusedBy(ctx, err)
	}
	defer release()
	return refusedBy(ctx, callOf(ctx).watch(ctx, m, func(ev *protocol.WatchDirResponse) error { return to.Send(ev) }))
}

// watch sends what happens in a directory, the start first.
func (c call) watch(ctx context.Context, m *protocol.WatchDirRequest, send func(*protocol.WatchDirResponse) error) error {
	name, err := c.path(ctx, m.GetPath())
	if err != nil {
		return err
	}
	res, err := c.guest.File.Stat(ctx, connect.NewRequest(&wire.StatRequest{Path: []byte(name), User: c.user, Follow: true}))
	if err != nil {
		return wire.Err(err)
	}
	top := res.Msg.GetEntry()
	if top.GetType() != wire.FileType_FILE_TYPE_DIRECTORY {
		return errs.New(errs.Invalid, "%.200q is not a directory", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := c.guest.File.Watch(ctx, connect.NewRequest(&wire.WatchRequest{Path: []byte(name), User: c.user, Recursive: m.GetRecursive()}))
	if err != nil {
		cancel()
		return wire.Err(err)
	}
	defer func() { cancel(); _ = events.Close() }()
	for events.Receive() {
		view, err := c.watchView(ctx, text(top.GetPath()), events.Msg(), m.GetIncludeEntry())
		if err != nil {
			return err
		}
		if err := send(view); err != nil {
			return err
		}
	}
	if err := wire.Err(events.Err()); err != nil {
		return err
	}
	return errs.New(errs.NotFound, "the directory is gone")
}

var eventTypes = map[wire.FileEventType]protocol.EventType{
	wire.FileEventType_FILE_EVENT_TYPE_CREATE: protocol.EventType_EVENT_TYPE_CREATE,
	wire.FileEventType_FILE_EVENT_TYPE_WRITE:  protocol.EventType_EVENT_TYPE_WRITE,
	wire.FileEventType_FILE_EVENT_TYPE_REMOVE: protocol.EventType_EVENT_TYPE_REMOVE,
	wire.FileEventType_FILE_EVENT_TYPE_RENAME: protocol.EventType_EVENT_TYPE_RENAME,
	wire.FileEventType_FILE_EVENT_TYPE_CHMOD:  protocol.EventType_EVENT_TYPE_CHMOD,
}

// watchView shows an event. What was lost ends the watch: clients do not know of it.
func (c call) watchView(ctx context.Context, top string, ev *wire.WatchResponse, withEntry bool) (*protocol.WatchDirResponse, error) {
	switch e := ev.GetEvent().(type) {
	case *wire.WatchResponse_Started:
		return &protocol.WatchDirResponse{Event: &protocol.WatchDirResponse_Start{Start: &protocol.WatchDirResponse_StartEvent{}}}, nil
	case *wire.WatchResponse_Overflow:
		return nil, errs.New(errs.Limit, "more happened than could be watched").WithHint("list the directory, and watch again")
	case *wire.WatchResponse_File:
		f := &protocol.FilesystemEvent{Name: relative(top, text(e.File.GetPath())), Type: eventTypes[e.File.GetType()]}
		if withEntry && f.Type != protocol.EventType_EVENT_TYPE_REMOVE && f.Type != protocol.EventType_EVENT_TYPE_RENAME {
			f.Entry, _ = c.stat(ctx, string(e.File.GetPath())) // it may be gone by now
		}
		return &protocol.WatchDirResponse{Event: &protocol.WatchDirResponse_Filesystem{Filesystem: f}}, nil
	}
	return &protocol.WatchDirResponse{Event: &protocol.WatchDirResponse_Keepalive{Keepalive: &protocol.WatchDirResponse_KeepAlive{}}}, nil
}

func relative(top, name string) string {
	if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(top, "/")+"/"); ok {
		return rest
	}
	if name == top {
		return "."
	}
	return name
}
