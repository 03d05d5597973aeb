package main

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// cutter is a proxy that breaks every connection after about so many bytes of
// the server's answer, in the middle of whatever is under way.
type cutter struct {
	path   string
	ln     net.Listener
	target string
	every  int
	broken atomic.Int64
	wg     sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool
}

func newCutter(path, target string, every int) (*cutter, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	c := &cutter{path: path, ln: ln, target: target, every: every, open: map[net.Conn]bool{}}
	c.wg.Add(1)
	go c.serve()
	return c, nil
}

func (c *cutter) cuts() int64 { return c.broken.Load() }

// close ends the proxy and whatever still runs through it.
func (c *cutter) close() {
	c.ln.Close()
	c.mu.Lock()
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cutter) track(conn net.Conn, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open {
		c.open[conn] = true
	} else {
		delete(c.open, conn)
	}
}

func (c *cutter) serve() {
	defer c.wg.Done()
	for {
		down, err := c.ln.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("unix", c.target)
		if err != nil {
			down.Close()
			continue
		}
		c.track(up, true)
		c.wg.Add(2)
		go func() {
			defer c.wg.Done()
			defer c.track(up, false)
			_, _ = io.Copy(up, down)
			up.Close()
		}()
		go func() {
			defer c.wg.Done()
			// From half to one and a half of the mean, so that cuts fall anywhere in a frame.
			n, _ := io.CopyN(down, up, int64(c.every/2+rand.IntN(c.every)))
			if n >= int64(c.every/2) {
				c.broken.Add(1)
			}
			down.Close()
			up.Close()
		}()
	}
}
