package recipe

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/template/apt"
)

// FileName is what a recipe is called in its directory.
const FileName = "skete.template.yaml"

// Bounds of a recipe.
const (
	runMax          = 64
	filesMax        = 64
	packagesMax     = 256
	envMax          = 64
	textBytesMax    = 16 << 10 // of one command
	pathBytesMax    = 1024
	readyTimeoutMax = 2 * time.Minute // a sandbox is made in three minutes or not at all
	cpusMax         = 1024            // the server's limits are below these
	memoryMBMax     = 16 << 20
)

// Recipe is a checked skete.template.yaml.
type Recipe struct {
	From     string   `yaml:"from"`
	Packages []string `yaml:"packages"`
	Files    []File   `yaml:"files"`
	Run      []string `yaml:"run"`
	// Network is what Run reaches: "" or NetworkNone, or NetworkDefault.
	Network string            `yaml:"network"`
	Env     map[string]string `yaml:"env"` // of commands in sandboxes, and of the steps
	User    string            `yaml:"user"`
	Workdir string            `yaml:"workdir"`
	// Start is the command of the service that the template is for; Ready ends
	// well when that answers.
	Start        string        `yaml:"start"`
	Ready        string        `yaml:"ready"`
	ReadyTimeout time.Duration `yaml:"ready_timeout"`
	// CPUs and MemoryMB of sandboxes for which nothing else is asked; 0 = the server's defaults.
	CPUs     float64 `yaml:"cpus"`
	MemoryMB int     `yaml:"memory_mb"`

	name string
	at   yamlfile.Positions
}

// What the commands of Run reach: nothing, or what a sandbox's profile of that name allows,
// which is reading from package registries and public git hosts.
const (
	NetworkNone    = "none"
	NetworkDefault = "default"
)

// File is something of the context that is copied into the template.
type File struct {
	From  string `yaml:"from"` // beneath the recipe's directory
	To    string `yaml:"to"`   // absolute; with a slash at its end: into that directory
	Mode  string `yaml:"mode"` // of files, octal; "" = 0755 if it may be executed, else 0644
	Owner string `yaml:"owner"`
}

// Place is where a value stands in the recipe, as "file:line:column".
func (r Recipe) Place(value string) string { return yamlfile.Where(r.name, r.at.Of(value)) }

// Parse reads a recipe. name is for messages. The error is Invalid and names
// every mistake with its place.
func Parse(name string, data []byte) (Recipe, error) {
	var r Recipe
	at, err := yamlfile.Decode(name, data, &r)
	if err != nil {
		return Recipe{}, err
	}
	r.name, r.at = name, at
	c := checker{at: at, problems: yamlfile.NewProblems(name)}
	c.recipe(&r)
	if err := c.problems.Err(); err != nil {
		return Recipe{}, err
	}
	return r, nil
}

type checker struct {
	at       yamlfile.Positions
	problems *yamlfile.Problems
}

func (c checker) bad(value, format string, args ...any) {
	c.problems.Add(c.at.Of(value), format, args...)
}

func (c checker) recipe(r *Recipe) {
	if r.From == "" {
		c.bad("", `"from" is missing: the template or image to start with`)
	} else if len(r.From) > pathBytesMax || !printable(r.From) || strings.ContainsAny(r.From, " \t") {
		c.bad("from", "%.80q is neither a template nor an image", r.From)
	}
	if r.From == "host" {
		c.bad("from", "the template host shows this host's own programs; a build starts from one that has its own, as debian")
	}
	c.count("packages", len(r.Packages), packagesMax)
	c.count("files", len(r.Files), filesMax)
	c.count("run", len(r.Run), runMax)
	c.count("env", len(r.Env), envMax)
	for i, name := range r.Packages {
		if err := apt.CheckPackage(name); err != nil {
			c.bad(fmt.Sprintf("packages[%d]", i), "%.80q is not the name of a package", name)
		}
	}
	for i := range r.Files {
		c.file(fmt.Sprintf("files[%d]", i), &r.Files[i])
	}
	for i, text := range r.Run {
		c.command(fmt.Sprintf("run[%d]", i), text, true)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Env)) {
		if !envForm().MatchString(key) || !clean(r.Env[key]) {
			c.bad("env."+key, "%.80q is no variable with a value that can be set", key)
		}
	}
	c.command("start", r.Start, false)
	c.command("ready", r.Ready, false)
	c.settings(r)
}

func (c checker) settings(r *Recipe) {
	if r.User != "" && r.User != "root" && r.User != "user" {
		c.bad("user", `%.40q is neither "user" nor "root"`, r.User)
	}
	if r.Network != "" && r.Network != NetworkNone && r.Network != NetworkDefault {
		c.bad("network", `%.40q is neither "none" nor "default"`, r.Network)
	}
	if r.Workdir != "" && !absolute(r.Workdir) {
		c.bad("workdir", "%.80q is not an absolute path", r.Workdir)
	}
	if r.ReadyTimeout < 0 || r.ReadyTimeout > readyTimeoutMax {
		c.bad("ready_timeout", "not in 0s to %s", readyTimeoutMax)
	}
	if r.ReadyTimeout != 0 && r.Ready == "" {
		c.bad("ready_timeout", `there is no "ready" that it could bound`)
	}
	if !cpusFit(r.CPUs) {
		c.bad("cpus", "not in 0 to %d", cpusMax)
	}
	if !memoryFits(r.MemoryMB) {
		c.bad("memory_mb", "not in 0 to %d", memoryMBMax)
	}
}

// cpusFit is false for what is no number, too.
func cpusFit(n float64) bool { return n >= 0 && n <= cpusMax }

func memoryFits(mb int) bool { return mb >= 0 && mb <= memoryMBMax }

var (
	envForm   = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	ownerForm = pattern.Lazy(`^[a-z_0-9][a-z0-9_-]{0,31}(:[a-z_0-9][a-z0-9_-]{0,31})?$`)
)

func (c checker) count(value string, n, most int) {
	if n > most {
		c.bad(value, "%d entries, at most %d", n, most)
	}
}

func (c checker) command(value, text string, needed bool) {
	switch {
	case needed && strings.TrimSpace(text) == "":
		c.bad(value, "an empty command")
	case len(text) > textBytesMax:
		c.bad(value, "the command has more than %d bytes", textBytesMax)
	case !clean(text):
		c.bad(value, "the command has a NUL or is not UTF-8")
	}
}

func (c checker) file(value string, f *File) {
	from := path.Clean(f.From)
	if f.From == "" || len(f.From) > pathBytesMax || path.IsAbs(from) || from == ".." || strings.HasPrefix(from, "../") || !printable(f.From) {
		c.bad(value+".from", "%.80q is not a path beneath the recipe's directory", f.From)
	}
	f.From = from
	if !absolute(f.To) || f.To == "/" {
		c.bad(value+".to", "%.80q is not an absolute path", f.To)
	}
	for _, not := range notKept {
		if to := path.Clean(f.To); to == "/"+not || strings.HasPrefix(to, "/"+not+"/") {
			c.bad(value+".to", "nothing below /%s is kept in a template", not)
		}
	}
	if f.Mode != "" {
		if m, err := strconv.ParseUint(f.Mode, 8, 16); err != nil || m > 0o777 {
			c.bad(value+".mode", `%.20q is not "0000" to "0777"`, f.Mode)
		}
	}
	if f.Owner != "" && !ownerForm().MatchString(f.Owner) {
		c.bad(value+".owner", "%.80q is not USER or USER:GROUP", f.Owner)
	}
}

func absolute(p string) bool {
	return path.IsAbs(p) && len(p) <= pathBytesMax && printable(p) && !slices.Contains(strings.Split(p, "/"), "..")
}

func clean(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func printable(s string) bool {
	return clean(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
