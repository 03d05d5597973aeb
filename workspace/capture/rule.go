package capture

import (
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
	// HugeBytes is the size from which a file is not kept; 0 = 1 GiB.
	HugeBytes int64
}

// DefaultRules are those of a workspace that says nothing else.
func DefaultRules() Rules {
	return Rules{
		Derived:   []string{"node_modules", ".venv", "venv", "target", "dist", "build", ".next"},
		Cache:     []string{".cache", "__pycache__", "*.tsbuildinfo", "node_modules/.vite", ".pytest_cache", ".mypy_cache"},
		HugeBytes: 1 << 30,
	}
}

// class of a name in a directory.
func (r Rules) class(dir, name string, parent Class) Class {
	for _, pattern := range r.Cache {
		switch in, last := path.Split(pattern); {
		case in != "" && path.Base(dir) != strings.TrimSuffix(in, "/"):
		case matches(last, name):
			return Cache
		}
	}
	if parent == Derived || slices.Contains(r.Derived, name) {
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
