package declared

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds of a manifest.
const (
	FileBytesMax     = yamlfile.BytesMax
	nameMax          = 64
	descriptionMax   = 4096
	commandBytesMax  = 16 << 10
	argvMax          = 256
	listMax          = 64 // agents, files, artifacts, variables
	scopeMax         = 64
	timeoutDefault   = 2 * time.Minute
	timeoutMax       = time.Hour
	keepUsual        = 24 * time.Hour
	keepMin          = time.Minute
	keepMax          = 30 * 24 * time.Hour
	callsMax         = 100_000
	perMax           = 24 * time.Hour
	resultBytesMax   = 200 << 10
	resultBytesUsual = 100 << 10
)

// Manifest declares a tool.
type Manifest struct {
	Name        string         `yaml:"name" json:"name"`
	Description string         `yaml:"description" json:"description"`
	Input       map[string]any `yaml:"input" json:"input,omitempty"`   // JSON Schema of the arguments, an object
	Output      map[string]any `yaml:"output" json:"output,omitempty"` // JSON Schema of what the command writes; nil = any text
	// Command is a line for the shell, or a program with its arguments. Arguments of a call
	// are never a part of it.
	Command any `yaml:"command" json:"command,omitempty"`
	// HTTP is a request that the host makes, in place of a command.
	HTTP   *HTTP  `yaml:"http" json:"http,omitempty"`
	Effect string `yaml:"effect" json:"effect,omitempty"` // read, keyed, once; "" = keyed, of a request read or once by its method
	// RequiresSandbox may be said, and may not be false: commands never run on the host.
	RequiresSandbox *bool   `yaml:"requires_sandbox" json:"requires_sandbox,omitempty"`
	Sandbox         Sandbox `yaml:"sandbox" json:"sandbox,omitzero"`
	// Agents may have it; none = all.
	Agents   []string `yaml:"agents" json:"agents,omitempty"`
	Approval string   `yaml:"approval" json:"approval,omitempty"` // ask, allow; "" = allow
	Rate     Rate     `yaml:"rate" json:"rate,omitzero"`
	Result   Result   `yaml:"result" json:"result,omitzero"`
	// Files are arguments that are paths, or lists of paths, of the run's sandbox: what is
	// there is copied into the tool's own sandbox.
	Files []string `yaml:"files" json:"files,omitempty"`
	// Artifacts are globs of files beneath the working directory that a call hands back.
	Artifacts []string `yaml:"artifacts" json:"artifacts,omitempty"`
}

// Sandbox says where the command runs.
type Sandbox struct {
	// Scope names a sandbox of the tool's own: calls for which it is the same text share it.
	// {call}, {run}, {thread}, {user} and {tenant} stand for what they say. "" = the run's.
	Scope    string            `yaml:"scope" json:"scope,omitempty"`
	Template string            `yaml:"template" json:"template,omitempty"`
	Language string            `yaml:"language" json:"language,omitempty"`
	CPUs     float64           `yaml:"cpus" json:"cpus,omitempty"`
	MemoryMB int               `yaml:"memory_mb" json:"memory_mb,omitempty"`
	DiskMB   int               `yaml:"disk_mb" json:"disk_mb,omitempty"`
	Network  string            `yaml:"network" json:"network,omitempty"` // a profile of package egress; "" = none
	Env      map[string]string `yaml:"env" json:"env,omitempty"`
	Timeout  time.Duration     `yaml:"timeout" json:"timeout,omitempty"` // of a call; 0 = 2 min
	// Keep is after what time without a call a sandbox is removed that outlives runs; 0 = a day.
	Keep time.Duration `yaml:"keep" json:"keep,omitempty"`
}

// Rate bounds the calls of a tenant.
type Rate struct {
	Calls int           `yaml:"calls" json:"calls,omitempty"`
	Per   time.Duration `yaml:"per" json:"per,omitempty"`
}

// Result bounds what a model is shown.
type Result struct {
	BytesMax int `yaml:"bytes_max" json:"bytes_max,omitempty"` // 0 = 102,400
}

// Parse reads a manifest. file is its path, after which the tool is called unless it has a
// name: that of the file, or of the folder of a tool.yaml. The error is Invalid and lists all
// mistakes with file:line:column, one a line.
func Parse(file string, data []byte) (Manifest, error) {
	var m Manifest
	problems := yamlfile.NewProblems(file)
	at := problems.Decode(data, FileBytesMax, &m)
	if err := problems.Err(); err != nil {
		return Manifest{}, err
	}
	if m.Name == "" {
		m.Name = nameOf(file)
	}
	c := checker{m: &m, fail: func(key, format string, args ...any) { problems.AddTo(key, at.Of(key), key+": "+format, args...) }}
	c.manifest()
	if err := problems.Err(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// manifestFile is the manifest in the folder of a tool.
const manifestFile = "tool.yaml"

func nameOf(file string) string {
	base := path.Base(file)
	if base == manifestFile {
		base = path.Base(path.Dir(file))
	}
	return strings.TrimSuffix(base, path.Ext(base))
}

// checker looks for what is wrong with a manifest that could be read.
type checker struct {
	m    *Manifest
	fail func(key, format string, args ...any)
}

func (c checker) manifest() {
	c.identity()
	if c.m.HTTP == nil {
		c.command()
	} else if c.m.Command != nil {
		c.fail("command", "a tool has a command or http, not both")
	}
	c.http()
	c.schemas()
	c.choices()
	c.sandbox()
	c.lists()
}

func (c checker) identity() {
	if n := c.m.Name; !isName(n) {
		c.fail("name", "%.80q is no name; use 1 to %d of a-z, 0-9, _ and -, the first one a letter", n, nameMax)
	}
	if d := c.m.Description; strings.TrimSpace(d) == "" || len(d) > descriptionMax {
		c.fail("description", "a tool needs one, of at most %d characters: the model chooses by it", descriptionMax)
	}
}

func isName(s string) bool {
	return s != "" && len(s) <= nameMax && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func (c checker) command() {
	line, err := c.m.line()
	switch {
	case err != nil:
		c.fail("command", "%v", err)
	case strings.TrimSpace(line) == "":
		c.fail("command", "a tool needs a command: a line for the shell, or a list of a program and its arguments; or http")
	case len(line) > commandBytesMax || strings.ContainsRune(line, 0):
		c.fail("command", "at most %d bytes, none of them NUL", commandBytesMax)
	}
	if r := c.m.RequiresSandbox; r != nil && !*r {
		c.fail("requires_sandbox", "commands never run on the host; leave it out, or say true")
	}
}

// line is the command as a line for the shell.
func (m Manifest) line() (string, error) {
	switch command := m.Command.(type) {
	case nil:
		return "", nil
	case string:
		return command, nil
	case []any:
		if len(command) > argvMax {
			return "", fmt.Errorf("at most %d arguments", argvMax)
		}
		words := make([]string, len(command))
		for i, w := range command {
			word, ok := w.(string)
			if !ok {
				return "", fmt.Errorf("argument %d is no text; put it in quotes", i)
			}
			words[i] = quoted(word)
		}
		return strings.Join(words, " "), nil
	}
	return "", fmt.Errorf("a line for the shell, or a list of a program and its arguments")
}

// quoted is a word for the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (c checker) schemas() {
	if t, said := c.m.Input["type"]; said && t != "object" {
		c.fail("input", "the arguments of a tool are an object: `type: object`")
		return
	}
	if _, err := tool.Check(shape{c.m.spec()}); err != nil {
		c.fail("input", "%s", errs.Public(err))
	}
	if c.m.Output == nil {
		return
	}
	if _, err := compile(c.m.Output); err != nil {
		c.fail("output", "it is no JSON Schema that can be used: %v", err)
	}
}

func (c checker) choices() {
	c.oneOf("effect", c.m.Effect, string(tool.Read), string(tool.Keyed), string(tool.Once))
	c.oneOf("approval", c.m.Approval, "ask", "allow")
	r := c.m.Rate
	if r.Calls < 0 || r.Calls > callsMax || r.Per < 0 || r.Per > perMax || (r.Calls > 0) != (r.Per > 0) {
		c.fail("rate", "both keys: calls from 1 to %d, per up to %v", callsMax, perMax)
	}
	if n := c.m.Result.BytesMax; n < 0 || n > resultBytesMax {
		c.fail("result.bytes_max", "from 1 to %d", resultBytesMax)
	}
}

func (c checker) oneOf(key, s string, allowed ...string) {
	if s != "" && !slices.Contains(allowed, s) {
		c.fail(key, "%.60q is not one of %s%s", s, strings.Join(allowed, ", "), yamlfile.Suggest(s, allowed))
	}
}

func (c checker) sandbox() {
	s := c.m.Sandbox
	c.scope(s.Scope)
	c.oneOf("sandbox.network", s.Network, "none", "default", "open")
	if s.Timeout < 0 || s.Timeout > timeoutMax {
		c.fail("sandbox.timeout", "a time up to %v", timeoutMax)
	}
	if s.Keep != 0 && (s.Keep < keepMin || s.Keep > keepMax) {
		c.fail("sandbox.keep", "a time from %v to %v", keepMin, keepMax)
	}
	if s.Keep != 0 && !s.outlives() && c.m.HTTP == nil {
		c.fail("sandbox.keep", "it is for a scope of {thread}, {user} or {tenant} alone: another sandbox is removed with its call or its run")
	}
	if len(s.Env) > listMax {
		c.fail("sandbox.env", "at most %d variables", listMax)
	}
	if s.Scope == "" && s.ownKeys() && c.m.HTTP == nil {
		c.fail("sandbox", "without a scope the tool runs in the run's sandbox, which is as it is; say `scope: \"{call}\"` for one of its own")
	}
}

// ownKeys reports whether it says what a sandbox of the tool's own is like.
func (s Sandbox) ownKeys() bool {
	return s.Template != "" || s.Language != "" || s.CPUs != 0 || s.MemoryMB != 0 || s.DiskMB != 0 || s.Network != "" || len(s.Env) > 0
}

// outlives reports whether there is a sandbox of the tool's own that outlives runs.
func (s Sandbox) outlives() bool {
	return s.Scope != "" && !strings.Contains(s.Scope, "{call}") && !strings.Contains(s.Scope, "{run}")
}

// placeholders are what a scope may name.
var placeholders = []string{"{call}", "{run}", "{thread}", "{user}", "{tenant}"}

func (c checker) scope(s string) {
	bare := s
	for _, p := range placeholders {
		bare = strings.ReplaceAll(bare, p, "")
	}
	switch {
	case len(s) > scopeMax || strings.Trim(bare, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		c.fail("sandbox.scope", "%.80q: a-z, 0-9, - and %s, at most %d characters", s, strings.Join(placeholders, ", "), scopeMax)
	case s != "" && bare == s:
		c.fail("sandbox.scope", "name who shares the sandbox: one of %s", strings.Join(placeholders, ", "))
	}
}

func (c checker) lists() {
	for key, list := range map[string][]string{"agents": c.m.Agents, "files": c.m.Files, "artifacts": c.m.Artifacts} {
		if len(list) > listMax {
			c.fail(key, "at most %d", listMax)
		}
	}
	properties, _ := c.m.Input["properties"].(map[string]any)
	for i, name := range c.m.Files {
		if _, ok := properties[name]; !ok {
			c.fail(fmt.Sprintf("files[%d]", i), "%.80q is none of the properties of `input`", name)
		}
	}
	if len(c.m.Files) > 0 && c.m.Sandbox.Scope == "" {
		c.fail("files", "the run's sandbox has them already; say `sandbox: {scope: …}` for one of the tool's own")
	}
	for i, glob := range c.m.Artifacts {
		if glob == "" || !doublestar.ValidatePattern(glob) || path.IsAbs(glob) || slices.Contains(strings.Split(glob, "/"), "..") {
			c.fail(fmt.Sprintf("artifacts[%d]", i), "%.80q is no pattern of paths beneath the working directory", glob)
		}
	}
}

// spec is what the model sees.
func (m Manifest) spec() llm.ToolSpec {
	input := map[string]any{"type": "object", "properties": map[string]any{}}
	if m.Input != nil {
		input = m.Input
	}
	if input["type"] == nil {
		input["type"] = "object"
	}
	schema, err := json.Marshal(input)
	if err != nil {
		schema = nil // Check refuses it
	}
	return llm.ToolSpec{Name: m.Name, Description: strings.TrimSpace(m.Description), Schema: schema}
}

func (m Manifest) class() tool.Class {
	switch {
	case m.Effect != "":
		return tool.Class(m.Effect)
	case m.HTTP == nil:
		return tool.Keyed
	case m.HTTP.reads():
		return tool.Read
	}
	return tool.Once
}

func (m Manifest) timeout() time.Duration {
	if m.Sandbox.Timeout > 0 {
		return m.Sandbox.Timeout
	}
	return timeoutDefault
}

// mayHave reports whether an agent may have the tool.
func (m Manifest) mayHave(agent string) bool {
	return len(m.Agents) == 0 || slices.Contains(m.Agents, agent)
}
