package plugin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/llm"
)

// ManifestName is the file that says what a plug-in is.
const ManifestName = "plugin.yaml"

// Bounds of a manifest.
const (
	nameMax        = 40
	descriptionMax = 1024
	argsMax        = 64
	argBytesMax    = 4096
	hooksMax       = 32
	toolsMax       = 64
	modelsMax      = 64
	secretsMax     = 16
	hostsMax       = 16
	hostMax        = 253
	modelNameMax   = 64
	tokensMax      = 100_000_000
	priceMax       = 1e6
	idleMax        = 24 * time.Hour
	// IdleDefault is how long a plug-in waits for a call unless its manifest says.
	IdleDefault = 10 * time.Minute
)

// Manifest is what a plug-in says of itself.
type Manifest struct {
	Name        string   `yaml:"name" json:"name"` // of its folder, 1 to 40 of a-z 0-9 and single hyphens
	Version     string   `yaml:"version" json:"version"`
	Description string   `yaml:"description" json:"description,omitempty"`
	Command     []string `yaml:"command" json:"command"` // argv; it runs in the folder
	// Sandbox says what machine it wants, by the keys of a sandbox spec.
	Sandbox map[string]any `yaml:"sandbox" json:"sandbox,omitempty"`
	// Secrets are what it sends where, of the operator's secrets that are granted to it.
	Secrets []Secret `yaml:"secrets" json:"secrets,omitempty"`
	// Idle is how long its process waits for a call; 0 = IdleDefault.
	Idle   time.Duration `yaml:"idle" json:"idle_ns,omitempty"`
	Hooks  []Hook        `yaml:"hooks" json:"hooks,omitempty"`
	Models []Model       `yaml:"models" json:"models,omitempty"`
}

// Hook is an event that the plug-in is asked about.
type Hook struct {
	Event string   `yaml:"event" json:"event"`
	Tools []string `yaml:"tools" json:"tools,omitempty"` // names or globs; empty = all
	// OnFailure is what happens when the plug-in cannot be asked: "deny", "ask", "skip"; "" = deny
	// for PreToolUse and UserPromptSubmit, about which it decides, else skip.
	OnFailure string `yaml:"on_failure" json:"on_failure,omitempty"`
}

// failures are what a hook's on_failure can be, by its event. Nothing is refused where there is
// nothing to refuse, and a person can be asked about calls alone.
func failures(event string) []string {
	switch event {
	case "PreToolUse":
		return []string{"deny", "ask", "skip"}
	case "UserPromptSubmit":
		return []string{"deny", "skip"}
	}
	return []string{"skip"}
}

// Secret is a secret of the operator that the plug-in has sent to hosts. The program itself
// never has it.
type Secret struct {
	Name  string   `yaml:"name" json:"name"`
	Hosts []string `yaml:"hosts" json:"hosts"` // each by its name, without *
}

// Model is a model that the plug-in serves: NAME/MODEL for those who ask for it.
type Model struct {
	Name            string      `yaml:"name" json:"name"`
	WindowTokens    int         `yaml:"window_tokens" json:"window_tokens"`
	OutputTokensMax int         `yaml:"output_tokens_max" json:"output_tokens_max,omitempty"`
	Calling         llm.Calling `yaml:"calling" json:"calling,omitempty"` // native, json
	Media           bool        `yaml:"media" json:"media,omitempty"`     // takes images
	Price           llm.Price   `yaml:"price" json:"price,omitzero"`      // US dollars a million tokens
}

// Events are those that a plug-in can be asked about, by the names of package agent/hook.
var Events = []string{
	"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure",
	"PreCompact", "Stop", "SubagentStart", "SubagentStop",
}

// reserved are first parts of names of models that mean something else.
var reserved = []string{"anthropic", "openai", "google", "compat", "script", "plugin", "replay", "ollama", "lmstudio", "llamacpp", "vllm"}

var (
	nameForm    = pattern.Lazy(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	modelForm   = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._:+-]*$`)
	secretForm  = pattern.Lazy(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
	hostForm    = pattern.Lazy(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	versionForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$`)
)

// ParseManifest reads a manifest. file is for messages, folder the name that the plug-in must
// have. Invalid lists all mistakes, one a line, with their places.
func ParseManifest(file, folder string, data []byte) (Manifest, error) {
	var m Manifest
	problems := yamlfile.NewProblems(file)
	at := problems.Decode(data, yamlfile.BytesMax, &m)
	if err := problems.Err(); err != nil {
		return Manifest{}, err
	}
	c := checker{problems, at}
	c.identity(m, folder)
	c.machine(m)
	c.secrets(m)
	c.hooks(m.Hooks)
	c.models(m.Models)
	if len(m.Hooks)+len(m.Models) == 0 {
		c.fail("", "it offers nothing: hooks, models or both belong into a manifest")
	}
	if err := problems.Err(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// checker looks for what the form of a file alone does not show.
type checker struct {
	problems *yamlfile.Problems
	at       yamlfile.Positions
}

func (c checker) fail(path, format string, args ...any) {
	c.problems.AddTo(path, c.at.Of(path), format, args...)
}

func (c checker) identity(m Manifest, folder string) {
	switch {
	case !nameForm().MatchString(m.Name) || len(m.Name) > nameMax:
		c.fail("name", "%.60q is no name; use 1 to %d of a-z, 0-9 and single hyphens", m.Name, nameMax)
	case m.Name != folder:
		c.fail("name", "the name is %q, and the folder is called %.60q", m.Name, folder)
	case slices.Contains(reserved, m.Name):
		c.fail("name", "models of %q are others; call the plug-in otherwise", m.Name)
	}
	if !versionForm().MatchString(m.Version) {
		c.fail("version", "%.60q is no version; use 1 to 64 of letters, digits, dots, + and hyphens, such as 1.0.0", m.Version)
	}
	if len(m.Description) > descriptionMax {
		c.fail("description", "longer than %d characters", descriptionMax)
	}
	if m.Idle < 0 || m.Idle > idleMax {
		c.fail("idle", "a time from 0 to %.0fh", idleMax.Hours())
	}
}

// sandboxKeys are what a manifest may say of its machine. The rest is ours: how long it lives,
// what it is called, what it is made from.
var sandboxKeys = []string{"template", "language", "require", "cpus", "memory_mb", "disk_mb", "pids_max", "env", "network", "egress"}

func (c checker) machine(m Manifest) {
	if len(m.Command) == 0 || m.Command[0] == "" {
		c.fail("command", "a plug-in needs a command: a list of the program and its arguments")
	}
	if len(m.Command) > argsMax {
		c.fail("command", "more than %d arguments", argsMax)
	}
	for i, a := range m.Command {
		if len(a) > argBytesMax || strings.ContainsRune(a, 0) {
			c.fail(fmt.Sprintf("command[%d]", i), "at most %d bytes, none of them NUL", argBytesMax)
		}
	}
	for key := range m.Sandbox {
		if !slices.Contains(sandboxKeys, key) {
			c.fail("sandbox."+key, "%.60q is not a key here%s", key, yamlfile.Suggest(key, sandboxKeys))
		}
	}
	if m.Sandbox["require"] == "none" {
		c.fail("sandbox.require", "a plug-in never runs without isolation")
	}
}

func (c checker) secrets(m Manifest) {
	if len(m.Secrets) > secretsMax {
		c.fail("secrets", "more than %d secrets", secretsMax)
		return
	}
	if network, _ := m.Sandbox["network"].(string); len(m.Secrets) > 0 && m.Sandbox["egress"] == nil && (network == "" || network == "none") {
		c.fail("secrets", "nothing can be sent: sandbox.egress has to allow the hosts too")
	}
	for i, s := range m.Secrets {
		at := fmt.Sprintf("secrets[%d]", i)
		switch {
		case !secretForm().MatchString(s.Name):
			c.fail(at+".name", "%.80q is no name of a secret", s.Name)
		case slices.IndexFunc(m.Secrets, func(o Secret) bool { return o.Name == s.Name }) < i:
			c.fail(at+".name", "%q is there twice", s.Name)
		}
		if len(s.Hosts) == 0 || len(s.Hosts) > hostsMax {
			c.fail(at+".hosts", "1 to %d hosts that the secret is sent to", hostsMax)
			continue
		}
		for j, h := range s.Hosts {
			if len(h) > hostMax || !hostForm().MatchString(h) {
				c.fail(fmt.Sprintf("%s.hosts[%d]", at, j), "%.80q is no name of a host; use small letters, no * and no port", h)
			}
		}
	}
}

func (c checker) hooks(hooks []Hook) {
	if len(hooks) > hooksMax {
		c.fail("hooks", "more than %d hooks", hooksMax)
		return
	}
	for i, h := range hooks {
		at := fmt.Sprintf("hooks[%d]", i)
		if !slices.Contains(Events, h.Event) {
			c.fail(at+".event", "%.60q is not one of %s%s", h.Event, strings.Join(Events, ", "), yamlfile.Suggest(h.Event, Events))
		}
		if can := failures(h.Event); h.OnFailure != "" && !slices.Contains(can, h.OnFailure) {
			c.fail(at+".on_failure", "%.60q is not possible for %.60s: %s", h.OnFailure, h.Event, strings.Join(can, ", "))
		}
		if len(h.Tools) > toolsMax {
			c.fail(at+".tools", "more than %d", toolsMax)
			continue
		}
		if len(h.Tools) > 0 && !strings.Contains(h.Event, "ToolUse") {
			c.fail(at+".tools", "%s is not about a tool", h.Event)
		}
		for j, t := range h.Tools {
			if bare := strings.TrimPrefix(t, "!"); bare == "" || len(bare) > nameMax*2 || !doublestar.ValidatePattern(bare) {
				c.fail(fmt.Sprintf("%s.tools[%d]", at, j), "%.80q is no name of a tool, nor a pattern of names", t)
			}
		}
	}
}

func (c checker) models(models []Model) {
	if len(models) > modelsMax {
		c.fail("models", "more than %d models", modelsMax)
		return
	}
	for i, m := range models {
		at := fmt.Sprintf("models[%d]", i)
		switch {
		case !modelForm().MatchString(m.Name) || len(m.Name) > modelNameMax:
			c.fail(at+".name", "%.60q is no name; use 1 to %d of letters, digits and ._:+-", m.Name, modelNameMax)
		case slices.IndexFunc(models, func(o Model) bool { return o.Name == m.Name }) < i:
			c.fail(at+".name", "%q is there twice", m.Name)
		}
		if m.WindowTokens <= 0 || m.WindowTokens > tokensMax {
			c.fail(at+".window_tokens", "how many tokens fit, 1 to %d", tokensMax)
		}
		if m.OutputTokensMax < 0 || m.OutputTokensMax > max(m.WindowTokens, 0) {
			c.fail(at+".output_tokens_max", "0 to window_tokens")
		}
		if m.Calling != "" && m.Calling != llm.CallingNative && m.Calling != llm.CallingJSON {
			c.fail(at+".calling", "%.60q is neither native nor json", m.Calling)
		}
		for _, p := range []float64{m.Price.Input, m.Price.Output, m.Price.CacheRead, m.Price.CacheWrite} {
			if !(p >= 0 && p <= priceMax) { // not a number is neither
				c.fail(at+".price", "US dollars a million tokens, 0 to %.0f", float64(priceMax))
				break
			}
		}
	}
}

// Info is what is known of a model of the plug-in.
func (m Manifest) info(model Model) llm.Info {
	return llm.Info{
		Name: m.Name + "/" + model.Name, Vendor: "plugin", ID: model.Name, WindowTokens: model.WindowTokens,
		OutputTokensMax: model.OutputTokensMax, Calling: model.Calling, Media: model.Media, Price: model.Price,
	}
}
