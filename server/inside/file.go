package inside

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// FilePath names a file of a sandbox. The path is bytes, percent-encoded.
type FilePath struct {
	SandboxPath
	Path string `query:"path" required:"true" doc:"absolute, or relative to the working directory; any bytes, percent-encoded"`
	User string `query:"user" maxLength:"64" doc:"whose rights count; default the sandbox's user"`
}

func (s *service) registerFiles(t *route.Table) {
	const tag, base = "files", "/v1/sandboxes/{id}/files"
	guestRaw(s, t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Read, ID: "read-file", Tag: tag,
		Summary: "Read a file, or one range of it", Sends: route.Bytes("application/octet-stream", "The content"),
	}, s.readFile)
	route.Raw(t, route.Operation{
		Method: http.MethodPut, Path: base, Scope: key.Write, ID: "write-file", Tag: tag,
		Summary: "Write a file: whole (atomic), at an offset, or at its end", Takes: "application/octet-stream", Step: writeStep,
		Sends: route.Object[api.FileWritten]("The file as it is now"),
	}, s.writeFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodDelete, Path: base, Scope: key.Write, ID: "remove-file", Tag: tag,
		Summary: "Remove a file or a tree", Step: removeStep,
	}, s.removeFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/stat", Scope: key.Read, ID: "stat-file", Tag: tag,
		Summary: "Look at a path",
	}, s.statFile)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: base + "/list", Scope: key.Read, ID: "list-files", Tag: tag,
		Summary: "List a directory",
	}, s.listFiles)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/mkdir", Scope: key.Write, ID: "make-directory", Tag: tag,
		Summary: "Make a directory", Step: mkdirStep,
	}, s.makeDir)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/move", Scope: key.Write, ID: "move-file", Tag: tag,
		Summary: "Rename a file or directory", Step: moveStep,
	}, s.moveFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/copy", Scope: key.Write, ID: "copy-file", Tag: tag,
		Summary: "Copy a file or directory", Step: copyStep,
	}, s.copyFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/chmod", Scope: key.Write, ID: "chmod-file", Tag: tag,
		Summary: "Set permission bits", Step: chmodStep,
	}, s.chmodFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodPost, Path: base + "/symlink", Scope: key.Write, ID: "symlink-file", Tag: tag,
		Summary: "Make a symbolic link", Step: symlinkStep,
	}, s.symlinkFile)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/glob", Scope: key.Read, ID: "glob-files", Tag: tag,
		Summary: "Find paths by pattern",
	}, s.globFiles)
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/grep", Scope: key.Read, ID: "grep-files", Tag: tag,
		Summary: "Find lines by pattern",
	}, s.grepFiles)
	guestRaw(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/watch", Scope: key.Read, ID: "watch-files", Tag: tag,
		Summary: "Stream changes in a tree as server-sent events", Sends: route.Events[api.FileEvent](),
	}, s.watchFiles)
}

type fileOut struct{ Body api.File }

type statFileIn struct {
	FilePath
	Follow bool `query:"follow" doc:"of a symbolic link show the target"`
	Hash   bool `query:"hash" doc:"read the content for its SHA-256"`
}

func (s *service) statFile(ctx context.Context, g guest, in *statFileIn) (*fileOut, error) {
	f, err := stat(ctx, g, &wire.StatRequest{Path: []byte(in.Path), User: in.User, Follow: in.Follow, Hash: in.Hash})
	if err != nil {
		return nil, err
	}
	return &fileOut{f}, nil
}

func stat(ctx context.Context, g guest, req *wire.StatRequest) (api.File, error) {
	res, err := g.File.Stat(ctx, connect.NewRequest(req))
	if err != nil {
		return api.File{}, wire.Err(err)
	}
	f := stream.FileView(res.Msg.GetEntry())
	if hashOK(res.Msg.GetSha256()) {
		f.SHA256 = res.Msg.GetSha256()
	}
	return f, nil
}

// hashOK: what the guest says goes into a header.
func hashOK(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}

type listFilesIn struct {
	FilePath
	Depth     int    `query:"depth" minimum:"0" maximum:"64" doc:"0 and 1 = this directory only"`
	PageSize  int    `query:"page_size" minimum:"0" maximum:"10000" doc:"default 1000"`
	PageToken string `query:"page_token" maxLength:"16384"`
}

type listFilesOut struct{ Body api.FilePage }

func (s *service) listFiles(ctx context.Context, in *listFilesIn) (*listFilesOut, error) {
	token, err := hex.DecodeString(in.PageToken)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the page token is none of ours")
	}
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.File.List(ctx, connect.NewRequest(&wire.ListRequest{
		Path: []byte(in.Path), User: in.User, Depth: uint32(in.Depth), PageSize: uint32(in.PageSize), PageToken: token,
	}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &listFilesOut{api.FilePage{
		Items: stream.FileViews(res.Msg.GetEntries()), NextPageToken: hex.EncodeToString(res.Msg.GetNextPageToken()),
	}}, nil
}

type removeFileIn struct {
	FilePath
	Recursive bool `query:"recursive"`
	MissingOK bool `query:"missing_ok" doc:"no error if there is nothing"`
}

type removedOut struct{ Body api.Removed }

func (s *service) removeFile(ctx context.Context, g guest, in *removeFileIn) (*removedOut, error) {
	res, err := g.File.Remove(ctx, connect.NewRequest(&wire.RemoveRequest{
		Path: []byte(in.Path), User: in.User, Recursive: in.Recursive, MissingOk: in.MissingOK,
	}))
	if err != nil {
		return nil, wire.Err(err)
	}
	return &removedOut{api.Removed{Removed: res.Msg.GetRemoved()}}, nil
}

// fileIn is a JSON request on the files of a sandbox.
type fileIn[B any] struct {
	SandboxPath
	Body B
}

// exact is what a request means by a path: its bytes, if it gives them.
func exact(text string, bytes []byte) []byte {
	if len(bytes) > 0 {
		return bytes
	}
	return []byte(text)
}

// fileOf is the answer of a call whose guest answers with an entry.
func fileOf[M any](res *connect.Response[M], err error, get func(*M) *wire.Entry) (*fileOut, error) {
	if err != nil {
		return nil, wire.Err(err)
	}
	return &fileOut{stream.FileView(get(res.Msg))}, nil
}

func (s *service) makeDir(ctx context.Context, g guest, in *fileIn[api.MakeDir]) (*fileOut, error) {
	b := in.Body
	res, err := g.File.MakeDir(ctx, connect.NewRequest(&wire.MakeDirRequest{Path: exact(b.Path, b.PathBytes), User: b.User, Parents: b.Parents, Mode: b.Mode}))
	return fileOf(res, err, (*wire.MakeDirResponse).GetEntry)
}

func (s *service) moveFile(ctx context.Context, g guest, in *fileIn[api.MoveFile]) (*fileOut, error) {
	b := in.Body
	res, err := g.File.Move(ctx, connect.NewRequest(&wire.MoveRequest{Source: exact(b.Source, b.SourceBytes), Destination: exact(b.Destination, b.DestinationBytes), User: b.User, Overwrite: b.Overwrite}))
	return fileOf(res, err, (*wire.MoveResponse).GetEntry)
}

func (s *service) copyFile(ctx context.Context, g guest, in *fileIn[api.CopyFile]) (*fileOut, error) {
	b := in.Body
	res, err := g.File.Copy(ctx, connect.NewRequest(&wire.CopyRequest{Source: exact(b.Source, b.SourceBytes), Destination: exact(b.Destination, b.DestinationBytes), User: b.User, Overwrite: b.Overwrite}))
	return fileOf(res, err, (*wire.CopyResponse).GetEntry)
}

func (s *service) chmodFile(ctx context.Context, g guest, in *fileIn[api.ChmodFile]) (*fileOut, error) {
	b := in.Body
	res, err := g.File.Chmod(ctx, connect.NewRequest(&wire.ChmodRequest{Path: exact(b.Path, b.PathBytes), User: b.User, Mode: b.Mode, Recursive: b.Recursive}))
	return fileOf(res, err, (*wire.ChmodResponse).GetEntry)
}

func (s *service) symlinkFile(ctx context.Context, g guest, in *fileIn[api.SymlinkFile]) (*fileOut, error) {
	b := in.Body
	res, err := g.File.Symlink(ctx, connect.NewRequest(&wire.SymlinkRequest{Target: exact(b.Target, b.TargetBytes), Path: exact(b.Path, b.PathBytes), User: b.User}))
	return fileOf(res, err, (*wire.SymlinkResponse).GetEntry)
}

type watchFilesIn struct {
	FilePath
	Recursive   bool   `query:"recursive"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

func (s *service) watchFiles(w http.ResponseWriter, r *http.Request, g guest, in *watchFilesIn) error {
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	watch := stream.Watch{Path: []byte(in.Path), User: in.User, Recursive: in.Recursive, LastID: in.LastEventID}
	return stream.FileEvents(ctx, g.Client, s.still(g), watch, func() (*stream.SSE, error) { return stream.NewSSE(w) })
}
