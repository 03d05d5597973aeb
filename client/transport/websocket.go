package transport

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
)

// DialWS opens a WebSocket. A refusal of the server is its problem as *Error.
func (c *Client) DialWS(ctx context.Context, k Call) (*websocket.Conn, error) {
	target := c.base + k.Path
	if len(k.Query) > 0 {
		target += "?" + k.Query.Encode()
	}
	header := http.Header{}
	c.sign(header)
	hc := *c.http
	hc.Transport = upgrade{hc.Transport}
	//nolint:bodyclose // the body of an upgrade is the connection, which ws closes
	ws, _, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: &hc, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, Broken(ctx, err)
	}
	return ws, nil
}

// upgrade makes an error of every answer that is no upgrade: the WebSocket
// package shows only the first kilobyte of a refusal.
type upgrade struct{ next http.RoundTripper }

func (u upgrade) RoundTrip(req *http.Request) (*http.Response, error) {
	next := u.next
	if next == nil {
		next = http.DefaultTransport
	}
	res, err := next.RoundTrip(req)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		return res, err
	}
	defer res.Body.Close()
	return nil, problemOf(res)
}
