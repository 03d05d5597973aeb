package channel

import (
	"bufio"
	"io"
	"net"
)

// AcceptOf is for tests.
var AcceptOf = acceptOf

// SocketOn is a socket that reads what r has, and whose answers go nowhere.
func SocketOn(r io.Reader, client bool) net.Conn {
	return &socket{Conn: nowhere{}, in: bufio.NewReaderSize(r, socketBufferBytes), client: client}
}

type nowhere struct{ net.Conn }

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
