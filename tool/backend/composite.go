package backend

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/tool"
)

// Route sends what is at a path, and beneath it, to a backend.
type Route struct {
	At    string // absolute and clean, not "/"
	Files tool.Files
}

// Composite is several backends as one tree. A path belongs to the longest
// route that it is at or beneath, any other to the default. Mount points are
// directories that are always there; they can be neither written nor deleted,
// nor can what is above them.
type Composite struct {
	other  tool.Files
	routes []Route // the longest first
}

// NewComposite returns the tree of a default backend and routes. Two routes at
// one path, or one at "/", are a mistake in the program.
func NewComposite(other tool.Files, routes ...Route) *Composite {
	c := &Composite{other: other, routes: slices.Clone(routes)}
	slices.SortFunc(c.routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(len(b.At), len(a.At)), cmp.Compare(a.At, b.At))
	})
	for i, r := range c.routes {
		if clean, err := tool.CleanPath(r.At); err != nil || clean != r.At || clean == "/" || i > 0 && c.routes[i-1].At == r.At {
			panic("backend: a route at " + r.At)
		}
	}
	return c
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// of returns the backend of a path and where it is mounted, "" for the default.
func (c *Composite) of(p string) (tool.Files, string) {
	for _, r := range c.routes {
		if within(p, r.At) {
			return r.Files, r.At
		}
	}
	return c.other, ""
}

// mounts lists the routes beneath a directory.
func (c *Composite) mounts(dir string) []Route {
	var in []Route
	for _, r := range c.routes {
		if r.At != dir && within(r.At, dir) {
			in = append(in, r)
		}
	}
	return in
}

// missing reports an answer that a mount point, or what is above one, need
// not care about: it is there whatever its backend says.
func (c *Composite) missing(err error, p, at string) bool {
	var fe *tool.FileError
	return errors.As(err, &fe) && fe.Code == tool.CodeNotFound && (p == at || len(c.mounts(p)) > 0)
}

// List implements tool.Files.
func (c *Composite) List(ctx context.Context, dir string) ([]tool.FileInfo, error) {
	files, at := c.of(dir)
	list, err := files.List(ctx, dir)
	if err != nil && !c.missing(err, dir, at) {
		return nil, err
	}
	for _, r := range c.mounts(dir) {
		name, _, _ := strings.Cut(relative(dir, r.At), "/")
		p := path.Join(dir, name)
		list = slices.DeleteFunc(list, func(f tool.FileInfo) bool { return f.Path == p })
		list = append(list, tool.FileInfo{Path: p, Dir: true})
	}
	slices.SortFunc(list, func(a, b tool.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list[:min(len(list), tool.ListMax)], nil
}

// Stat implements tool.Files.
func (c *Composite) Stat(ctx context.Context, p string) (tool.FileInfo, error) {
	files, at := c.of(p)
	if p == at || len(c.mounts(p)) > 0 {
		return tool.FileInfo{Path: p, Dir: true}, nil
	}
	return files.Stat(ctx, p)
}

// file returns the backend of what can be a file.
func (c *Composite) file(p string) (tool.Files, error) {
	files, at := c.of(p)
	if p == at || len(c.mounts(p)) > 0 {
		return nil, fail(tool.CodeIsDirectory, p, "")
	}
	return files, nil
}

// Read implements tool.Files.
func (c *Composite) Read(ctx context.Context, p string, limit int64) ([]byte, string, error) {
	files, err := c.file(p)
	if err != nil {
		return nil, "", err
	}
	return files.Read(ctx, p, limit)
}

// ReadAt implements tool.Files.
func (c *Composite) ReadAt(ctx context.Context, p string, off int64, limit int) ([]byte, int64, error) {
	files, err := c.file(p)
	if err != nil {
		return nil, 0, err
	}
	return files.ReadAt(ctx, p, off, limit)
}

// Write implements tool.Files.
func (c *Composite) Write(ctx context.Context, p string, content []byte, ifHash string) (string, error) {
	files, err := c.file(p)
	if err != nil {
		return "", err
	}
	return files.Write(ctx, p, content, ifHash)
}

// Delete implements tool.Files.
func (c *Composite) Delete(ctx context.Context, p string) error {
	files, at := c.of(p)
	if p == at || len(c.mounts(p)) > 0 {
		return fail(tool.CodeDenied, p, "a place is mounted here; delete what is in it")
	}
	return files.Delete(ctx, p)
}

// gather asks the backend of a directory and those mounted beneath it, and
// drops what a mount hides.
func gather[T any](c *Composite, dir string, pathOf func(T) string, limit int, ask func(files tool.Files, dir string) ([]T, bool, error)) ([]T, bool, error) {
	files, at := c.of(dir)
	all, truncated, err := ask(files, dir)
	if err != nil && !c.missing(err, dir, at) {
		return nil, false, err
	}
	mounts := c.mounts(dir)
	all = slices.DeleteFunc(all, func(x T) bool { _, in := c.of(pathOf(x)); return in != at })
	for _, r := range mounts {
		some, more, err := ask(r.Files, r.At)
		if err != nil && !c.missing(err, r.At, r.At) {
			return nil, false, err
		}
		some = slices.DeleteFunc(some, func(x T) bool { _, in := c.of(pathOf(x)); return in != r.At })
		all, truncated = append(all, some...), truncated || more
	}
	if len(mounts) > 0 {
		slices.SortStableFunc(all, func(a, b T) int { return strings.Compare(pathOf(a), pathOf(b)) })
	}
	if len(all) > limit {
		all, truncated = all[:limit], true
	}
	return all, truncated, nil
}

// Glob implements tool.Files.
func (c *Composite) Glob(ctx context.Context, dir, pattern string, limit int) ([]tool.FileInfo, bool, error) {
	g, err := ParseGlob(pattern)
	if err != nil {
		return nil, false, err
	}
	pathOf := func(f tool.FileInfo) string { return f.Path }
	return gather(c, dir, pathOf, limit, func(files tool.Files, in string) ([]tool.FileInfo, bool, error) {
		var all []tool.FileInfo
		truncated := false
		for _, p := range beneath(g, pattern, dir, in) {
			some, more, err := files.Glob(ctx, in, p, limit)
			if err != nil {
				return nil, false, err
			}
			all, truncated = append(all, some...), truncated || more
		}
		return unique(all, pathOf), truncated, nil
	})
}

// beneath is what a pattern about dir means in a directory beneath it.
func beneath(g *Glob, pattern, dir, in string) []string {
	if in == dir {
		return []string{pattern}
	}
	return g.Beneath(relative(dir, in))
}

// unique drops repeated paths: several patterns may find the same file.
func unique[T any](all []T, pathOf func(T) string) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(x T) bool {
		p := pathOf(x)
		defer func() { seen[p] = true }()
		return seen[p]
	})
}

// Grep implements tool.Files.
func (c *Composite) Grep(ctx context.Context, dir string, pattern tool.Pattern, glob string, limit int) ([]tool.Match, bool, error) {
	var g *Glob
	if glob != "" {
		var err error
		if g, err = ParseGlob(glob); err != nil {
			return nil, false, err
		}
	}
	return gather(c, dir, func(m tool.Match) string { return m.Path }, limit, func(files tool.Files, in string) ([]tool.Match, bool, error) {
		if g == nil || in == dir {
			return files.Grep(ctx, in, pattern, glob, limit)
		}
		var all []tool.Match
		truncated := false
		for _, p := range g.Beneath(relative(dir, in)) {
			some, more, err := files.Grep(ctx, in, pattern, p, limit)
			if err != nil {
				return nil, false, err
			}
			all, truncated = append(all, some...), truncated || more
		}
		type line struct {
			path string
			line int
		}
		seen := map[line]bool{}
		all = slices.DeleteFunc(all, func(m tool.Match) bool {
			defer func() { seen[line{m.Path, m.Line}] = true }()
			return seen[line{m.Path, m.Line}]
		})
		return all, truncated, nil
	})
}
