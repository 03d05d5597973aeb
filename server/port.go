package server

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/gate"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/view"
)

func (s *Server) registerPorts() {
	const tag, base = "ports", "/v1/sandboxes/{id}/ports"
	handle(s, operation{method: http.MethodGet, path: base, scope: key.Read, id: "list-ports", tag: tag,
		summary: "List open TCP ports"}, s.listPorts)
	handleRaw(s, operation{method: http.MethodGet, path: base + "/watch", scope: key.Read, id: "watch-ports", tag: tag,
		summary: "Stream ports that open and close as server-sent events, the open ones first", change: eventStream[api.PortEvent](s)}, s.watchPorts)
	handleRaw(s, operation{method: http.MethodGet, path: base + "/{port}/connect", scope: key.Write, id: "connect-port", tag: tag,
		summary: "Connect to a TCP port: a WebSocket whose binary messages are the bytes, an empty one the end of a direction", change: webSocket}, s.connectPort)
}

type listPortsOut struct{ Body api.PortList }

func (s *Server) listPorts(ctx context.Context, in *sandboxPath) (*listPortsOut, error) {
	g, err := s.guest(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer g.release()
	res, err := g.Port.List(ctx, connect.NewRequest(&wire.ListPortsRequest{}))
	if err != nil {
		return nil, wire.Err(err)
	}
	list := api.PortList{Items: make([]api.Port, len(res.Msg.GetPorts()))}
	for i, p := range res.Msg.GetPorts() {
		list.Items[i] = view.Port(p)
	}
	return &listPortsOut{list}, nil
}

func (s *Server) watchPorts(w http.ResponseWriter, r *http.Request, in *sandboxPath) error {
	g, err := s.guest(r.Context(), in.ID)
	if err != nil {
		return err
	}
	defer g.release()
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	sse, err := stream.NewSSE(w)
	if err != nil {
		return nil // the client is gone
	}
	return stream.PortEvents(ctx, sse, g.Client)
}

type connectPortIn struct {
	sandboxPath
	Port uint32 `path:"port" minimum:"1" maximum:"65535"`
}

// connectPort dials before it upgrades, so that a closed port is a problem
// with a status and not a WebSocket that ends.
func (s *Server) connectPort(w http.ResponseWriter, r *http.Request, in *connectPortIn) error {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return err
	}
	ctx, release, err := s.openStream(w, r)
	if err != nil {
		return err
	}
	defer release()
	conn, err := s.sandboxes.Dial(ctx, gate.From(ctx).Tenant, id, in.Port)
	if err != nil {
		return err
	}
	defer conn.Close()
	ws, err := accept(w, r)
	if err != nil {
		return err
	}
	return stream.Tunnel(ctx, ws, conn)
}
