package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Plugins is what the server needs to show plug-ins, of all tenants. It returns at once.
type Plugins interface {
	Plugins() []api.Plugin
}

// noPlugins is a server that has none.
type noPlugins struct{}

func (noPlugins) Plugins() []api.Plugin { return nil }

func (s *Server) registerPlugins(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/plugins", Scope: key.Admin, ID: "list-plugins", Tag: "server",
		Summary: "List the plug-ins of the server, and how their processes are",
	}, s.listPlugins)
}

type pluginListOut struct{ Body api.PluginList }

func (s *Server) listPlugins(context.Context, *struct{}) (*pluginListOut, error) {
	out := &pluginListOut{api.PluginList{Items: []api.Plugin{}}}
	out.Body.Items = append(out.Body.Items, s.plugins.Plugins()...)
	return out, nil
}
