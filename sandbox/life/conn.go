package life

import (
	"net"

	"github.com/skete-dev/skete/errs"
)

// borrowedConn is a connection into a sandbox, which is in use until it is closed.
type borrowedConn struct {
	net.Conn
	GiveBack func() // may be called twice
}

// Close closes the connection.
func (c *borrowedConn) Close() error {
	c.GiveBack()
	return c.Conn.Close()
}

// CloseWrite says that nothing more will be sent.
func (c *borrowedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errs.New(errs.Unsupported, "this connection cannot be half closed")
}
