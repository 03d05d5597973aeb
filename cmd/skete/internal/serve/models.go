package serve

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm/catalog"
)

// modelList shows the catalogue. It is a server.Models.
type modelList struct{ c *catalog.Catalog }

// Models implements server.Models.
func (l modelList) Models(ctx context.Context) []api.Model {
	list := []api.Model{}
	for _, m := range l.c.List(ctx) {
		list = append(list, api.Model{
			Name: m.Info.Name, Vendor: m.Info.Vendor, ID: m.Info.ID, URL: m.URL, WindowTokens: m.Info.WindowTokens,
			Guessed: m.Info.Guessed, Source: m.Source, State: string(m.State), Default: m.Default,
		})
	}
	return list
}
