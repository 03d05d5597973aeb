package vm

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
)

// prepare lets the sandbox's template be made, if it is a ready one that is
// not there yet, and shows how it goes: the create would do so too, in silence.
func (a commands) prepare(ctx context.Context, c *client.Client, req api.CreateSandbox) error {
	hostTools := req.Provider == "gvisor" || req.Provider == "process"
	if req.Template == "" && hostTools || req.Template != "" && !template.IsReady(req.Template) {
		return nil
	}
	_, err := a.Making(c.PrepareTemplates(ctx, api.PrepareTemplates{For: &req}))
	if req.Template == "" && (errs.Is(err, errs.Unsupported) || errs.Is(err, errs.NotFound)) {
		return nil // what cannot be had, the create says better; an older server makes none
	}
	return err
}
