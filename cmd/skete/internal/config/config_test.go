package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skete.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_laterSourcesWin(t *testing.T) {
	path := write(t, `# a comment
listen: ""
hosts: [box.example, other.example]
log:
  level: debug
limits:
  memory_mb: 4096
  ttl: 2h
  cpus: 1.5
  snapshots: 7
defaults: {ttl: 90, provider: gvisor, paused_timeout: 20m}
`)
	got, err := Load(Source{
		File: path,
		Env:  []string{"PATH=/bin", "SKETE_LIMITS_MEMORY_MB=1024", "SKETE_LISTEN=127.0.0.1:0", "SKETE_HOME=/x", "SKETE_VM=sbx"},
		Set:  []string{"limits.memory_mb=512", "unsafe_no_isolation=true", "providers=gvisor,process"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Builtin()
	want.Listen = "127.0.0.1:0"
	want.Hosts = []string{"box.example", "other.example"}
	want.Log.Level = "debug"
	want.Limits = Limits{MemoryMB: 512, TTL: Duration(2 * time.Hour), CPUs: 1.5, Snapshots: 7}
	want.Defaults = Defaults{TTL: Duration(90 * time.Second), Provider: "gvisor", Network: "default", PausedTimeout: Duration(20 * time.Minute)}
	want.UnsafeNoIsolation = true
	want.Providers = []string{"gvisor", "process"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_refuses(t *testing.T) {
	tests := []struct {
		name, file string
		env, set   []string
		pool       string
		want       string // part of the message
	}{
		{name: "unknown key", file: "listen: ''\nlisten_on: x\n", want: `skete.yaml:2:1: unknown field "listen_on"`},
		{name: "unknown nested key", file: "limits:\n  memory: 5\n", want: `skete.yaml:2:3: unknown field "memory"`},
		{name: "key twice", file: "listen: ''\nlisten: ''\n", want: "skete.yaml:2:1: mapping key \"listen\" already defined"},
		{name: "wrong kind", file: "limits:\n  sandboxes: many\n", want: "skete.yaml:2:14:"},
		{name: "list in place of a map", file: "limits: [1]\n", want: "skete.yaml:1:9:"},
		{name: "no YAML", file: "a: [b\n", want: "skete.yaml:1:"},
		{name: "a tab", file: "log:\n\tlevel: info\n", want: "skete.yaml:2:"},
		{name: "bad duration", file: "limits:\n  ttl: soon\n", want: `"soon" is not a duration`},
		{name: "alias", file: "hosts: &a [x]\nproviders: *a\n", want: "anchors and aliases"},
		{name: "second document", file: "listen: ''\n---\nlisten: 'x'\n", want: "second document"},
		{name: "negative", file: "limits: {pids: -1}\n", want: "limits.pids: -1 is negative"},
		{name: "negative snapshots", env: []string{"SKETE_LIMITS_SNAPSHOTS=-1"}, want: "limits.snapshots: -1 is negative"},
		{name: "snapshots that are no number", file: "limits: {snapshots: [1]}\n", want: "skete.yaml:1:"},
		{name: "snapshots twice", file: "limits: {snapshots: 1, snapshots: 2}\n", want: "already defined"},
		{name: "negative paused timeout", set: []string{"defaults.paused_timeout=-1s"}, want: `"-1s" is not a duration`},
		{name: "paused timeout of centuries", file: "defaults: {paused_timeout: 1e12}\n", want: "ten years"},
		{name: "paused timeout of a limit", set: []string{"limits.paused_timeout=5m"}, want: `no key "limits.paused_timeout"`},
		{name: "bad address", set: []string{"listen=7733"}, want: `listen: "7733" is not host:port`},
		{name: "bad port", set: []string{"listen=127.0.0.1:99999"}, want: "is not host:port"},
		{name: "unknown provider", set: []string{"providers=lxc"}, want: `no provider "lxc"`},
		{name: "no provider", set: []string{"providers="}, want: "the list is empty"},
		{name: "process without the word", set: []string{"providers=process"}, want: "isolates nothing"},
		{name: "pool without a size", file: "pool: [{template: x}]\n", want: "pool[0]: say a size"},
		{name: "pool with an unknown key", file: "pool: [{siz: 1}]\n", want: `unknown field "siz"`},
		{name: "pool_refill that is none", file: "pool_refill: clone\n", want: `pool_refill: "clone" is none of`},
		{name: "huge pool", pool: "1001", want: "0 to 1000"},
		{name: "--pool with an unknown key", pool: "size=1,memory=5", want: `no key "memory"`},
		{name: "--pool with a bad number", pool: "x", want: `"x" is not a int`},
		{name: "bad level", set: []string{"log.level=loud"}, want: "log.level"},
		{name: "bad format", set: []string{"log.format=xml"}, want: "log.format"},
		{name: "unknown --set", set: []string{"limits.memory=5"}, want: `no key "limits.memory"`},
		{name: "--set without value", set: []string{"listen"}, want: "write key=value"},
		{name: "bad number in the environment", env: []string{"SKETE_LIMITS_PIDS=x"}, want: `SKETE_LIMITS_PIDS: "x" is not a int`},
		{name: "unknown variable", env: []string{"SKETE_LIMITS_MEMROY_MB=5"}, want: "SKETE_LIMITS_MEMROY_MB"},
		{name: "unknown variable of the secrets", env: []string{"SKETE_SECRETS_KEY_COMAND=vault"}, want: "SKETE_SECRETS_KEY_COMAND"},
		{name: "an unknown key of an MCP server", file: "mcp: {servers: {a: {comand: x}}}\n", want: "skete.yaml:1:"},
		{name: "an MCP server without a command", file: "mcp: {servers: {a: {}}}\n", want: "mcp.servers.a: it needs either command or url"},
		{name: "a secret for a program in the sandbox", file: "mcp: {servers: {a: {command: x, secrets: [b]}}}\n", want: "mcp.servers.a: transport, headers and secrets are for a url"},
		{name: "a line in place of a command", file: "secrets: {key_command: vault read}\n", want: "skete.yaml:1:"},
		{name: "a service without an address", file: "providers: [gvisor, remote]\nremote: {key_file: x}\n", want: "remote needs remote.url"},
		{name: "a service with two keys", file: "providers: [remote]\nremote: {url: 'https://x', key_file: x, key_command: [x]}\n", want: "either remote.key_file or remote.key_command"},
		{name: "a service without a key", file: "providers: [remote]\nremote: {url: 'https://x'}\n", want: "either remote.key_file or remote.key_command"},
		{name: "runloop without a key", file: "providers: [runloop]\n", want: "either runloop.key_file or runloop.key_command"},
		{name: "runloop's command without a program", file: "runloop: {key_command: ['']}\n", want: "runloop.key_command: it has no program"},
		{name: "unknown variable of the service", env: []string{"SKETE_REMOTE_KEY=secret"}, want: "SKETE_REMOTE_KEY"},
		{name: "a command without a program", file: "secrets: {key_command: ['', x]}\n", want: "secrets.key_command: it has no program"},
		{name: "a relative folder of skills", file: "agents: {skills: [x]}\n", want: "agents.skills: \"x\" is no absolute path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Source{Env: tt.env, Set: tt.set}
			if tt.pool != "" {
				s.Pool = []string{tt.pool}
			}
			if tt.file != "" {
				s.File = write(t, tt.file)
			}
			_, err := Load(s)
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), tt.want) {
				t.Errorf("got %q of class %s, want %q", errs.Public(err), errs.Of(err), tt.want)
			}
			if tt.file != "" && strings.Contains(errs.Public(err), os.TempDir()) {
				t.Errorf("a path of this machine in %q", errs.Public(err))
			}
		})
	}
}

func TestLoad_pool(t *testing.T) {
	c, err := Load(Source{
		File: write(t, "pool: [{template: debian, cpus: 0.5, size: 2, max: 8}]\npool_demand: 3\n"),
		Pool: []string{"5", "language=python, provider=qemu, memory_mb=256,size=1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{{Template: "debian", CPUs: 0.5, Size: 2, Max: 8}, {Size: 5}, {Language: "python", Provider: "qemu", MemoryMB: 256, Size: 1}}
	if diff := cmp.Diff(want, c.Pool); diff != "" || c.PoolDemand != 3 {
		t.Error(diff, c.PoolDemand)
	}
}

func FuzzParsePool(f *testing.F) {
	f.Add("size=5,template=debian")
	f.Add("5")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePool(s); err == nil && (p.Size < 0 || p.Size > 1000 || p.CPUs < 0) {
			t.Errorf("%q: %+v", s, p)
		}
	})
}

func TestLoad_emptyFileIsFine(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n"} {
		got, err := Load(Source{File: write(t, text)})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(Builtin(), got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"30": 30 * time.Second, "1.5": 1500 * time.Millisecond, "5m": 5 * time.Minute, "0": 0, "1h30m": 90 * time.Minute} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-1", "-5m", "5 m", "NaN", "Inf", "1e300", "soon"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q = %v", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("listen: ''\nlimits: {ttl: 5m, cpus: 2}\nhosts: [a]\n"))
	f.Add([]byte("log:\n  level: info\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Builtin()
		if err := parse(&c, "skete.yaml", data); err != nil && !errs.Is(err, errs.Invalid) {
			t.Fatalf("%q: %v", data, err)
		}
	})
}

// TestDocument: the page about the configuration shows every key with its
// built-in value, and can be used as a file.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	got, err := Load(Source{File: write(t, example)})
	if err != nil {
		t.Fatal(err)
	}
	want := Builtin()
	want.Hosts, want.Registries, want.Pool, want.OIDC.Roles, want.Secrets.KeyCommand = []string{}, []string{}, []Pool{}, []string{}, []string{}
	want.Remote.KeyCommand, want.Runloop.KeyCommand, want.Agents.Skills = []string{}, []string{}, []string{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the example is not the built-in configuration:\n%s", diff)
	}
	for _, key := range Keys() {
		last := key[strings.LastIndex(key, ".")+1:]
		if !strings.Contains(example, last+":") {
			t.Errorf("%s is not described", key)
		}
	}
}
