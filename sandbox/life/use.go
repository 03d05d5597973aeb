package life

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Guest returns the client of a running sandbox. Until release is called (it
// may be repeated) the sandbox counts as used. The client is shared: do not
// close it.
//
// Conflict: the sandbox does not run; the hint says how to get there.
func (k *Keeper) Guest() (c *wire.Client, release func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return nil, nil, errDestroyed(k.id)
	}
	if err := k.usable(); err != nil {
		return nil, nil, err
	}
	if f := k.flight; f != nil && (f.kind == kindHalt || f.kind == kindDestroy) {
		return nil, nil, errs.New(errs.Conflict, "sandbox %s is %s", k.id, f.kind)
	}
	k.uses++
	return k.client, sync.OnceFunc(k.unuse), nil
}

func (k *Keeper) unuse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uses--
	k.used = time.Now()
	if k.uses == 0 {
		k.arm()
	}
}

// Dial opens a TCP port (1..65535) inside a running sandbox, loopback
// included. Until the connection is closed the sandbox counts as used. The
// guest's own ports cannot be reached this way.
func (k *Keeper) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	c, release, err := k.Guest()
	if err != nil {
		return nil, err
	}
	conn, err := c.DialTCP(ctx, port)
	if err != nil {
		release()
		return nil, err
	}
	return &usedConn{Conn: conn, release: release}, nil
}

// usedConn keeps its sandbox in use until it is closed.
type usedConn struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *usedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// CloseWrite says that nothing more will be sent.
func (c *usedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errs.New(errs.Unsupported, "this connection cannot be half closed")
}
