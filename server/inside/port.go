package inside

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

func (s *service) registerPorts(t *route.Table) {
	const tag, base = "ports", "/v1/sandboxes/{id}/ports"
	guestJSON(s, t, route.Operation{
		Method: http.MethodGet, Path: base, Scope: key.Read, ID: "list-ports", Tag: tag,
		Summary: "List open TCP ports",
	}, s.listPorts)
	guestRaw(s, t, route.Operation{
		Method: http.MethodGet, Path: base + "/watch", Scope: key.Read, ID: "watch-ports", Tag: tag,
		Summary: "Stream ports that open and close as server-sent events, the open ones first", Sends: route.Events[api.PortEvent](),
	}, s.watchPorts)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: base + "/{port}/connect", Scope: key.Write, ID: "connect-port", Tag: tag, Step: route.NoStep(),
		Summary: "Connect to a TCP port: a WebSocket whose binary messages are the bytes, an empty one the end of a direction", Sends: route.Socket("The bytes of the connection"),
	}, s.connectPort)
}

type listPortsOut struct{ Body api.PortList }

func (s *service) listPorts(ctx context.Context, g guest, in *SandboxPath) (*listPortsOut, error) {
	res, err := g.Port.List(ctx, connect.NewRequest(&wire.ListPortsRequest{}))
	if err != nil {
		return nil, wire.Err(err)
	}
	list := api.PortList{Items: make([]api.Port, len(res.Msg.GetPorts()))}
	for i, p := range res.Msg.GetPorts() {
		list.Items[i] = stream.PortView(p)
	}
	return &listPortsOut{list}, nil
}

func (s *service) watchPorts(w http.ResponseWriter, r *http.Request, g guest, in *SandboxPath) error {
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	sse, err := stream.NewSSE(w)
	if err != nil {
		return nil // the client is gone
	}
	return stream.PortEvents(ctx, sse, g.Client, s.still(g))
}

type connectPortIn struct {
	SandboxPath
	Port uint32 `path:"port" minimum:"1" maximum:"65535"`
}

// connectPort dials before it upgrades, so that a closed port is a problem
// with a status and not a WebSocket that ends.
func (s *service) connectPort(w http.ResponseWriter, r *http.Request, in *connectPortIn) error {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return err
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	conn, err := s.sandboxes.Dial(ctx, auth.From(ctx).Tenant, id, in.Port)
	if err != nil {
		return err
	}
	defer conn.Close()
	ws, err := stream.Accept(w, r)
	if err != nil {
		return err
	}
	return stream.Tunnel(ctx, ws, conn)
}
