package declared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/tool"
)

// This file copies files between the run's sandbox and one of the tool's own.

// inject copies what the arguments name that are files.
func (c *call) inject(ctx context.Context) (*tool.Result, error) {
	paths, bad := c.named()
	if bad != nil || len(paths) == 0 {
		return bad, nil
	}
	if c.p.Files == nil {
		return failed(tool.CodeNotFound, "the agent has no sandbox from which files could be taken"), nil
	}
	m := &mover{from: c.p.Files, to: c.m.Files, files: copiedFilesMax, bytes: copiedBytesMax}
	for _, p := range paths {
		if err := m.tree(ctx, p, p); err != nil {
			return about(err)
		}
	}
	return nil, nil
}

// named are the paths that the arguments name.
func (c *call) named() (paths []string, bad *tool.Result) {
	var args map[string]any
	if len(c.what.Manifest.Files) == 0 || json.Unmarshal(c.req.Args, &args) != nil {
		return nil, nil
	}
	for _, name := range c.what.Manifest.Files {
		list, ok := args[name].([]any)
		if !ok && args[name] != nil {
			list = []any{args[name]}
		}
		for _, x := range list {
			s, _ := x.(string)
			if !strings.HasPrefix(s, "/") && s != "" {
				s = path.Join("/", c.p.Dir, s)
			}
			clean, err := tool.CleanPath(s)
			if err != nil {
				return nil, failed(tool.CodeInvalidPath, "%s: %.200q is no path", name, s)
			}
			if clean == "/" || within(clean, c.notes()) {
				return nil, failed(tool.CodeInvalidPath, "%s: %s cannot be copied", name, clean)
			}
			paths = append(paths, clean)
		}
	}
	return paths, nil
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// handBack copies what the command made into the run's sandbox, and says where it is.
func (c *call) handBack(ctx context.Context) (string, error) {
	found, err := c.artifacts(ctx)
	if err != nil || len(found) == 0 {
		return "", err
	}
	var b strings.Builder
	b.WriteString("\n[files]\n")
	to := path.Join("/", c.p.Dir, resultsDir, c.what.Manifest.Name+"-"+short(c.req.Key))
	m := &mover{from: c.m.Files, to: c.p.Files, files: artifactsMax, bytes: copiedBytesMax}
	for _, f := range found {
		at := f.Path
		if c.own() && c.p.Files != nil {
			at = path.Join(to, strings.TrimPrefix(f.Path, c.m.Dir))
			err := m.file(ctx, f.Path, at)
			if bad, is := errors.AsType[*tool.FileError](err); is {
				fmt.Fprintf(&b, "%s: not handed back: %s %s\n", f.Path, bad.Code, bad.Hint)
				continue
			}
			if err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&b, "%s (%d bytes)\n", at, f.Bytes)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// artifacts are the files that the manifest's globs find.
func (c *call) artifacts(ctx context.Context) ([]tool.FileInfo, error) {
	var found []tool.FileInfo
	for _, glob := range c.what.Manifest.Artifacts {
		infos, _, err := c.m.Files.Glob(ctx, path.Join("/", c.m.Dir), glob, artifactsMax)
		if _, err := about(err); err != nil {
			return nil, err
		}
		for _, f := range infos {
			same := func(o tool.FileInfo) bool { return o.Path == f.Path }
			if !f.Dir && !within(f.Path, c.notes()) && len(found) < artifactsMax && !slices.ContainsFunc(found, same) {
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// mover copies files from one machine to another within bounds.
type mover struct {
	from, to tool.Files
	files    int
	bytes    int64
}

// tree copies a file, or all files of a directory.
func (m *mover) tree(ctx context.Context, from, to string) error {
	info, err := m.from.Stat(ctx, from)
	if err != nil {
		return err
	}
	if !info.Dir {
		return m.file(ctx, from, to)
	}
	list, more, err := m.from.Glob(ctx, from, "**/*", m.files+1)
	if err != nil {
		return err
	}
	if more {
		return m.tooMuch(from)
	}
	for _, f := range list {
		if f.Dir {
			continue
		}
		if err := m.file(ctx, f.Path, path.Join(to, strings.TrimPrefix(f.Path, from))); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) file(ctx context.Context, from, to string) error {
	if m.files--; m.files < 0 {
		return m.tooMuch(from)
	}
	content, _, err := m.from.Read(ctx, from, min(copiedFileMax, m.bytes))
	if err != nil {
		return err
	}
	m.bytes -= int64(len(content))
	_, err = m.to.Write(ctx, to, content, "")
	return err
}

func (*mover) tooMuch(p string) error {
	return &tool.FileError{Code: tool.CodeTooLarge, Path: p, Hint: fmt.Sprintf("at most %d files of %d MiB in all are copied", copiedFilesMax, copiedBytesMax>>20)}
}
