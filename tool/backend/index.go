package backend

import (
	"context"
	"path"
	"sort"
	"strings"

	"github.com/skete-dev/skete/tool"
)

// grepBytesMax: larger files are not searched.
const grepBytesMax = 16 << 20

func fail(code, p, hint string) error { return &tool.FileError{Code: code, Path: p, Hint: hint} }

func notFound(p string) error { return fail(tool.CodeNotFound, p, "") }

// index is all files of a backend, sorted by path; directories are what their
// paths say.
type index []tool.FileInfo

// find returns the file at a path.
func (x index) find(p string) (tool.FileInfo, bool) {
	i := sort.Search(len(x), func(i int) bool { return x[i].Path >= p })
	if i < len(x) && x[i].Path == p {
		return x[i], true
	}
	return tool.FileInfo{}, false
}

// beneath returns the files in a directory and in those in it.
func (x index) beneath(dir string) index {
	prefix := strings.TrimSuffix(dir, "/") + "/"
	from := sort.Search(len(x), func(i int) bool { return x[i].Path >= prefix })
	n := sort.Search(len(x)-from, func(i int) bool { return !strings.HasPrefix(x[from+i].Path, prefix) })
	return x[from : from+n]
}

// stat describes a file, or a directory that has files beneath it.
func (x index) stat(p string) (tool.FileInfo, error) {
	if f, ok := x.find(p); ok {
		return f, nil
	}
	if in := x.beneath(p); len(in) > 0 || p == "/" {
		return tool.FileInfo{Path: p, Dir: true}, nil
	}
	return tool.FileInfo{}, x.missing(p)
}

// missing says why there is nothing at a path.
func (x index) missing(p string) error {
	if file, ok := x.above(p); ok {
		return fail(tool.CodeInvalidPath, p, file+" is a file")
	}
	return notFound(p)
}

// above returns a file that stands where p needs a directory.
func (x index) above(p string) (string, bool) {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if _, ok := x.find(dir); ok {
			return dir, true
		}
	}
	return "", false
}

// file returns the regular file at a path.
func (x index) file(p string) (tool.FileInfo, error) {
	f, err := x.stat(p)
	if err == nil && f.Dir {
		err = fail(tool.CodeIsDirectory, p, "")
	}
	return f, err
}

// mayWrite reports what keeps a file from being written at a path.
func (x index) mayWrite(p string) error {
	if file, ok := x.above(p); ok {
		return fail(tool.CodeInvalidPath, p, file+" is a file")
	}
	if len(x.beneath(p)) > 0 || p == "/" {
		return fail(tool.CodeIsDirectory, p, "")
	}
	return nil
}

// dir returns what is beneath a directory that has to be one.
func (x index) dir(p string) (index, error) {
	d, err := x.stat(p)
	if err != nil {
		return nil, err
	}
	if !d.Dir {
		return nil, fail(tool.CodeInvalidPath, p, "it is a file, not a directory")
	}
	return x.beneath(p), nil
}

func (x index) list(p string) ([]tool.FileInfo, error) {
	in, err := x.dir(p)
	if err != nil {
		return nil, err
	}
	var list []tool.FileInfo
	for _, f := range in {
		name, _, deeper := strings.Cut(relative(p, f.Path), "/")
		if deeper {
			f = tool.FileInfo{Path: path.Join(p, name), Dir: true}
		}
		if n := len(list); n > 0 && list[n-1].Path == f.Path {
			continue
		}
		list = append(list, f)
	}
	// The order of whole paths is not that of names: "a-b" comes before "a/c".
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
	unique := list[:0]
	for _, f := range list {
		if n := len(unique); n == 0 || unique[n-1].Path != f.Path {
			unique = append(unique, f)
		}
	}
	return unique[:min(len(unique), tool.ListMax)], nil
}

func (x index) glob(p, pattern string, limit int) (files []tool.FileInfo, truncated bool, err error) {
	g, err := ParseGlob(pattern)
	if err != nil {
		return nil, false, err
	}
	in, err := x.dir(p)
	for _, f := range in {
		if !g.Match(relative(p, f.Path)) {
			continue
		}
		if len(files) == limit {
			return files, true, nil
		}
		files = append(files, f)
	}
	return files, false, err
}

// grep searches the files beneath p, or the file p.
func (x index) grep(ctx context.Context, p string, pattern tool.Pattern, glob string, limit int, read func(context.Context, tool.FileInfo) ([]byte, error)) (found []tool.Match, truncated bool, err error) {
	var g *Glob
	if glob != "" {
		if g, err = ParseGlob(glob); err != nil {
			return nil, false, err
		}
	}
	matcher, err := Matcher(pattern)
	if err != nil {
		return nil, false, err
	}
	var in index
	base := path.Dir(p)
	if f, ok := x.find(p); ok {
		in = index{f}
	} else if in, err = x.dir(p); err == nil {
		base = p
	}
	for _, f := range in {
		if f.Bytes > grepBytesMax || g != nil && !g.Match(relative(base, f.Path)) {
			continue
		}
		content, err := read(ctx, f)
		if err != nil {
			return nil, false, err
		}
		lines, more := matcher.lines(f.Path, content, limit-len(found))
		if found = append(found, lines...); more {
			return found, true, nil
		}
	}
	return found, false, err
}

// relative is the path of p beneath dir.
func relative(dir, p string) string {
	return strings.TrimPrefix(p[len(strings.TrimSuffix(dir, "/")):], "/")
}

// slice is what ReadAt returns of a content that is in memory.
func slice(content []byte, off int64, limit int) []byte {
	if off < 0 || off >= int64(len(content)) {
		return nil
	}
	content = content[off:]
	return content[:min(len(content), max(limit, 0))]
}

// expected holds a file against the hash that a write wants to replace.
func expected(p, ifHash, have string, exists bool) error {
	switch {
	case ifHash == "", ifHash == tool.Absent && !exists, ifHash == have && exists:
		return nil
	case ifHash == tool.Absent:
		return fail(tool.CodeConflict, p, "the file exists already")
	case !exists:
		return fail(tool.CodeConflict, p, "the file is gone")
	}
	return fail(tool.CodeConflict, p, "the file has changed")
}
