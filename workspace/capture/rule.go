package capture

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// Class says how the history treats a path.
type Class string

// Classes of paths.
const (
	Source  Class = "source"  // kept by the policy
	Derived Class = "derived" // kept, and the first to go when space is short
	Cache   Class = "cache"   // not kept, and never touched by an undo
	Huge    Class = "huge"    // a file too large to keep; never touched
)

// Rules name directories and files by their last element. They are part of
// every report: nothing is left out in silence.
type Rules struct {
	Derived []string // directories
	Cache   []string // directories, files ("*.tsbuildinfo"), or "node_modules/.vite"
	// HugeBytes is the size on disk from which a file is not kept; 0 = 1 GiB.
	// One with holes counts what it takes, and may be sparseMax times as long.
	HugeBytes int64
}

// sparseMax is how many times longer than HugeBytes a file with holes may be.
const sparseMax = 64

// DefaultRules are those of a workspace that says nothing else.
func DefaultRules() Rules {
	return Rules{
		Derived:   []string{"node_modules", ".venv", "venv", "target", "dist", "build", ".next"},
		Cache:     []string{".cache", "__pycache__", "*.tsbuildinfo", "node_modules/.vite", ".pytest_cache", ".mypy_cache"},
		HugeBytes: 1 << 30,
	}
}

// Of returns the class of a path of which all elements but the last, or all,
// are directories. Huge is none of them: it takes a look at the file.
func (r Rules) Of(name string, dir bool) Class {
	x, class, above := compile(r), Source, ""
	elements := strings.Split(name, "/")
	for i, element := range elements {
		if x.cached(above, element) {
			return Cache
		}
		if i < len(elements)-1 || dir {
			class = x.class(element, class)
		}
		above = element
	}
	return class
}

// ruleset is Rules made for many questions.
type ruleset struct {
	derived, names map[string]bool
	suffixes       []string
	inside         []inside
	huge           int64
	text           string // of the Rules, to tell them from others
}

// inside is a pattern that holds in directories of one name only.
type inside struct{ dir, pattern string }

func compile(r Rules) *ruleset {
	if r.HugeBytes <= 0 {
		r.HugeBytes = 1 << 30
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and a number
	}
	x := &ruleset{derived: map[string]bool{}, names: map[string]bool{}, huge: r.HugeBytes, text: string(text)}
	for _, name := range r.Derived {
		x.derived[name] = true
	}
	for _, pattern := range r.Cache {
		in, last := path.Split(pattern)
		suffix, any := strings.CutPrefix(last, "*")
		switch {
		case in != "":
			x.inside = append(x.inside, inside{strings.TrimSuffix(in, "/"), last})
		case any:
			x.suffixes = append(x.suffixes, suffix)
		default:
			x.names[last] = true
		}
	}
	return x
}

// cached reports whether a name in a directory (by its own name) is a cache.
func (x *ruleset) cached(above, name string) bool {
	return x.names[name] ||
		slices.ContainsFunc(x.suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) ||
		slices.ContainsFunc(x.inside, func(p inside) bool { return p.dir == above && matches(p.pattern, name) })
}

// class of a directory.
func (x *ruleset) class(name string, parent Class) Class {
	if parent == Derived || x.derived[name] {
		return Derived
	}
	return Source
}

func matches(pattern, name string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, suffix)
	}
	return pattern == name
}
