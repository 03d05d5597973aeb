package microvm

import (
	"context"
	"crypto/rand"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// entropyBytes that a new machine gets: its own sources are few.
const entropyBytes = 64

// Introduce tells a machine that has just booted what its command line did not
// hold: the time, fresh entropy, the sandbox's environment and whom it trusts for its
// network. Providers call
// it before anything runs inside, and before Create returns. Its boot stays
// the same; it may be repeated.
func Introduce(ctx context.Context, guest *wire.Client, boot wire.Boot) error {
	entropy := make([]byte, entropyBytes)
	_, _ = rand.Read(entropy)
	env := make(map[string][]byte, len(boot.Env))
	for k, v := range boot.Env {
		env[k] = []byte(v)
	}
	_, err := guest.Control.Adopt(ctx, connect.NewRequest(&wire.AdoptRequest{
		Sandbox: boot.Sandbox, Hostname: boot.Hostname, Workdir: []byte(boot.Workdir), Env: env, Authority: boot.Authority(), Files: boot.Files(),
		TimeUnixNs: time.Now().UnixNano(), Entropy: entropy, KeepBootId: true,
	}))
	return wire.Err(err)
}
