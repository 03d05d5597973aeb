package catalog

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"

	"github.com/goccy/go-yaml"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
)

//go:embed facts.yaml
var factsFile []byte

//go:embed families.yaml
var familiesFile []byte

// What is assumed of a model of which nothing is known. Too small a window
// costs a summary too many; too large a one costs the run.
const windowGuess = 32_768

// factTable is what is known of models.
type factTable struct {
	models   map[string]map[string]llm.Info // vendor -> id
	families []family
}

// family are models that are treated alike.
type family struct {
	Match       string `yaml:"match"`
	llm.Profile `yaml:",inline"`
	match       *regexp.Regexp
}

func readFacts() (factTable, error) {
	var t factTable
	if err := yaml.UnmarshalWithOptions(factsFile, &t.models, yaml.Strict()); err != nil {
		return t, fmt.Errorf("facts.yaml: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(familiesFile, &t.families, yaml.Strict()); err != nil {
		return t, fmt.Errorf("families.yaml: %w", err)
	}
	for i, f := range t.families {
		var err error
		if t.families[i].match, err = regexp.Compile(f.Match); err != nil {
			return t, fmt.Errorf("families.yaml: %w", err)
		}
	}
	return t, nil
}

// profile is how a model is treated.
func (t factTable) profile(id string) llm.Profile {
	id = path.Base(id)
	for _, f := range t.families {
		if f.match.MatchString(id) {
			return f.Profile
		}
	}
	return llm.Profile{}
}

var dateSuffix = pattern.Lazy(`-(\d{8}|\d{4}-\d{2}-\d{2})$`)

func (t factTable) find(vendor, id string) (llm.Info, bool) {
	if info, ok := t.models[vendor][id]; ok {
		return info, true
	}
	info, ok := t.models[vendor][dateSuffix().ReplaceAllString(id, "")]
	return info, ok
}

// info is what is known about an entry: what it says itself, then the table.
func (t factTable) info(e Entry) llm.Info {
	known, _ := t.find(e.Vendor, e.ID)
	i := llm.Info{
		Name: e.Name, Vendor: e.Vendor, ID: e.ID,
		WindowTokens:    first(e.WindowTokens, known.WindowTokens),
		OutputTokensMax: first(e.OutputTokensMax, known.OutputTokensMax),
		Calling:         first(e.Calling, known.Calling),
		Price:           first(e.Price, known.Price),
		Media:           known.Media,
		Profile:         t.profile(e.ID),
	}
	if e.Media != nil {
		i.Media = *e.Media
	}
	if i.WindowTokens == 0 {
		i.WindowTokens, i.Guessed = windowGuess, true
	}
	i.OutputTokensMax = min(i.OutputTokensMax, i.WindowTokens)
	return i
}

// first returns the first value that is not zero.
func first[T comparable](values ...T) T {
	var zero T
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}
