package catalog

import (
	"net/url"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
)

// Config is what the configuration says about models.
type Config struct {
	// Model is the default: a name of Models, or vendor/id.
	Model  string  `yaml:"model"`
	Models []Entry `yaml:"models"`
}

// Entry is a model of the configuration. Zero values are taken from what is
// known about the model.
type Entry struct {
	Name   string `yaml:"name"`
	Vendor string `yaml:"vendor"` // anthropic, openai, google, compat, script, plugin
	ID     string `yaml:"id"`     // what the vendor calls it
	URL    string `yaml:"url"`
	// KeyEnv names a variable, KeyFile a file, that holds the key. Without
	// either it is ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY or
	// GEMINI_API_KEY, or, for compat, none.
	KeyEnv  string `yaml:"key_env"`
	KeyFile string `yaml:"key_file"`

	WindowTokens    int         `yaml:"window_tokens"`
	OutputTokensMax int         `yaml:"output_tokens_max"`
	Calling         llm.Calling `yaml:"calling"` // native, json
	Media           *bool       `yaml:"media"`   // takes images
	Price           llm.Price   `yaml:"price"`   // US dollars a million tokens

	Headers map[string]string `yaml:"headers"`
	Script  string            `yaml:"script"` // path of a script, with vendor script
	Effort  string            `yaml:"effort"` // of reasoning: low, medium, high
	// Summary asks OpenAI for summaries of its reasoning: auto, concise,
	// detailed. Only verified organisations get them.
	Summary string `yaml:"summary"`
}

// The vendors.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
	Google    = "google" // for programs in sandboxes: no driver speaks its API
	Compat    = "compat"
	Script    = "script"
)

var vendors = []string{Anthropic, OpenAI, Google, Compat, Script, Plugin}

// modelsMax bounds the entries of a configuration.
const modelsMax = 1000

var (
	nameForm   = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$`)
	headerForm = pattern.Lazy("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
)

// Validate reports the first thing that is wrong. Invalid.
func (c Config) Validate() error {
	if len(c.Models) > modelsMax {
		return errs.New(errs.Invalid, "models: at most %d", modelsMax)
	}
	seen := map[string]bool{}
	for _, e := range c.Models {
		if err := e.validate(); err != nil {
			return err
		}
		if seen[e.Name] {
			return errs.New(errs.Invalid, "models: the name %s is there twice", e.Name)
		}
		seen[e.Name] = true
	}
	if c.Model != "" && !seen[c.Model] {
		if _, _, err := split(c.Model); err != nil {
			return errs.New(errs.Invalid, "model: there is no model %s", c.Model).WithHint("name one of models, or write vendor/id")
		}
	}
	return nil
}

func (e Entry) validate() error {
	wrong := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "models: %s: "+format, append([]any{e.Name}, args...)...)
	}
	oneOf := func(s string, of ...string) bool { return slices.Contains(of, s) }
	switch {
	case !nameForm().MatchString(e.Name):
		return errs.New(errs.Invalid, "models: %q is no name: letters, digits and ._:/@+-, at most 128", e.Name)
	case !oneOf(e.Vendor, vendors...):
		return wrong("vendor %q is none of %s", e.Vendor, strings.Join(vendors, ", "))
	case e.Vendor == Script && e.Script == "":
		return wrong("script: the path of a script is missing")
	case e.Vendor != Script && e.Script != "":
		return wrong("script is for vendor script only")
	case e.Vendor != Script && e.ID == "":
		return wrong("id is missing")
	case e.Vendor == Plugin && (e.URL != "" || e.KeyEnv != "" || e.KeyFile != ""):
		return wrong("url, key_env and key_file are not for vendor plugin: its manifest and `skete secret` say where it goes")
	case e.Vendor == Compat && e.URL == "":
		return wrong("url is missing")
	case e.URL != "" && !isURL(e.URL):
		return wrong("url is no http or https URL")
	case e.KeyEnv != "" && e.KeyFile != "":
		return wrong("key_env or key_file, not both")
	case e.WindowTokens < 0, e.OutputTokensMax < 0:
		return wrong("window_tokens and output_tokens_max cannot be negative")
	case e.WindowTokens > 0 && e.OutputTokensMax > e.WindowTokens:
		return wrong("output_tokens_max is larger than window_tokens")
	case !oneOf(string(e.Calling), "", string(llm.CallingNative), string(llm.CallingJSON)):
		return wrong("calling %q is neither native nor json", e.Calling)
	case min(e.Price.Input, e.Price.Output, e.Price.CacheRead, e.Price.CacheWrite) < 0:
		return wrong("price cannot be negative")
	case !oneOf(e.Effort, "", "low", "medium", "high"):
		return wrong("effort %q is none of low, medium, high", e.Effort)
	case !oneOf(e.Summary, "", "auto", "concise", "detailed"):
		return wrong("summary %q is none of auto, concise, detailed", e.Summary)
	case e.Summary != "" && e.Vendor != OpenAI:
		return wrong("summary is for vendor openai only")
	}
	for name, value := range e.Headers {
		if !headerForm().MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return wrong("headers: %q is no header", name)
		}
	}
	return nil
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// split takes vendor/id apart.
func split(name string) (vendor, id string, err error) {
	vendor, id, ok := strings.Cut(name, "/")
	known := slices.Contains(vendors, vendor) || slices.ContainsFunc(locals(), func(s Server) bool { return s.Name == vendor })
	if !ok || id == "" || !known || len(name) > 512 {
		return "", "", errs.New(errs.NotFound, "there is no model %q", name)
	}
	return vendor, id, nil
}
