package wire

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// AgentPort is the port of a machine at which the host begins agents. Each stream to it is
// one agent: the host names its program by hash and size, and sends it if the machine
// does not have it; behind that the stream is the agent's own, and ends it.
//
//	host   CONNECT 65538            guest  OK 65538
//	host   <sha256> <bytes>         guest  HAVE, or SEND
//	host   the program, after SEND  guest  OK, or NO <class> <message>
const AgentPort uint32 = 1<<16 + 2

// Of programs.
const (
	AgentBytesMax    = 64 << 20
	agentSendTimeout = 5 * time.Minute // an emulated machine takes its time
)

// AgentProgram names a program.
type AgentProgram struct {
	Hash  string // sha256, hex
	Bytes int64
}

// BeginAgent begins an agent in the machine, and returns its stream. open returns the
// program; it is called only if the machine does not have it.
// Unsupported: this machine takes no agents.
func (c *Client) BeginAgent(ctx context.Context, p AgentProgram, open func() (io.ReadCloser, error)) (net.Conn, error) {
	conn, err := c.dial(ctx, AgentPort)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap(errs.Unsupported, err, "the guest program of this sandbox is too old for agents").WithHint("make a new sandbox")
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(agentSendTimeout))
	if err := offerAgent(conn, p, open); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if !stop() {
		_ = conn.Close()
		return nil, context.Cause(ctx)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

func offerAgent(conn net.Conn, p AgentProgram, open func() (io.ReadCloser, error)) error {
	silent := func(err error) error { return errs.Wrap(errs.Unavailable, err, "the machine did not take the agent") }
	if _, err := fmt.Fprintf(conn, "%s %d\n", p.Hash, p.Bytes); err != nil {
		return silent(err)
	}
	line, err := readLine(conn)
	if err != nil {
		return silent(err)
	}
	switch line {
	case "HAVE":
		return nil
	case "SEND":
		program, err := open()
		if err != nil {
			return err
		}
		_, err = io.CopyN(conn, program, p.Bytes)
		_ = program.Close()
		if err == nil {
			line, err = readLine(conn)
		}
		if err != nil {
			return silent(err)
		}
	}
	if rest, no := strings.CutPrefix(line, "NO "); no {
		class, msg, _ := strings.Cut(rest, " ")
		return errs.New(parseClass(class), "%s", msg)
	}
	if line != "OK" {
		return errs.New(errs.Unavailable, "the guest answered %.60q", line)
	}
	return nil
}

// ReadAgentProgram reads which program the host wants. Invalid: it names none.
func ReadAgentProgram(conn io.Reader) (AgentProgram, error) {
	line, err := readLine(conn)
	if err != nil {
		return AgentProgram{}, err
	}
	hash, size, _ := strings.Cut(line, " ")
	sum, err := hex.DecodeString(hash)
	n, serr := strconv.ParseInt(size, 10, 64)
	if err != nil || len(sum) != 32 || hash != strings.ToLower(hash) || serr != nil || n <= 0 || n > AgentBytesMax {
		return AgentProgram{}, errs.New(errs.Invalid, "no program is named by %.100q", line)
	}
	return AgentProgram{Hash: hash, Bytes: n}, nil
}

// Descriptors of an agent when it begins.
const (
	AgentHostFD  = 3 // its stream to the host
	AgentLocalFD = 4 // guest.v1 of its machine, as HTTP/2: Process, File, Service and Hello
)

// NewAgentClient returns the client of an agent for its own machine. All calls go over
// the one connection.
func NewAgentClient(conn net.Conn) *Client {
	var once sync.Once
	t := &http.Transport{
		DialContext: func(context.Context, string, string) (c net.Conn, err error) {
			err = errs.New(errs.Unavailable, "the machine's supervisor has ended the connection")
			once.Do(func() { c, err = conn, nil })
			return c, err
		},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return newClient(t, nil)
}
