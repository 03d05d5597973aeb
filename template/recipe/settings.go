package recipe

import "encoding/json"

// SettingsPath is where a built template says what its recipe says of it, as
// JSON of Settings.
const SettingsPath = "/etc/skete/template.json"

// Settings are what a template says of itself, for sandboxes that start from
// it and for services to come.
type Settings struct {
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Start   string            `json:"start,omitempty"`
	Ready   string            `json:"ready,omitempty"`
}

// settings of a recipe; false = it has none.
func (r Recipe) settings() (Settings, bool) {
	s := Settings{Env: r.Env, User: r.User, Workdir: r.Workdir, Start: r.Start, Ready: r.Ready}
	return s, len(r.Env) > 0 || r.User != "" || r.Workdir != "" || r.Start != "" || r.Ready != ""
}

func (s Settings) encode() []byte {
	b, _ := json.MarshalIndent(s, "", "  ") // texts only: cannot fail
	return append(b, '\n')
}
