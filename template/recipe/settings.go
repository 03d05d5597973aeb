package recipe

import (
	"encoding/json"
	"io"
	"os"
	"strings"
)

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

const settingsBytesMax = 256 << 10

// SettingsOf reads what the tree in dir says of itself. Nobody vouches for a
// tree: what is no such file says nothing, and what cannot be a variable is
// left out.
func SettingsOf(dir string) Settings {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Settings{}
	}
	defer root.Close()
	name := strings.TrimPrefix(SettingsPath, "/")
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > settingsBytesMax {
		return Settings{}
	}
	f, err := root.Open(name)
	if err != nil {
		return Settings{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, settingsBytesMax))
	var s Settings
	if err != nil || json.Unmarshal(data, &s) != nil || len(s.Env) > envMax {
		return Settings{}
	}
	for k, v := range s.Env {
		if !envForm.MatchString(k) || !clean(v) || len(v) > textBytesMax {
			delete(s.Env, k)
		}
	}
	return s
}
