package guest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of names and environment.
const (
	hostnameMax = 64
	sandboxMax  = 128
	pathMax     = 4095
	envCountMax = 4096
	envBytesMax = 120 << 10 // a command's arguments must fit beside it

	authorityBytesMax = 16 << 10
	filesMax          = 16 // of a network
	fileBytesMax      = 64 << 10
)

// Adopt makes this machine the one of a sandbox: it steps the clock and mixes
// in the host's entropy, as far as the kernel lets us, then takes names,
// environment and a new boot id. What it changes holds for every command from
// then on, also after supervise was killed; commands that run keep what they
// were started with. It may be repeated.
//
// A machine that shares its host's kernel keeps the host's clock and names:
// they are not ours to change.
//
// # Keys
//
// A copy of a machine knows the keys that were used before it was frozen, and
// no others. A key that it knows is answered as ever: it has run, here too, and
// its process lives in both copies. A key that was first used in the original
// afterwards is unknown here: Attach and Get are not_found, and Start would run
// it. Whether it has run elsewhere cannot be known inside. That is what the boot
// id is for: it is new in the copy, so a caller that remembers the boot id with
// each key it has used must not Start a key again that it used in another boot;
// it reports that key as lost.
func (c *control) Adopt(_ context.Context, r *connect.Request[wire.AdoptRequest]) (*connect.Response[wire.AdoptResponse], error) {
	req := r.Msg
	if err := checkAdopt(req); err != nil {
		return nil, wire.ToConnect(err)
	}
	c.adoptMu.Lock()
	defer c.adoptMu.Unlock()
	res := &wire.AdoptResponse{}
	if c.cfg.Own {
		step := req.TimeUnixNs - time.Now().UnixNano()
		ts := unix.NsecToTimespec(req.TimeUnixNs)
		if setClock(&ts) == nil {
			res.ClockSet, res.SteppedNs = true, step
		}
	}
	res.Reseeded = reseed(req.Entropy) == nil
	_, id := c.who.now()
	if !req.KeepBootId {
		id = newBootID(req.Entropy)
	}
	boot, err := c.who.change(id, func(b *wire.Boot) { rename(b, req) })
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	c.apply(boot, id)
	c.renewNetwork(req.Authority, req.Files)
	if c.cfg.Own {
		nameMachine(boot.Hostname, !req.KeepBootId)
	}
	res.BootId = id
	return connect.NewResponse(res), nil
}

// apply tells all who decide by the machine's identity.
func (c *control) apply(boot wire.Boot, id string) {
	c.core.Become(boot, id)
	c.files.SetWorkdir(boot.Workdir)
	if c.services != nil {
		c.services.Become(boot)
	}
}

func rename(b *wire.Boot, req *wire.AdoptRequest) {
	if len(req.Workdir) > 0 {
		b.Workdir = string(req.Workdir)
	}
	if req.Sandbox == "" {
		return
	}
	b.Sandbox, b.Hostname = req.Sandbox, req.Hostname
	b.Env = make(map[string]string, len(req.Env))
	for k, v := range req.Env {
		b.Env[k] = string(v)
	}
}

// newBootID mixes the host's entropy with ours, because ours may be the same
// in every copy of this machine.
func newBootID(entropy []byte) string {
	var own [32]byte
	_, _ = rand.Read(own[:])
	h := sha256.New()
	h.Write(own[:])
	h.Write(entropy)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// nameMachine gives the machine its names: in the kernel, and in the files that
// programs read. What cannot be written (a read-only root) stays as it is.
func nameMachine(hostname string, fresh bool) {
	if hostname != "" && unix.Sethostname([]byte(hostname)) == nil {
		_ = replaceFile("/etc/hostname", []byte(hostname+"\n"), 0o644)
	}
	if fresh {
		var id [16]byte
		_, _ = rand.Read(id[:])
		_ = replaceFile("/etc/machine-id", []byte(hex.EncodeToString(id[:])+"\n"), 0o444)
	}
}

func checkAdopt(req *wire.AdoptRequest) error {
	size := 0
	for p, content := range req.Files {
		if !filepath.IsAbs(p) || len(p) > pathMax || strings.IndexByte(p, 0) >= 0 || len(content) > fileBytesMax {
			return errs.New(errs.Invalid, "a file of the network has no absolute path, or more than %d bytes", fileBytesMax)
		}
	}
	for k, v := range req.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(string(v), 0) >= 0 {
			return errs.New(errs.Invalid, "%.100q is not a variable, or its value holds a NUL byte", k)
		}
		size += len(k) + len(v) + 2
	}
	switch n := len(req.Entropy); {
	case n < entropyMin || n > entropyMax:
		return errs.New(errs.Invalid, "entropy has %d bytes, not %d..%d", n, entropyMin, entropyMax)
	case req.TimeUnixNs <= 0:
		return errs.New(errs.Invalid, "time_unix_ns is not after 1970")
	case len(req.Env) > envCountMax || size > envBytesMax:
		return errs.New(errs.Invalid, "the environment has more than %d variables or %d bytes", envCountMax, envBytesMax)
	case len(req.Authority) > authorityBytesMax:
		return errs.New(errs.Invalid, "the network's certificate has more than %d bytes", authorityBytesMax)
	case len(req.Files) > filesMax:
		return errs.New(errs.Invalid, "the network has more than %d files", filesMax)
	case !plainName(req.Hostname, hostnameMax):
		return errs.New(errs.Invalid, "%.80q is no host name", req.Hostname)
	case !plainName(req.Sandbox, sandboxMax):
		return errs.New(errs.Invalid, "%.140q is no sandbox's id", req.Sandbox)
	case len(req.Workdir) > 0 && (!filepath.IsAbs(string(req.Workdir)) || len(req.Workdir) > pathMax || strings.IndexByte(string(req.Workdir), 0) >= 0):
		return errs.New(errs.Invalid, "the working directory is no absolute path")
	}
	return nil
}

// plainName accepts what may stand in a host name or an id; nothing is plain too.
func plainName(s string, most int) bool {
	for _, r := range []byte(s) {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && strings.IndexByte("._-", r) < 0 {
			return false
		}
	}
	return len(s) <= most
}

// OwnsRoot reports whether this program runs from the place that only machines
// with a root file system of their own have.
func OwnsRoot() bool {
	path, err := os.Executable()
	return err == nil && path == wire.GuestBinary
}
