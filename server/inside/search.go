package inside

import (
	"context"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/stream"
)

// searchMax bounds the answer of glob and grep, whatever the guest sends.
const searchMax = 100_000

type globFilesIn struct {
	SandboxPath
	Base    string `query:"base" doc:"directory to begin at; default the working directory"`
	User    string `query:"user" maxLength:"64"`
	Pattern string `query:"pattern" required:"true" maxLength:"4096" doc:"**, *, ?, [..], {a,b}"`
	Limit   int    `query:"limit" minimum:"0" maximum:"100000" doc:"default 1000"`
}

type globFilesOut struct{ Body api.GlobResult }

func (s *service) globFiles(ctx context.Context, g guest, in *globFilesIn) (*globFilesOut, error) {
	ctx, cancel := context.WithCancel(ctx)
	st, err := g.File.Glob(ctx, connect.NewRequest(&wire.GlobRequest{
		Base: []byte(in.Base), User: in.User, Pattern: in.Pattern, Limit: uint32(in.Limit),
	}))
	if err != nil {
		cancel()
		return nil, wire.Err(err)
	}
	defer hangUp(cancel, st.Close)
	out := api.GlobResult{Items: []api.File{}}
	for st.Receive() && len(out.Items) <= searchMax {
		out.Items = append(out.Items, stream.FileViews(st.Msg().GetEntries())...)
		out.Truncated = out.Truncated || st.Msg().GetTruncated()
	}
	if err := st.Err(); err != nil {
		return nil, wire.Err(err)
	}
	return &globFilesOut{out}, nil
}

type grepFilesIn struct {
	SandboxPath
	Base         string `query:"base" doc:"file or directory; default the working directory"`
	User         string `query:"user" maxLength:"64"`
	Pattern      string `query:"pattern" required:"true" maxLength:"4096" doc:"RE2 syntax, or the text itself with literal"`
	Literal      bool   `query:"literal"`
	IgnoreCase   bool   `query:"ignore_case"`
	Include      string `query:"include" maxLength:"4096" doc:"glob on the path beneath base"`
	Limit        int    `query:"limit" minimum:"0" maximum:"100000" doc:"matches; default 1000"`
	Context      int    `query:"context" minimum:"0" maximum:"20" doc:"lines before and after"`
	FileBytesMax int64  `query:"file_bytes_max" minimum:"0" doc:"larger files are skipped; default 16 MiB"`
}

type grepFilesOut struct{ Body api.GrepResult }

func (s *service) grepFiles(ctx context.Context, g guest, in *grepFilesIn) (*grepFilesOut, error) {
	ctx, cancel := context.WithCancel(ctx)
	st, err := g.File.Grep(ctx, connect.NewRequest(&wire.GrepRequest{
		Base: []byte(in.Base), User: in.User, Pattern: in.Pattern, Literal: in.Literal, IgnoreCase: in.IgnoreCase,
		Include: in.Include, Limit: uint32(in.Limit), Context: uint32(in.Context), FileBytesMax: in.FileBytesMax,
	}))
	if err != nil {
		cancel()
		return nil, wire.Err(err)
	}
	defer hangUp(cancel, st.Close)
	out := api.GrepResult{Items: []api.GrepMatch{}}
	for st.Receive() && len(out.Items) <= searchMax {
		for _, m := range st.Msg().GetMatches() {
			out.Items = append(out.Items, stream.MatchView(m))
		}
		if st.Msg().GetDone() {
			out.Truncated = st.Msg().GetTruncated()
			out.FilesSearched, out.FilesSkipped = int(st.Msg().GetFilesSearched()), int(st.Msg().GetFilesSkipped())
		}
	}
	if err := st.Err(); err != nil {
		return nil, wire.Err(err)
	}
	return &grepFilesOut{out}, nil
}
