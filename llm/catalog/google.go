package catalog

import (
	"context"
	"iter"

	"github.com/skete-dev/skete/llm"
)

// googleURL is Google's own server.
const googleURL = "https://generativelanguage.googleapis.com"

// googleKey is the variable that has the key: of two, the one that Google's libraries take.
func (c *Catalog) googleKey() string {
	if c.getenv("GOOGLE_API_KEY") != "" {
		return "GOOGLE_API_KEY"
	}
	return "GEMINI_API_KEY"
}

// google is the model for which a key in the environment is enough.
func (c *Catalog) google() entry {
	return c.complete(Entry{Name: Google + "/" + googleDefault, Vendor: Google, ID: googleDefault}, sourceEnv)
}

// forPrograms is a model that no driver can ask: it is there to be granted to programs in
// sandboxes, which speak the API of its vendor.
type forPrograms struct{ info llm.Info }

// Info implements llm.Model.
func (m forPrograms) Info() llm.Info { return m.info }

// Stream implements llm.Model. It fails.
func (m forPrograms) Stream(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		yield(llm.Delta{}, &llm.Error{Trouble: llm.BadRequest, Model: m.info.Name, Cause: m.info.ForAgents()})
	}
}
