package client

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/internal/pattern"
)

// Server is one of the configuration: a program in the sandbox, or a URL.
type Server struct {
	// Command is a program of the sandbox, looked up there.
	Command string            `yaml:"command"`
	Args    []string          `yaml:"args"`
	Env     map[string]string `yaml:"env"` // can be read in the sandbox: no secrets
	// URL is where a server elsewhere speaks HTTP, by Transport: http (streamable, the
	// default) or sse (the older one).
	URL       string            `yaml:"url"`
	Transport string            `yaml:"transport"`
	Headers   map[string]string `yaml:"headers"`
	// Secrets of the tenant that are sent to it, as their grants say.
	Secrets []string `yaml:"secrets"`
	// Agents and Tenants that may use it, Tools of it that there are: names or globs; empty
	// = all.
	Agents  []string `yaml:"agents"`
	Tenants []string `yaml:"tenants"`
	Tools   []string `yaml:"tools"`
	// Timeout is that of one call, in seconds; 0 = 60.
	TimeoutS int `yaml:"timeout_s"`
	// Approval: always and never ask a person before a call, unless a rule speaks of the
	// tool. "" = a program in the sandbox asks no more than a command does; a URL asks,
	// except for what a trusted server says only reads.
	Approval string `yaml:"approval"`
	// Trust: what the server says about its tools (that one only reads) is believed.
	Trust bool `yaml:"trust"`
}

// Bounds of a configuration.
const (
	serversMax    = 100
	wordsMax      = 100  // of one list
	wordBytesMax  = 4096 // of one value
	timeoutMax    = time.Hour
	timeoutUsual  = time.Minute
	nameBytesMax  = 32 // of a server
	approveAlways = "always"
	approveNever  = "never"
	overHTTP      = "http"
	overSSE       = "sse"
	overPipes     = "stdio"
)

var (
	serverName = pattern.Lazy(`^[a-z0-9]+([_-][a-z0-9]+)*$`)
	envName    = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName = pattern.Lazy("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// Check says what is wrong with the servers of a configuration, each by its name.
func Check(servers map[string]Server) (problems []string) {
	if len(servers) > serversMax {
		return []string{fmt.Sprintf("at most %d servers", serversMax)}
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		bad := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%.40s: ", name)+fmt.Sprintf(format, args...))
		}
		if len(name) > nameBytesMax || !serverName().MatchString(name) {
			bad("a name is 1 to %d of a-z and 0-9, with single - and _ between", nameBytesMax)
		}
		servers[name].check(bad)
	}
	return problems
}

func (s Server) check(bad func(string, ...any)) {
	switch {
	case (s.Command == "") == (s.URL == ""):
		bad("it needs either command or url")
	case s.Command != "" && (s.Transport != "" || len(s.Headers) > 0 || len(s.Secrets) > 0):
		bad("transport, headers and secrets are for a url: what a program in the sandbox knows, the agent can read")
	case s.URL != "" && (len(s.Args) > 0 || len(s.Env) > 0):
		bad("args and env are for a command")
	}
	if s.URL != "" {
		if err := outbound.CheckURL(s.URL); err != nil {
			bad("url: %v", err)
		}
	}
	if !slices.Contains([]string{"", overHTTP, overSSE}, s.Transport) {
		bad("transport: %.40q is neither http nor sse", s.Transport)
	}
	if !slices.Contains([]string{"", approveAlways, approveNever}, s.Approval) {
		bad("approval: %.40q is neither always nor never", s.Approval)
	}
	if s.TimeoutS < 0 || time.Duration(s.TimeoutS)*time.Second > timeoutMax {
		bad("timeout_s: 0 to %d", int(timeoutMax.Seconds()))
	}
	s.checkWords(bad)
}

func (s Server) checkWords(bad func(string, ...any)) {
	for key, list := range map[string][]string{"args": append([]string{s.Command}, s.Args...), "secrets": s.Secrets, "agents": s.Agents, "tenants": s.Tenants, "tools": s.Tools} {
		if len(list) > wordsMax+1 || slices.ContainsFunc(list, badWord) {
			bad("%s: at most %d values of at most %d bytes", key, wordsMax, wordBytesMax)
		}
	}
	for _, glob := range slices.Concat(s.Agents, s.Tenants, s.Tools) {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			bad("%.40q is no name and no glob", glob)
		}
	}
	if len(s.Env) > wordsMax || len(s.Headers) > wordsMax {
		bad("env and headers: at most %d values", wordsMax)
	}
	for k, v := range s.Env {
		if !envName().MatchString(k) || badWord(v) {
			bad("env: %.40q cannot be set", k)
		}
	}
	for k, v := range s.Headers {
		if !headerName().MatchString(k) || badWord(v) || strings.ContainsAny(v, "\r\n") || reserved[http.CanonicalHeaderKey(k)] {
			bad("headers: %.40q cannot be set", k)
		}
	}
}

// reserved are headers that the protocol uses itself.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Accept": true, "Connection": true, "Transfer-Encoding": true,
	"Mcp-Session-Id": true, "Mcp-Protocol-Version": true, "Last-Event-Id": true,
}

func badWord(s string) bool { return len(s) > wordBytesMax || strings.ContainsRune(s, 0) }

// mayUse reports whether the tools of a server are for a tenant's agent; "" = any one.
func (s Server) mayUse(tenant, agent string) bool {
	return (tenant == "" || oneOf(s.Tenants, tenant)) && (agent == "" || oneOf(s.Agents, agent))
}

// oneOf reports whether a name matches one of the globs; none match all.
func oneOf(globs []string, name string) bool {
	return len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// transport names the way to a server.
func (s Server) transport() string {
	if s.Command != "" {
		return overPipes
	}
	return cmp.Or(s.Transport, overHTTP)
}

func (s Server) timeout() time.Duration {
	if s.TimeoutS == 0 {
		return timeoutUsual
	}
	return time.Duration(s.TimeoutS) * time.Second
}
