package service

import (
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// This file knows dev servers: what they need so that their pages work
// behind a preview's host name, without the project saying so.
//
// A preview is a host name of its own that is passed through, so that the
// page finds its hot-reload socket at the place that it came from: no port and
// no host need to be set for that. What does stand in the way is the check of
// the Host header that protects dev servers from rebinding.
//
// Everything is safe for concurrent use.

// devServer is a dev server that is known.
type devServer struct {
	Name string
	// Port is where it listens unless told otherwise.
	Port uint32
	// Config are patterns of its files: when one changes, it starts anew.
	Config []string

	programs []string // that are it
	others   []string // first arguments with which they serve nothing, or not this
	hosts    string   // variable that takes a host name; a leading dot means all beneath
}

// servers is the table. What it says of Vite was read in the sources of 7.3.0
// and 8.3.8.
var servers = []*devServer{
	{
		Name: "vite", Port: 5173, Config: []string{"vite.config.*"},
		programs: []string{"vite"}, others: []string{"build", "optimize", "preview", "--version", "-v", "--help", "-h"},
		hosts: "__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS", // 7 takes one name, 8 a list
	},
}

// Env is what makes the server answer under the names of a preview's domain;
// nil when nothing is needed or known.
func (s *devServer) Env(domain string) map[string]string {
	domain = strings.TrimPrefix(domain, ".")
	if s == nil || s.hosts == "" || domain == "" {
		return nil
	}
	return map[string]string{s.hosts: "." + domain}
}

// devServerOf finds the known server that a command starts: by its program, or by the
// script of package.json that it runs. nil when it is none.
func devServerOf(words []string, dir string) *devServer {
	if s := programServer(words); s != nil {
		return s
	}
	if script := scriptOf(words); script != "" {
		return programServer(shellWords(readScript(dir, script)))
	}
	return nil
}

// programServer looks for a known program among words.
func programServer(words []string) *devServer {
	for i, w := range words {
		name := strings.TrimSuffix(path.Base(w), ".js")
		for _, s := range servers {
			if slices.Contains(s.programs, name) && (i+1 == len(words) || !slices.Contains(s.others, words[i+1])) {
				return s
			}
		}
	}
	return nil
}

// runners start scripts of a package.json.
var runners = []string{"npm", "pnpm", "yarn", "bun"}

// scriptOf names the script that words run: "npm run dev", "pnpm dev", "yarn start".
func scriptOf(words []string) string {
	for i, w := range words {
		if !slices.Contains(runners, path.Base(w)) {
			continue
		}
		for _, arg := range words[i+1:] {
			if arg == "run" || arg == "run-script" || strings.HasPrefix(arg, "-") {
				continue
			}
			return arg
		}
	}
	return ""
}

// packageBytesMax bounds a package.json.
const packageBytesMax = 1 << 20

// readScript is a script of the package.json in dir, "" when there is none.
func readScript(dir, name string) string {
	f, err := os.OpenFile(filepath.Join(dir, "package.json"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, packageBytesMax))
	if err != nil {
		return ""
	}
	return parseScript(data, name)
}

func parseScript(data []byte, name string) string {
	var p struct {
		Scripts map[string]string `json:"scripts"`
	}
	if json.Unmarshal(data, &p) != nil {
		return ""
	}
	return p.Scripts[name]
}

// shellWords splits a shell's command so far as it takes to see which programs it
// starts: at blanks and operators, without quotes.
func shellWords(command string) []string {
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()", r) })
	for i, w := range words {
		words[i] = strings.Trim(w, `"'`)
	}
	return words
}

// configs are files that decide how programs of the usual languages start.
var configs = []string{
	"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb", "deno.lock",
	".env", ".env.*", "*.config.js", "*.config.ts", "*.config.mjs", "*.config.mts", "*.config.cjs", "*.config.cts",
	"requirements.txt", "pyproject.toml", "poetry.lock", "uv.lock", "Gemfile.lock", "composer.lock", "go.mod", "go.sum", "Cargo.toml", "Cargo.lock",
}

// IsConfig reports whether a file is one that a server reads when it starts;
// s may be nil.
func (s *devServer) IsConfig(file string) bool {
	patterns := configs
	if s != nil {
		patterns = append(slices.Clone(s.Config), configs...)
	}
	name := path.Base(file)
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}
