package acp

import (
	"io"
	"os"
	"path"
	"strings"
)

// Bounds of a .gitignore.
const (
	ignoreBytesMax = 1 << 20
	ignoreRulesMax = 10_000
)

// rule is a line of a .gitignore.
type rule struct {
	not, dirOnly bool
	parts        []string // of the pattern, "**" = any number of directories
}

// parseIgnore reads the rules of a .gitignore; what cannot be a rule is left out.
func parseIgnore(text string) []rule {
	var rules []rule
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
			line = line[:len(line)-1]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		var r rule
		if r.not = line[0] == '!'; r.not {
			line = line[1:]
		}
		if r.dirOnly = strings.HasSuffix(line, "/"); r.dirOnly {
			line = strings.TrimRight(line, "/")
		}
		anchored := strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if line == "" {
			continue
		}
		r.parts = strings.Split(line, "/")
		if !anchored {
			r.parts = append([]string{"**"}, r.parts...)
		}
		if rules = append(rules, r); len(rules) == ignoreRulesMax {
			break
		}
	}
	return rules
}

// matches reports whether a path, in parts, is meant by the rule.
func (r rule) matches(name []string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	// at[j]: the parts of the pattern so far can match the first j parts of the name
	at := make([]bool, len(name)+1)
	at[0] = true
	for i, part := range r.parts {
		next := make([]bool, len(name)+1)
		if part == "**" {
			seen := false
			for j := range at {
				seen = seen || at[j]
				next[j] = seen
			}
			if i == len(r.parts)-1 && i > 0 { // what is beneath, and not the directory itself
				for j := len(next) - 1; j > 0; j-- {
					next[j] = next[j-1]
				}
				next[0] = false
			}
		} else {
			for j := range name {
				if ok, err := path.Match(part, name[j]); at[j] && err == nil && ok {
					next[j+1] = true
				}
			}
		}
		at = next
	}
	return at[len(name)]
}

// ignores are the rules of a directory and those beneath it, read as they are needed.
type ignores struct {
	root *os.Root
	of   map[string][]rule // by directory
}

func newIgnores(root *os.Root) *ignores { return &ignores{root, map[string][]rule{}} }

func (g *ignores) rules(dir string) []rule {
	if rules, ok := g.of[dir]; ok {
		return rules
	}
	g.of[dir] = nil
	f, err := g.root.Open(path.Join(dir, ".gitignore"))
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, ignoreBytesMax))
	if err != nil {
		return nil
	}
	g.of[dir] = parseIgnore(string(data))
	return g.of[dir]
}

// entry reports whether an entry of a directory that is not ignored is. .git is always.
func (g *ignores) entry(name string, dir bool) bool {
	if strings.EqualFold(path.Base(name), ".git") {
		return true
	}
	parts := strings.Split(name, "/")
	ignored := false
	for i := range parts {
		for _, r := range g.rules(path.Join(append([]string{"."}, parts[:i]...)...)) {
			if r.matches(parts[i:], dir) {
				ignored = !r.not
			}
		}
	}
	return ignored
}

// file reports whether a file is ignored, or a directory above it.
func (g *ignores) file(name string) bool {
	parts := strings.Split(name, "/")
	for i := 1; i <= len(parts); i++ {
		if g.entry(strings.Join(parts[:i], "/"), i < len(parts)) {
			return true
		}
	}
	return false
}
