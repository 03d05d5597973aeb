package sandbox

import (
	"cmp"
	"maps"
	"strings"

	"github.com/skete-dev/skete/guest/wire"
)

// Who commands run as in every machine, and where.
const (
	UserName     = "user"
	UserID       = 1000
	userHome     = "/home/user"
	WorkspaceDir = "/workspace"
)

// Network is what a machine with a network is given.
type Network struct {
	Authority string            // as wire.Network has it
	Files     map[string]string // as wire.Network has them
	Env       map[string]string // of commands, beneath the template's and the sandbox's own
}

// BootFile returns what the guest shall be told; the provider adds where the
// host is (Channel) and adapts paths if it has no root file system of its own.
func (b Boot) BootFile() wire.Boot {
	env := maps.Clone(b.Rootfs.Env)
	if env == nil {
		env = map[string]string{}
	}
	var network *wire.Network
	if n := b.Network; n != nil && b.Spec.HasNetwork() {
		network = &wire.Network{Authority: n.Authority, Files: n.Files}
		for name, value := range n.Env {
			if _, ok := env[name]; !ok { // the template's own wins
				env[name] = value
			}
		}
		for _, name := range wire.TrustEnv {
			env[name] = wire.TrustFile
		}
		env["UV_NATIVE_TLS"] = "1" // look where the system has its certificates
	}
	maps.Copy(env, b.Spec.Env)
	var user string
	if b.Spec.Root && b.Rootfs.Use.User == "root" {
		user = "root"
	}
	return wire.Boot{
		Sandbox:      string(b.name()),
		Hostname:     b.hostname(),
		User:         UserName,
		UID:          UserID,
		GID:          UserID,
		Home:         userHome,
		Workdir:      cmp.Or(b.Spec.Workdir, b.Rootfs.Use.Workdir, WorkspaceDir),
		DefaultUser:  user,
		Root:         b.Spec.Root,
		Env:          env,
		ProcessesMax: b.Spec.PidsMax,
		MemoryBytes:  int64(b.Spec.MemoryMB) << 20,
		Forwards:     b.Forwards,
		Network:      network,
	}
}

func (b Boot) name() ID {
	if b.Name != "" {
		return b.Name
	}
	return b.ID
}

// hostname is the id in the letters that a host name may have.
func (b Boot) hostname() string { return strings.ReplaceAll(string(b.name()), "_", "-") }
