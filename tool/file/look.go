package file

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/skete-dev/skete/tool"
)

// Bounds of searches.
const (
	globMax     = 1000
	grepMax     = 1000 // deepagents' cap
	searchLimit = 10 * time.Second
)

// ls lists a directory.
type ls struct{ base }

type lsArgs struct {
	Path string `json:"path"`
}

// Effect implements tool.Tool.
func (ls) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[lsArgs](args)
	return reads(a.Path)
}

// Run implements tool.Tool.
func (t ls) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := decode[lsArgs](req.Args)
	if bad != nil {
		return *bad, nil
	}
	p, bad := t.clean(a.Path)
	if bad != nil {
		return *bad, nil
	}
	list, err := t.env.Files.List(ctx, p)
	if err != nil {
		return failed(err)
	}
	if len(list) == 0 {
		return whole(tool.Text("No files found in " + show(p))), nil
	}
	lines := make([]string, len(list))
	for i, f := range list {
		lines[i] = describe(f)
	}
	return t.results(lines, len(list) >= tool.ListMax, "use glob with a pattern"), nil
}

// describe is a line of a listing: directories end in "/".
func describe(f tool.FileInfo) string {
	if f.Dir {
		return show(strings.TrimSuffix(f.Path, "/") + "/")
	}
	return fmt.Sprintf("%s  (%d bytes)", show(f.Path), f.Bytes)
}

// listFiles is ls for models that answer in strict JSON: without a path, it
// lists the working directory.
type listFiles struct{ ls }

// Effect implements tool.Tool.
func (t listFiles) Effect(args json.RawMessage) tool.Effect { return t.ls.Effect(t.complete(args)) }

// Run implements tool.Tool.
func (t listFiles) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	req.Args = t.complete(req.Args)
	return t.ls.Run(ctx, req)
}

func (t listFiles) complete(args json.RawMessage) json.RawMessage {
	a, bad := decode[lsArgs](args)
	if bad != nil || a.Path != "" {
		return args
	}
	full, _ := json.Marshal(lsArgs{Path: searchDir(t.env)}) // a string
	return full
}

// glob finds files by name.
type glob struct{ base }

type globArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// Effect implements tool.Tool.
func (t glob) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[globArgs](args)
	return reads(orDefault(a.Path, searchDir(t.env)))
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Run implements tool.Tool.
func (t glob) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := decode[globArgs](req.Args)
	if bad != nil {
		return *bad, nil
	}
	dir, bad := t.clean(orDefault(a.Path, searchDir(t.env)))
	if bad != nil {
		return *bad, nil
	}
	dir, pattern := t.anchor(dir, a.Pattern, a.Path == "")
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	files, truncated, err := t.env.Files.Glob(ctx, dir, pattern, globMax)
	if err != nil {
		return failed(err)
	}
	if len(files) == 0 {
		return whole(tool.Text(fmt.Sprintf("No files found for %q in %s", a.Pattern, show(dir)))), nil
	}
	lines := make([]string, len(files))
	for i, f := range files {
		lines[i] = show(f.Path)
	}
	return t.results(lines, truncated, "use a narrower pattern or path"), nil
}

// anchor takes an absolute pattern for what it says: models write
// /workspace/src/*.go where they could have written src/*.go. Where no path
// was given, the search begins at the fixed beginning of the pattern.
func (base) anchor(dir, pattern string, anywhere bool) (string, string) {
	if rest, ok := strings.CutPrefix(pattern, strings.TrimSuffix(dir, "/")+"/"); ok && dir != "/" {
		return dir, "/" + rest
	}
	fixed, rest, found := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	if !anywhere || !strings.HasPrefix(pattern, "/") || !found || strings.ContainsAny(fixed, `*?[{\`) {
		return dir, pattern
	}
	return "/" + fixed, "/" + rest
}

// grep finds lines by a literal text or a regular expression.
type grep struct{ base }

type grepArgs struct {
	Pattern    string `json:"pattern"`
	Regexp     bool   `json:"regexp"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	OutputMode string `json:"output_mode"`
	MaxCount   int    `json:"max_count"`
}

// Effect implements tool.Tool.
func (t grep) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[grepArgs](args)
	return reads(orDefault(a.Path, searchDir(t.env)))
}

// Run implements tool.Tool.
func (t grep) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := decode[grepArgs](req.Args)
	if bad != nil {
		return *bad, nil
	}
	dir, bad := t.clean(orDefault(a.Path, searchDir(t.env)))
	if bad != nil {
		return *bad, nil
	}
	limit := grepMax
	if a.MaxCount > 0 {
		limit = min(a.MaxCount, grepMax)
	}
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	_, a.Glob = t.anchor(dir, a.Glob, false)
	found, truncated, err := t.env.Files.Grep(ctx, dir, tool.Pattern{Text: a.Pattern, Regexp: a.Regexp}, a.Glob, limit)
	if err != nil {
		return failed(err)
	}
	if len(found) == 0 {
		return whole(tool.Text(fmt.Sprintf("No matches found for %q in %s", a.Pattern, show(dir)))), nil
	}
	return t.results(matchLines(found, a.OutputMode), truncated, "use a narrower pattern, path or glob"), nil
}

// matchLines writes matches as the mode wants them.
func matchLines(found []tool.Match, mode string) (lines []string) {
	count, last := map[string]int{}, ""
	for _, m := range found {
		count[m.Path]++
	}
	for i, m := range found {
		if i == 0 || m.Path != last {
			last = m.Path
			switch mode {
			case "content":
				lines = append(lines, show(m.Path)+":")
			case "count":
				lines = append(lines, fmt.Sprintf("%s: %d", show(m.Path), count[m.Path]))
			default:
				lines = append(lines, show(m.Path))
			}
		}
		if mode == "content" {
			lines = append(lines, fmt.Sprintf("  %d: %s", m.Line, m.Text))
		}
	}
	return lines
}

// remove deletes files and directories.
type remove struct{ base }

type pathArgs struct {
	FilePath string `json:"file_path"`
}

// Effect implements tool.Tool.
func (remove) Effect(args json.RawMessage) tool.Effect {
	a, _ := decode[pathArgs](args)
	return writes(a.FilePath)
}

// Run implements tool.Tool. Run again, it takes a missing file for its own work.
func (t remove) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, bad := decode[pathArgs](req.Args)
	if bad != nil {
		return *bad, nil
	}
	p, bad := t.clean(a.FilePath)
	if bad != nil {
		return *bad, nil
	}
	if p == "/" || p == path.Clean(searchDir(t.env)) {
		return whole(tool.Fail(tool.CodeDenied, "Error: permission_denied: "+show(p)+" itself cannot be deleted; delete what is in it")), nil
	}
	r, err := failed(t.env.Files.Delete(ctx, p))
	if r.Code == tool.CodeNotFound && req.Again || err == nil && !r.Failed {
		return whole(tool.Text("Deleted " + show(p))), nil
	}
	return r, err
}
