// Package config reads the settings of a server: built-in values, then the
// file, then the environment, then flags; each wins over the one before.
//
//	c, err := config.Load(config.Source{File: "skete.yaml", Env: os.Environ(), Set: []string{"limits.sandboxes=5"}})
//
// Every key of the file has a variable: `limits.memory_mb` is
// SKETE_LIMITS_MEMORY_MB. An unknown key, a key given twice and a value of the
// wrong kind are refused with their position; so is an unknown variable that
// begins with SKETE_LIMITS_, SKETE_DEFAULTS_, SKETE_STORE_, SKETE_LOG_ or
// SKETE_SECRETS_.
//
// All functions are pure but for reading the file.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm/catalog"
	mcpclient "github.com/skete-dev/skete/mcp/client"
)

// DefaultListen is the TCP address of a server unless configured otherwise.
const DefaultListen = "127.0.0.1:7733"

// Config is all that can be set. The yaml names are the keys of the file.
type Config struct {
	// Listen is the TCP address; "" = no TCP, port 0 = a free port.
	Listen string `yaml:"listen"`
	// Hosts are names by which clients may call the server, beside loopback ones.
	Hosts []string `yaml:"hosts"`
	// Registries are places of packages, by their URLs, that sandboxes with the network
	// default may read from, beside those that this host's package managers name.
	Registries []string `yaml:"registries"`
	// HostRegistries: this host's package managers are asked, at each start and once a
	// day, where they fetch from. false = they are not, nor is anything on the network.
	HostRegistries bool `yaml:"host_registries"`
	// Origin is scheme://host[:port] under which browsers know the server;
	// "" = http://localhost and the port of Listen.
	Origin  string  `yaml:"origin"`
	Preview Preview `yaml:"preview"`
	OIDC    OIDC    `yaml:"oidc"`
	Secrets Secrets `yaml:"secrets"`
	// Providers that may be used; auto takes the strongest that works.
	Providers []string `yaml:"providers"`
	// UnsafeNoIsolation allows the provider process, which isolates nothing.
	UnsafeNoIsolation bool `yaml:"unsafe_no_isolation"`
	// Guest is the path of a guest program to use instead of the embedded one.
	Guest string `yaml:"guest"`
	// Volumes is the directory of the workspaces' images; "" = volumes in the data
	// directory.
	Volumes string `yaml:"volumes"`
	// ReserveMB is kept free on each disk that the server writes to; 0 = a
	// twentieth of it, 128 to 4096.
	ReserveMB int `yaml:"reserve_mb"`
	// Creates is how many machines boot at once; 0 = the number of cores.
	Creates   int       `yaml:"creates"`
	History   History   `yaml:"history"`
	Log       Log       `yaml:"log"`
	Store     Store     `yaml:"store"`
	Limits    Limits    `yaml:"limits"`
	Defaults  Defaults  `yaml:"defaults"`
	Templates Templates `yaml:"templates"`
	Agents    Agents    `yaml:"agents"`
	Tools     Tools     `yaml:"tools"`
	MCP       MCP       `yaml:"mcp"`
	Workflows Workflows `yaml:"workflows"`
	Plugins   Plugins   `yaml:"plugins"`
	// What providers need to know; "" = what is found.
	Kernel      Kernel      `yaml:"kernel"`
	QEMU        QEMU        `yaml:"qemu"`
	Firecracker Firecracker `yaml:"firecracker"`
	Docker      Docker      `yaml:"docker"`
	Remote      Remote      `yaml:"remote"`
	Runloop     Runloop     `yaml:"runloop"`
	// Pool lists the machines that are kept warm. PoolDemand is how many of a
	// kind that is not listed may be: one for ten minutes after a create, more
	// when it is created often; 0 = none.
	Pool       []Pool `yaml:"pool"`
	PoolDemand int    `yaml:"pool_demand"`
	// PoolRefill is how they are made: boot, snapshot, or "" = what is faster.
	PoolRefill string `yaml:"pool_refill"`
	// Model is the one that agents use unless they say otherwise: a name of
	// Models, or vendor/id; "" = what can be reached.
	Model  string          `yaml:"model"`
	Models []catalog.Entry `yaml:"models"`
}

// Catalog returns what is said about models.
func (c *Config) Catalog() catalog.Config { return catalog.Config{Model: c.Model, Models: c.Models} }

// History says when revisions of a sandbox's files are made.
type History struct {
	// Steps: before and after each call from outside of an agent's run that may
	// change files. false = once such calls have been quiet for a moment.
	Steps bool `yaml:"steps"`
}

// Preview says where ports of sandboxes are shown to browsers.
type Preview struct {
	// Domain: previews are at <port>-<id>.preview.<domain>; "" = localhost. It
	// should not share its registrable domain with Origin.
	Domain string `yaml:"domain"`
	// Ports that may be shown where a sandbox's metadata says nothing:
	// 5173,8000-8010, or none; "" = every one.
	Ports string `yaml:"ports"`
}

// OIDC says by which identity provider people log in; without Issuer, by none.
type OIDC struct {
	Issuer string `yaml:"issuer"` // https://…
	Name   string `yaml:"name"`   // for people; "" = the issuer's host
	Client string `yaml:"client"` // the client's id there
	// SecretFile holds the client's secret; "" = it has none, PKCE protects alone.
	SecretFile string `yaml:"secret_file"`
	// Tenant is that of all users; with TenantClaim, a claim's value is the tenant.
	Tenant      string `yaml:"tenant"`
	TenantClaim string `yaml:"tenant_claim"`
	// RolesClaim is a text or a list of texts; Roles says what each of its values
	// may do: "admins=admin", "people=read+write". Other users may not log in.
	RolesClaim string   `yaml:"roles_claim"`
	Roles      []string `yaml:"roles"`
}

// Secrets says by which key the secrets of sandboxes are sealed.
type Secrets struct {
	// KeyCommand is a program and its arguments that prints the key; empty = it is in
	// secret.key in the data directory.
	KeyCommand []string `yaml:"key_command"`
}

// Agents says how agents run.
type Agents struct {
	Dir  string `yaml:"dir"`  // of their files; "" = agents in the data directory
	Runs int    `yaml:"runs"` // that are driven at once; 0 = 64
	// Skills are folders whose skills all agents of all tenants have.
	Skills []string `yaml:"skills"`
	// Program is what works in sandboxes of runs --in-sandbox; "" = the one inside skete.
	Program string `yaml:"program"`
	// Retain is how long a thread is kept after its last event; 0 = for ever.
	Retain Duration `yaml:"retain"`
}

// Tools says where the operator's own tools are.
type Tools struct {
	Dir string `yaml:"dir"` // of their manifests; "" = tools in the data directory
}

// MCP says which MCP servers agents may use.
type MCP struct {
	Servers map[string]mcpclient.Server `yaml:"servers"` // by their names
}

// Workflows says where workflows are.
type Workflows struct {
	Dir string `yaml:"dir"` // of files that all tenants can run by name; "" = workflows in the data directory
}

// Plugins says where plug-ins are.
type Plugins struct {
	Dir    string `yaml:"dir"`    // of their folders; "" = plugins in the data directory
	Tenant string `yaml:"tenant"` // whose their sandboxes are; "" = default
}

// Kernel is the operator's own for machines that have one, both or none of its
// files; "" = the distribution's.
type Kernel struct {
	Vmlinux string `yaml:"vmlinux"`
	Modules string `yaml:"modules"` // a directory
}

// QEMU says how machines of the provider qemu are run.
type QEMU struct {
	Program string `yaml:"program"` // "" = qemu-system-x86_64 in PATH
	Accel   string `yaml:"accel"`   // auto, kvm or tcg; "" = auto
}

// Firecracker says how machines of the provider firecracker are run.
type Firecracker struct {
	Program string `yaml:"program"` // "" = firecracker in PATH, or $SKETE_FIRECRACKER
	Jailer  string `yaml:"jailer"`  // "" = beside the program
}

// Docker says which engine the provider docker uses.
type Docker struct {
	Host string `yaml:"host"` // unix:///path; "" = DOCKER_HOST, or the usual places
}

// Remote says where the machines of the provider remote are made.
type Remote struct {
	URL string `yaml:"url"` // of a service's API that E2B's SDKs could use: https://skete.example/e2b
	// SandboxURL is one address for all that goes to machines; "" = each has a name
	// of its own beneath Domain, or beneath what the service names.
	SandboxURL string `yaml:"sandbox_url"`
	Domain     string `yaml:"domain"`
	Template   string `yaml:"template"` // the service's, for every machine; "" = base
	// KeyFile holds the service's key, or KeyCommand is a program and its arguments
	// that prints it.
	KeyFile    string   `yaml:"key_file"`
	KeyCommand []string `yaml:"key_command"`
	// Timeout is after which time without us the service ends a machine, and so for
	// how long it may be silent before its machines are lost; 0 = 15m.
	Timeout Duration `yaml:"timeout"`
}

// Runloop says how the provider runloop has machines made, by Runloop's API.
type Runloop struct {
	URL        string   `yaml:"url"`         // "" = https://api.runloop.ai
	Blueprint  string   `yaml:"blueprint"`   // the service's, for every machine; "" = its default
	KeyFile    string   `yaml:"key_file"`    // as remote's
	KeyCommand []string `yaml:"key_command"` // as remote's
	Timeout    Duration `yaml:"timeout"`     // as remote's
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Store says where state is kept.
type Store struct {
	URL          string   `yaml:"url"`              // of an external NATS; "" = embedded
	SyncInterval Duration `yaml:"sync_interval"`    // 0 = every write before it is acknowledged
	BytesMax     int64    `yaml:"bytes_max"`        // of the embedded store
	MemoryMax    int64    `yaml:"memory_bytes_max"` // soft limit of the whole process
	Replicas     int      `yaml:"replicas"`
}

// Limits bound what may be asked for; 0 = the built-in value.
type Limits struct {
	CPUs           float64  `yaml:"cpus"`
	MemoryMB       int      `yaml:"memory_mb"`
	DiskMB         int      `yaml:"disk_mb"`
	Pids           int      `yaml:"pids"`
	TTL            Duration `yaml:"ttl"`
	IdleTimeout    Duration `yaml:"idle_timeout"`
	Sandboxes      int      `yaml:"sandboxes"` // per tenant, as are the next four
	Snapshots      int      `yaml:"snapshots"`
	TenantDiskMB   int      `yaml:"tenant_disk_mb"` // promised, and really held
	TenantCPUs     float64  `yaml:"tenant_cpus"`
	TenantMemoryMB int      `yaml:"tenant_memory_mb"`
}

// Defaults fill what a request leaves open; 0 = the built-in value.
type Defaults struct {
	Template    string   `yaml:"template"`
	Provider    string   `yaml:"provider"`
	Network     string   `yaml:"network"` // where the provider gives machines a network
	CPUs        float64  `yaml:"cpus"`
	MemoryMB    int      `yaml:"memory_mb"`
	DiskMB      int      `yaml:"disk_mb"`
	Pids        int      `yaml:"pids"`
	TTL         Duration `yaml:"ttl"`
	IdleTimeout Duration `yaml:"idle_timeout"`
	// PausedTimeout is how long a sandbox that idleness has paused is kept in
	// memory before it is stopped.
	PausedTimeout Duration `yaml:"paused_timeout"`
}

// Templates says where packages of ready templates and of builds come from.
type Templates struct {
	Mirror   string `yaml:"mirror"`   // of Debian; "" = as the host's apt, else the distribution's
	Security string `yaml:"security"` // of its security updates, with mirror
	Suite    string `yaml:"suite"`    // "" = the host's, else Debian 12
}

// Builtin returns the settings of a server without a configuration.
func Builtin() Config {
	return Config{
		Listen:         DefaultListen,
		Providers:      []string{"firecracker", "qemu", "gvisor"},
		History:        History{Steps: true},
		PoolDemand:     1,
		HostRegistries: true,
		Defaults:       Defaults{Network: egress.Default},
		Log:            Log{Level: "info", Format: "text"},
	}
}

// Source says where settings come from.
type Source struct {
	File string   // "" = none
	Env  []string // as os.Environ gives it
	Set  []string // key=value, from flags
	Pool []string // as ParsePool takes them, from flags; together with the file's
	// Listen takes the place of DefaultListen where nothing else is said; nil = it stays.
	Listen *string
}

// Load reads and checks all settings.
func Load(s Source) (Config, error) {
	c := Builtin()
	if s.Listen != nil {
		c.Listen = *s.Listen
	}
	if s.File != "" {
		if err := readFile(&c, s.File); err != nil {
			return Config{}, err
		}
	}
	fields := flatten(&c)
	if err := setEnv(fields, s.Env); err != nil {
		return Config{}, err
	}
	if err := setPairs(fields, s.Set); err != nil {
		return Config{}, err
	}
	for _, text := range s.Pool {
		p, err := parsePool(text)
		if err != nil {
			return Config{}, err
		}
		c.Pool = append(c.Pool, p)
	}
	return c, c.check()
}

var known = []string{"firecracker", "qemu", "gvisor", "docker", "process", "remote", "runloop"}

func (c *Config) check() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, errs.New(errs.Invalid, format, args...))
	}
	if c.Listen != "" {
		if _, port, err := net.SplitHostPort(c.Listen); err != nil || !validPort(port) {
			bad("listen: %q is not host:port", c.Listen)
		}
	}
	if len(c.Providers) == 0 && !c.UnsafeNoIsolation {
		bad("providers: the list is empty; known are %s", strings.Join(known, ", "))
	}
	for _, p := range c.Providers {
		if !slices.Contains(known, p) {
			bad("providers: there is no provider %q; known are %s", p, strings.Join(known, ", "))
		}
		if p == "remote" && (c.Remote.URL == "" || (c.Remote.KeyFile == "") == (len(c.Remote.KeyCommand) == 0)) {
			bad("providers: remote needs remote.url, and either remote.key_file or remote.key_command")
		}
		if p == "process" && !c.UnsafeNoIsolation {
			bad("providers: process isolates nothing and needs unsafe_no_isolation")
		}
	}
	if !slices.Contains(append([]string{""}, egress.Profiles...), c.Defaults.Network) {
		bad("defaults.network: %.40q is none of %s", c.Defaults.Network, strings.Join(egress.Profiles, ", "))
	}
	for i, u := range c.Registries {
		if _, err := registry.Of(u); err != nil {
			bad("registries[%d]: %s", i, errs.Public(err))
		}
	}
	if !slices.Contains([]string{"", "auto", "kvm", "tcg"}, c.QEMU.Accel) {
		bad("qemu.accel: %q is none of auto, kvm, tcg", c.QEMU.Accel)
	}
	for _, folder := range c.Agents.Skills {
		if !filepath.IsAbs(folder) {
			bad("agents.skills: %q is no absolute path", folder)
		}
	}
	for _, problem := range mcpclient.Check(c.MCP.Servers) {
		bad("mcp.servers.%s", problem)
	}
	if k := c.Secrets.KeyCommand; len(k) > 0 && k[0] == "" {
		bad("secrets.key_command: it has no program")
	}
	if slices.Contains(c.Providers, "runloop") && (c.Runloop.KeyFile == "") == (len(c.Runloop.KeyCommand) == 0) {
		bad("providers: runloop needs either runloop.key_file or runloop.key_command")
	}
	for name, k := range map[string][]string{"remote": c.Remote.KeyCommand, "runloop": c.Runloop.KeyCommand} {
		if len(k) > 0 && k[0] == "" {
			bad("%s.key_command: it has no program", name)
		}
	}
	if (c.Kernel.Vmlinux == "") != (c.Kernel.Modules == "") {
		bad("kernel: vmlinux and modules belong together")
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad("log.level: %q is none of debug, info, warn, error", c.Log.Level)
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		bad("log.format: %q is neither text nor json", c.Log.Format)
	}
	if !slices.Contains([]string{"", "boot", "snapshot"}, c.PoolRefill) {
		bad("pool_refill: %.40q is none of boot, snapshot", c.PoolRefill)
	}
	if len(c.Pool) > poolsMax {
		bad("pool: more than %d kinds", poolsMax)
	}
	for i, p := range c.Pool {
		if err := p.check(fmt.Sprintf("pool[%d]", i)); err != nil {
			bad("%s", errs.Public(err))
		}
	}
	if err := c.Catalog().Validate(); err != nil {
		bad("models: %v", errs.Public(err))
	}
	for _, f := range flatten(c) {
		if f.negative() {
			bad("%s: %s is negative", f.key, f.text())
		}
	}
	if err := errors.Join(problems...); err != nil {
		return errs.Wrap(errs.Invalid, nil, "the configuration is wrong: %s", join(problems)).
			WithHint("`skete help configuration` describes every key")
	}
	return nil
}

func join(problems []error) string {
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Error())
	}
	return strings.Join(texts, "; ")
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n <= 65535
}

// Duration is written as 90s, 5m or 1h30m; a bare number counts seconds.
type Duration time.Duration

// ParseDuration reads a Duration.
func ParseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if !(n >= 0 && n <= 10*365*24*3600) { // NaN is neither
			return 0, fmt.Errorf("%q is not between 0 and ten years", s)
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%.40q is not a duration: write 90s, 5m or 1h30m", s)
	}
	return d, nil
}

// UnmarshalYAML reads a scalar.
func (d *Duration) UnmarshalYAML(b []byte) error {
	v, err := ParseDuration(strings.Trim(strings.TrimSpace(string(b)), `"'`))
	*d = Duration(v)
	return err
}

// FileIn returns the configuration file to use: the named one, else
// skete.yaml in the data directory if there is one.
func FileIn(named, home string) string {
	if named != "" {
		return named
	}
	path := filepath.Join(home, "skete.yaml")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
