package wire

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/skete-dev/skete/errs"
)

// Fixed places inside every machine. The directory is root's alone (0700) and
// read-only: commands of the sandbox's user cannot look into it.
const (
	BootDir     = "/.skete"
	GuestBinary = BootDir + "/guest"
	DiskDir     = BootDir + "/disk" // the workspace's disk where the machine mounts it itself (internal/volume/layout)
	BootFile    = BootDir + "/boot.json"
	HostSocket  = BootDir + "/host.sock" // where a dial-out guest finds the host
)

// bootBytesMax bounds a boot file; the environment is the largest part.
const bootBytesMax = 1 << 20

// PreviewDomain is the variable of a sandbox's environment that names the
// domain beneath which its previews are. Known dev servers are told to answer
// there.
const PreviewDomain = "SKETE_PREVIEW_DOMAIN"

// Boot tells the guest what it is. The host writes it before the machine
// starts; it holds no secret.
type Boot struct {
	Sandbox  string `json:"sandbox"`
	Hostname string `json:"hostname"`
	// Channel is where the host is: "unix:/path" (the guest dials out and
	// parks connections), "vsock:<port>" (the guest listens),
	// "virtio:<name>" (a virtio-serial port, its streams multiplexed) or
	// "web:<port>" (the guest listens at the loopback, each stream is a WebSocket).
	Channel string `json:"channel"`
	// Token is what a host shows at a port of the loopback, which programs of the
	// machine, and proxies before it, reach too. It opens this machine and nothing else.
	Token string `json:"token,omitempty"`
	// Keep is set where the machine keeps its workspace's history itself and mounts no
	// disk for that.
	Keep *Keep `json:"keep,omitempty"`
	// User, UID, GID, Home: who commands run as. Workdir: where.
	User    string `json:"user"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Home    string `json:"home"`
	Workdir string `json:"workdir"`
	// DefaultUser is the user of requests that name none: "" = User; "root"
	// only together with Root.
	DefaultUser string `json:"default_user,omitempty"`
	// Root grants the use of "root" in requests.
	Root bool `json:"root"`
	// Env is added to every command's environment, below the request's own.
	Env map[string]string `json:"env,omitempty"`
	// ProcessesMax bounds the tasks (processes and threads) of commands; 0 = no bound.
	ProcessesMax int `json:"processes_max"`
	// Threads is how many threads init and supervise each make at their start,
	// 0 = what they need. It is for machines in which they count together with
	// commands: there a thread that is missing later may be refused.
	Threads int `json:"threads,omitempty"`
	// MemoryBytes is the machine's limit, 0 = unknown. Near it the guest ends
	// the largest command with the reason "out of memory".
	MemoryBytes int64 `json:"memory_bytes"`
	// OutputBytesMax bounds all spools together; 0 = 256 MiB.
	OutputBytesMax int64 `json:"output_bytes_max"`
	// StateDir holds spools and the journal; "" = /var/lib/skete-guest.
	StateDir string `json:"state_dir,omitempty"`
	// Forwards are places in the machine that lead to ports of the host.
	Forwards []Forward `json:"forwards,omitempty"`
	// Network is set where programs reach the public network, as the host allows.
	Network *Network `json:"network,omitempty"`
	// Mounts asks init to mount /proc, /tmp and so on (a VM); a container-like
	// provider has done so already.
	Mounts bool `json:"mounts,omitempty"`
}

// Keep says where a workspace is, and where what is kept of its past: two directories
// of one file system.
type Keep struct {
	Workspace string `json:"workspace"`
	Dir       string `json:"dir"`
}

// TrustFile has all the certificates that programs of a machine with a network trust.
const TrustFile = "/etc/ssl/skete.pem"

// What is added to a system's bundles stands between two lines, which what reads a bundle
// skips. Files of settings begin with one.
const (
	TrustBegin    = "# The network of this sandbox\n"
	TrustEnd      = "# The end of the network of this sandbox\n"
	SettingsBegin = "# Settings of this sandbox's network\n"
)

// TrustBundles are where programs look for the certificates that they trust.
var TrustBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/ssl/ca-bundle.pem",             // openSUSE
	"/etc/ssl/cert.pem",                  // Alpine, BSD
}

// TrustEnv names TrustFile to programs that do not look where the system has its own.
// The first one adds to what the program brings along; the others replace it.
var TrustEnv = []string{
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
	"CARGO_HTTP_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "DENO_CERT",
}

// Network is what a machine needs for one: its connections become streams to
// NetworkPort of the host (package guest/capture).
type Network struct {
	// Authority is a certificate in PEM: of what answers on the host for the hosts
	// that programs reach. All programs of the machine shall trust it. Empty: an
	// adoption tells it.
	Authority string `json:"authority,omitempty"`
	// Files are settings of package managers: absolute paths and contents. They are
	// made where there is no such file yet, or one that was made so.
	Files map[string]string `json:"files,omitempty"`
}

// Authority is that of the machine's network; nil: it has none.
func (b Boot) Authority() []byte {
	if b.Network == nil {
		return nil
	}
	return []byte(b.Network.Authority)
}

// Files are those of the machine's network, as an adoption tells them.
func (b Boot) Files() map[string][]byte {
	if b.Network == nil || len(b.Network.Files) == 0 {
		return nil
	}
	files := make(map[string][]byte, len(b.Network.Files))
	for p, content := range b.Network.Files {
		files[p] = []byte(content)
	}
	return files
}

// Forward is a place in the machine: each connection to it becomes a stream to a
// port of the host. Every process of the machine may connect.
type Forward struct {
	// Listen is "tcp:127.0.0.1:PORT", or "unix:@NAME" for a name without a file.
	Listen string `json:"listen"`
	Port   uint32 `json:"port"`
}

// ReadBoot parses a boot file; unknown keys and trailing data are refused.
func ReadBoot(r io.Reader) (Boot, error) {
	var b Boot
	data, err := io.ReadAll(io.LimitReader(r, bootBytesMax+1))
	if err != nil {
		return b, err
	}
	if len(data) > bootBytesMax {
		return b, errs.New(errs.Invalid, "boot file larger than %d bytes", bootBytesMax)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return b, errs.Wrap(errs.Invalid, err, "boot file")
	}
	if d.More() {
		return b, errs.New(errs.Invalid, "boot file: data after the object")
	}
	if b.Channel == "" || b.Workdir == "" || b.User == "" {
		return b, errs.New(errs.Invalid, "boot file: channel, workdir and user must be set")
	}
	return b, nil
}
