package mcp

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/errs"
)

// resourceBytesMax bounds a resource: they are read as a whole.
const resourceBytesMax = 512 << 10

// Addresses of resources.
const (
	scheme         = "skete://"
	fileTemplate   = scheme + "sandbox/{sandbox}/workspace/{+path}"
	storyTemplate  = scheme + "run/{run}/transcript"
	sandboxAddress = scheme + "sandbox/"
	runAddress     = scheme + "run/"
)

func (s *Server) addResources() {
	if allows(s.Scopes, read) {
		s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
			Name: "workspace_file", Title: "A file of a sandbox", URITemplate: fileTemplate,
			Description: "A file beneath /workspace. file_read shows parts of larger ones.",
		}, s.resource(s.workspaceFile))
	}
	if allows(s.Scopes, runsRead) {
		s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{
			Name: "run_transcript", Title: "The story of a run", URITemplate: storyTemplate, MIMEType: "application/json",
			Description: "What an agent did, step by step: the last hundred.",
		}, s.resource(s.transcript))
	}
}

// resource answers reads of a resource by f.
func (s *Server) resource(f func(ctx context.Context, uri string) (*sdk.ResourceContents, error)) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		ctx, stop := cancellable(ctx)
		defer stop()
		c, err := f(ctx, req.Params.URI)
		switch {
		case errs.Is(err, errs.NotFound):
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		case err != nil:
			return nil, errs.New(errs.Of(err), "%s", errs.Public(err)) // without what was not written for users
		}
		c.URI = req.Params.URI
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
	}
}

func (s *Server) workspaceFile(ctx context.Context, uri string) (*sdk.ResourceContents, error) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(uri, sandboxAddress), "/workspace/")
	name, err := url.PathUnescape(rest)
	if err != nil || !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, errs.New(errs.Invalid, "%.200q is no path beneath /workspace", rest)
	}
	if id, err = url.PathUnescape(id); err != nil || id == "" {
		return nil, errs.New(errs.Invalid, "the address names no sandbox")
	}
	data, err := part(ctx, s.Client.Sandbox(id).Files(), path.Join("/workspace", name), 0, resourceBytesMax+1)
	if err != nil {
		return nil, err
	}
	if len(data) > resourceBytesMax {
		return nil, errs.New(errs.Limit, "%.200q has more than %d bytes; file_read reads it in parts", name, resourceBytesMax)
	}
	if text, ok := textOf(data, false); ok {
		return &sdk.ResourceContents{MIMEType: kindOf(name, "text/plain"), Text: text}, nil
	}
	return &sdk.ResourceContents{MIMEType: kindOf(name, http.DetectContentType(data)), Blob: data}, nil
}

// kindOf is the type of a file by its name.
func kindOf(name, otherwise string) string {
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		return kind
	}
	return otherwise
}

func (s *Server) transcript(ctx context.Context, uri string) (*sdk.ResourceContents, error) {
	id, _, _ := strings.Cut(strings.TrimPrefix(uri, runAddress), "/")
	story, err := s.Client.Run(id).Transcript(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(story)
	if err != nil {
		return nil, err
	}
	return &sdk.ResourceContents{MIMEType: "application/json", Text: string(data)}, nil
}
