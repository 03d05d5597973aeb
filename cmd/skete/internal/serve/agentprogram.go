package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/binary"
	"github.com/skete-dev/skete/guest/wire"
)

// agentProgram is the program of agents that work in sandboxes. It is put on disk and
// read when it is first needed.
type agentProgram struct {
	named, home string

	mu   sync.Mutex // guards what follows
	path string
	is   wire.AgentProgram
}

// begin begins an agent in a machine.
func (a *agentProgram) begin(ctx context.Context, c *wire.Client) (net.Conn, error) {
	is, path, err := a.find()
	if err != nil {
		return nil, err
	}
	return c.BeginAgent(ctx, is, func() (io.ReadCloser, error) { return os.Open(path) })
}

func (a *agentProgram) find() (wire.AgentProgram, string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.path != "" {
		return a.is, a.path, nil
	}
	path, err := a.named, error(nil)
	if path == "" {
		path, err = binary.Agent(filepath.Join(a.home, "guest"))
	}
	if err != nil {
		return wire.AgentProgram{}, "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return wire.AgentProgram{}, "", errs.Wrap(errs.Unsupported, err, "the program of agents in sandboxes cannot be read").
			WithHint("see agents.program; `go build -o PATH ./cmd/skete-agent` with CGO_ENABLED=0 makes one")
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return wire.AgentProgram{}, "", err
	}
	a.path, a.is = path, wire.AgentProgram{Hash: hex.EncodeToString(sum.Sum(nil)), Bytes: n}
	return a.is, a.path, nil
}
