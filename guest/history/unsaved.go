package history

import (
	"context"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// Unsaved looks at the files.
func (s *Service) Unsaved(ctx context.Context, _ *connect.Request[wire.UnsavedRequest]) (*connect.Response[wire.UnsavedResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	u, err := w.Unsaved(ctx)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.UnsavedResponse{Since: u.Since, Any: u.Any, Files: uint32(u.Files), Cut: u.Cut, Aside: u.Aside}), nil
}
