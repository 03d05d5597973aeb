package recipe

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/skete-dev/skete/template"
)

// settingsPath is where a built template says what its recipe says of it, as
// JSON of Settings.
const settingsPath = "/etc/skete/template.json"

// Settings are what a template says of itself, for sandboxes that start from it.
type Settings struct {
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Start   string            `json:"start,omitempty"`
	Ready   string            `json:"ready,omitempty"`
	// ReadyTimeoutMS bounds the wait for Ready; 0 = a default.
	ReadyTimeoutMS int64 `json:"ready_timeout_ms,omitempty"`
	// CPUs and MemoryMB of machines for which nothing else is asked; 0 = the server's defaults.
	CPUs     float64 `json:"cpus,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
}

// Needs is the machine that they ask for.
func (s Settings) Needs() template.Needs { return template.Needs{CPUs: s.CPUs, MemoryMB: s.MemoryMB} }

// Use is what they say about using the template.
func (s Settings) Use() template.Use {
	return template.Use{
		User: s.User, Workdir: s.Workdir, Start: s.Start, Ready: s.Ready, ReadyTimeout: time.Duration(s.ReadyTimeoutMS) * time.Millisecond,
	}
}

// settings of a recipe; false = it has none.
func (r Recipe) settings() (Settings, bool) {
	s := Settings{
		Env: r.Env, User: r.User, Workdir: r.Workdir, Start: r.Start, Ready: r.Ready, ReadyTimeoutMS: r.ReadyTimeout.Milliseconds(),
		CPUs: r.CPUs, MemoryMB: r.MemoryMB,
	}
	return s, len(r.Env) > 0 || r.User != "" || r.Workdir != "" || r.Start != "" || r.Ready != "" || r.CPUs != 0 || r.MemoryMB != 0
}

func (s Settings) encode() []byte {
	b, _ := json.MarshalIndent(s, "", "  ") // texts and checked numbers: cannot fail
	return append(b, '\n')
}

const settingsBytesMax = 256 << 10

// SettingsOf reads what the tree in dir says of itself. A tree is not trusted:
// what is no such file says nothing, and what no recipe could say is left out.
func SettingsOf(dir string) Settings {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Settings{}
	}
	defer root.Close()
	name := strings.TrimPrefix(settingsPath, "/")
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
	s.keepWhatCanBe()
	return s
}

// keepWhatCanBe leaves out what no recipe could say.
func (s *Settings) keepWhatCanBe() {
	if s.User != "" && s.User != "root" && s.User != "user" {
		s.User = ""
	}
	if s.Workdir != "" && !absolute(s.Workdir) {
		s.Workdir = ""
	}
	for _, command := range []*string{&s.Start, &s.Ready} {
		if len(*command) > textBytesMax || !clean(*command) {
			*command = ""
		}
	}
	if s.ReadyTimeoutMS < 0 || s.ReadyTimeoutMS > readyTimeoutMax.Milliseconds() {
		s.ReadyTimeoutMS = 0
	}
	if !cpusFit(s.CPUs) {
		s.CPUs = 0
	}
	if !memoryFits(s.MemoryMB) {
		s.MemoryMB = 0
	}
	for k, v := range s.Env {
		if !envForm().MatchString(k) || !clean(v) || len(v) > textBytesMax {
			delete(s.Env, k)
		}
	}
}
