package template

import (
	"context"
	"os/exec"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Language is a language whose tool a template has.
type Language struct {
	Name string
	Tool string // path inside
	// Argv is put before the code, or before the file's path when FromFile is set.
	Argv     []string
	FromFile bool
}

// languages knows how code is run, and where its tool comes from.
var languages = []struct {
	name     string
	aliases  []string
	tools    []string
	args     []string
	fromFile bool
	packages string // of Debian and Ubuntu
}{
	{"python", []string{"py", "python3"}, []string{"python3"}, []string{"-c"}, false, "python3"},
	{"node", []string{"javascript", "js", "nodejs"}, []string{"node", "nodejs"}, []string{"-e"}, false, "nodejs"},
	{"go", []string{"golang"}, []string{"go"}, []string{"run"}, true, "golang-go"},
	{"ruby", []string{"rb"}, []string{"ruby"}, []string{"-e"}, false, "ruby"},
}

// LanguageNames lists the languages that can be asked for.
func LanguageNames() []string {
	var names []string
	for _, l := range languages {
		names = append(names, l.name)
	}
	return names
}

// Language reports whether a template has the tool of a language, by its name
// or an alias. Unsupported: it has not; the hint says how to get it.
func (s *Store) Language(ctx context.Context, template, language string) error {
	_, err := s.Tool(ctx, template, language)
	return err
}

// Tool is Language that says how code is run.
func (s *Store) Tool(ctx context.Context, template, language string) (Language, error) {
	i := findLanguage(language)
	if i < 0 {
		return Language{}, errs.New(errs.Invalid, "no language %.40q; known: %s", language, strings.Join(LanguageNames(), ", "))
	}
	root, err := s.Rootfs(ctx, template)
	if err != nil {
		return Language{}, err
	}
	if l, ok := toolIn(root, i); ok {
		return l, nil
	}
	return Language{}, missing(template, i)
}

func findLanguage(name string) int {
	name = strings.ToLower(name)
	for i, l := range languages {
		if l.name == name {
			return i
		}
		if slices.Contains(l.aliases, name) {
			return i
		}
	}
	return -1
}

func toolIn(root Rootfs, i int) (Language, bool) {
	l := languages[i]
	for _, tool := range l.tools {
		if at, ok := root.view().Lookup(tool, root.Env["PATH"]); ok {
			return Language{Name: l.name, Tool: at, Argv: append([]string{tool}, l.args...), FromFile: l.fromFile}, true
		}
	}
	return Language{}, false
}

// languagesIn names those whose tools are there.
func languagesIn(root Rootfs) []string {
	names := []string{}
	for i, l := range languages {
		if _, ok := toolIn(root, i); ok {
			names = append(names, l.name)
		}
	}
	return names
}

func missing(template string, i int) error {
	l := languages[i]
	err := errs.New(errs.Unsupported, "the template %s has no %s for the language %s", template, l.tools[0], l.name)
	if template != HostName {
		return err.WithHint("import a root file system that has it (Debian and Ubuntu: the package %s)", l.packages)
	}
	if _, lookErr := exec.LookPath(l.tools[0]); lookErr == nil {
		return err.WithHint("the %s in your PATH lies outside of /usr, or leads there, and sandboxes see only /usr: install the system's (Debian and Ubuntu: apt install %s)", l.tools[0], l.packages)
	}
	return err.WithHint("install it on the host (Debian and Ubuntu: apt install %s) or import a root file system that has it", l.packages)
}
