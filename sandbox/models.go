package sandbox

import (
	"cmp"
	"slices"

	"github.com/skete-dev/skete/egress"
)

// ModelGrant is what the programs of a sandbox may use of the models of the host.
type ModelGrant struct {
	// Models are names as agents use them. A program that asks for "default" gets the
	// first.
	Models []string `json:"models"`
	// The budget of all calls together; 0 = no bound.
	Tokens    int64   `json:"tokens,omitempty"` // in and out
	CostUSD   float64 `json:"cost_usd,omitempty"`
	PerMinute int     `json:"per_minute,omitempty"` // calls
	// KeyOf is the sandbox whose key its programs show. A fork has that of the one that it
	// comes from: programs that went on in it hold it. Whose calls they are, the connection
	// says.
	KeyOf ID `json:"key_of,omitempty"`
}

const modelsMax = 20 // of a grant

// clone shares nothing with g.
func (g ModelGrant) clone() *ModelGrant {
	g.Models = slices.Clone(g.Models)
	return &g
}

// GrantModels makes g what the programs of the sandbox with this ID may use; of no models it
// is none. A network that is there stays, so that they can be granted again.
func (s *Spec) GrantModels(g ModelGrant, id ID) {
	key := id
	if s.Models != nil {
		key = cmp.Or(s.Models.KeyOf, id)
	}
	had := s.HasNetwork()
	if s.Models = nil; len(g.Models) > 0 {
		s.Models = g.clone()
		s.Models.KeyOf = key
	}
	if had && !s.HasNetwork() {
		s.Egress = &egress.Policy{}
	}
}

// models says what is wrong with a grant.
func (p *problems) models(g *ModelGrant) {
	switch {
	case g == nil:
		return
	case len(g.Models) == 0:
		p.add("models", "no model is named")
	case len(g.Models) > modelsMax:
		p.add("models", "there are %d, more than %d", len(g.Models), modelsMax)
	}
	for _, name := range g.Models {
		if name == "" || len(name) > 128 {
			p.add("models", "%.40q is no name of a model", name)
		}
	}
	if g.Tokens < 0 || g.CostUSD < 0 || g.CostUSD != g.CostUSD || g.PerMinute < 0 {
		p.add("models", "a budget is not below 0")
	}
}
