package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

var fileTools = []*tool{
	does(tool{
		name: "file_read", title: "Read a file", scope: read, hints: reads,
		about: "Read a file, or a part of it. Pictures are shown as pictures.",
	}, readFile),
	does(tool{
		name: "file_write", title: "Write a file", scope: write, hints: destroys | repeats,
		about: "Write a whole file: its readers see the old content or the new one. Directories above it are made. With append it is written behind what is there.",
	}, writeFile),
	does(tool{
		name: "file_edit", title: "Edit a file", scope: write, hints: destroys,
		about: "Replace a text in a file by another. The old text must be there exactly, and once unless all is set.",
	}, editFile),
	does(tool{
		name: "file_list", title: "List a directory", scope: read, hints: reads,
		about: "List a directory, and those beneath it down to depth.",
	}, listFiles),
	does(tool{
		name: "file_stat", title: "Look at a path", scope: read, hints: reads,
		about: "What is at a path: type, size, mode, time, and the SHA-256 of a file if asked for.",
	}, statFile),
	does(tool{
		name: "file_remove", title: "Remove a file", scope: write, hints: destroys | repeats,
		about: "Remove a file or an empty directory, or with recursive whatever is there. What is beneath /workspace comes back by history_undo.",
	}, removeFile),
	does(tool{
		name: "file_search", title: "Search files", scope: read, hints: reads,
		about: "Find lines that match a pattern, or without a pattern the files whose paths match glob.",
	}, searchFiles),
}

// Bounds of files.
const (
	readBytes    = 64 << 10 // if nothing else is asked for
	imageMax     = 512 << 10
	editBytesMax = 8 << 20
	filesMax     = 200
	searchMax    = 100
)

type readIn struct {
	onSandbox
	Path     string `json:"path" about:"absolute, or beneath /workspace"`
	Offset   int64  `json:"offset,omitempty" minimum:"0" about:"the first byte; default 0"`
	Limit    int    `json:"limit,omitempty" minimum:"1" maximum:"131072" about:"bytes; default 65536"`
	Encoding string `json:"encoding,omitempty" enum:"text,base64" about:"default text"`
}

func readFile(ctx context.Context, s *Server, in *readIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	limit := int64(cmp.Or(in.Limit, readBytes))
	data, err := part(ctx, sb.Files(), in.Path, in.Offset, limit+1)
	if err != nil {
		return nil, err
	}
	more := int64(len(data)) > limit
	data = data[:min(int64(len(data)), limit)]
	if in.Encoding == "base64" {
		return withMore(base64.StdEncoding.EncodeToString(data), in.Offset+int64(len(data)), more), nil
	}
	text, ok := textOf(data, more || in.Offset > 0)
	if !ok {
		return readBinary(ctx, sb.Files(), in, data)
	}
	return withMore(text, in.Offset+int64(len(text)), more), nil
}

// part reads up to n bytes from an offset on. From the beginning it asks for no range: an
// empty file has none.
func part(ctx context.Context, f *client.Files, path string, offset, n int64) ([]byte, error) {
	length := n
	if offset == 0 {
		length = 0
	}
	r, err := f.Open(ctx, path, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the connection broke while %.100q was read", path)
	}
	return data, nil
}

// textOf returns bytes as text if they are; of a part a character that is cut at its end is
// left for the next.
func textOf(data []byte, isPart bool) (string, bool) {
	if isPart {
		for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
			if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					data = data[:len(data)-i]
				}
				break
			}
		}
	}
	return string(data), utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
}

// withMore is what was read alone, and in a text of its own where to go on.
func withMore(text string, next int64, more bool) *sdk.CallToolResult {
	if !more {
		return textResult(text)
	}
	return textResult(text, fmt.Sprintf("[… the file goes on; offset %d reads the next part …]", next))
}

func readBinary(ctx context.Context, f *client.Files, in *readIn, head []byte) (*sdk.CallToolResult, error) {
	kind := http.DetectContentType(head)
	switch kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		data, err := part(ctx, f, in.Path, 0, imageMax+1)
		if err != nil {
			return nil, err
		}
		if in.Offset == 0 && len(data) <= imageMax {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{Data: data, MIMEType: kind}}}, nil
		}
	}
	return nil, errs.New(errs.Invalid, "%.200q is no text (%s)", in.Path, kind).WithHint("read it with encoding base64, or look at it by a command")
}

type writeIn struct {
	onSandbox
	Path     string `json:"path" about:"absolute, or beneath /workspace"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" enum:"text,base64" about:"of content; default text"`
	Create   bool   `json:"create_only,omitempty" about:"refuse where something is already"`
	Append   bool   `json:"append,omitempty" about:"write behind what is there"`
	Mode     uint32 `json:"mode,omitempty" maximum:"4095" about:"permission bits as a number: 493 is 0755; default 0644, or what the file has"`
}

func writeFile(ctx context.Context, s *Server, in *writeIn) (*sdk.CallToolResult, error) {
	data := []byte(in.Content)
	if in.Encoding == "base64" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, errs.New(errs.Invalid, "content is no base64")
		}
	}
	if len(data) > inputBytesMax {
		return nil, tooLarge("content", len(data), "write it in parts, all but the first with append")
	}
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	f, err := sb.Files().Write(ctx, in.Path, data, client.WriteOptions{Mode: in.Mode, MakeParents: true, IfAbsent: in.Create, Append: in.Append})
	if err != nil {
		return nil, err
	}
	return textResult(fmt.Sprintf("wrote %d bytes to %s", len(data), f.Path)), nil
}

type editIn struct {
	onSandbox
	Path string `json:"path" about:"absolute, or beneath /workspace"`
	Old  string `json:"old" about:"the text that is replaced, exactly, with enough around it to be there once"`
	New  string `json:"new" about:"the text in its place; empty takes it away"`
	All  bool   `json:"all,omitempty" about:"replace it everywhere"`
}

func editFile(ctx context.Context, s *Server, in *editIn) (*sdk.CallToolResult, error) {
	if in.Old == "" {
		return nil, errs.New(errs.Invalid, "old is empty").WithHint("file_write writes a whole file, and appends")
	}
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	before, err := sb.Files().Read(ctx, in.Path, editBytesMax)
	if err != nil {
		return nil, err
	}
	n := bytes.Count(before, []byte(in.Old))
	switch {
	case n == 0:
		return nil, errs.New(errs.Invalid, "the old text is not in %.200q", in.Path).WithHint("read the file: spaces and line ends count")
	case n > 1 && !in.All:
		return nil, errs.New(errs.Invalid, "the old text is %d times in %.200q", n, in.Path).WithHint("give more of what is around it, or set all")
	}
	after := bytes.ReplaceAll(before, []byte(in.Old), []byte(in.New))
	sum := sha256.Sum256(before)
	f, err := sb.Files().Write(ctx, in.Path, after, client.WriteOptions{IfSHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return nil, err
	}
	return textResult(fmt.Sprintf("replaced %d in %s", n, f.Path)), nil
}

type listFilesIn struct {
	onSandbox
	Path   string `json:"path,omitempty" about:"default /workspace"`
	Depth  int    `json:"depth,omitempty" minimum:"1" maximum:"32" about:"default 1"`
	Offset int    `json:"offset,omitempty" minimum:"0" about:"next_offset of the call before"`
}

type fileView struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Target string `json:"target,omitempty"`
}

func viewOfFile(f api.File) fileView { return fileView{f.Path, f.Type, f.Size, f.Target} }

// here is where relative paths begin.
const here = "."

func listFiles(ctx context.Context, s *Server, in *listFilesIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	p, err := pageOf(sb.Files().List(ctx, cmp.Or(in.Path, here), in.Depth), in.Offset, filesMax, viewOfFile)
	if err != nil {
		return nil, err
	}
	return object(p)
}

type statIn struct {
	onSandbox
	Path string `json:"path" about:"absolute, or beneath /workspace"`
	Hash bool   `json:"hash,omitempty" about:"with the SHA-256 of a file's content"`
}

func statFile(ctx context.Context, s *Server, in *statIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	var f api.File
	if in.Hash {
		f, err = sb.Files().Hash(ctx, in.Path)
	} else {
		f, err = sb.Files().Stat(ctx, in.Path, false)
	}
	if err != nil {
		return nil, err
	}
	return object(f)
}

type removeIn struct {
	onSandbox
	Path      string `json:"path" about:"absolute, or beneath /workspace"`
	Recursive bool   `json:"recursive,omitempty"`
}

func removeFile(ctx context.Context, s *Server, in *removeIn) (*sdk.CallToolResult, error) {
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	n, err := sb.Files().Remove(ctx, in.Path, in.Recursive, false)
	if err != nil {
		return nil, err
	}
	return textResult(fmt.Sprintf("removed %d", n)), nil
}

type searchIn struct {
	onSandbox
	Path       string `json:"path,omitempty" about:"where; default /workspace"`
	Pattern    string `json:"pattern,omitempty" about:"a regular expression (RE2) for lines; left out: files are listed by glob"`
	Literal    bool   `json:"literal,omitempty" about:"pattern is a plain text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Glob       string `json:"glob,omitempty" about:"of paths beneath path, as **/*.go"`
	Context    int    `json:"context,omitempty" minimum:"0" maximum:"10" about:"lines before and after each"`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"1000" about:"default 100"`
}

func searchFiles(ctx context.Context, s *Server, in *searchIn) (*sdk.CallToolResult, error) {
	if in.Pattern == "" && in.Glob == "" {
		return nil, errs.New(errs.Invalid, "neither pattern nor glob is given")
	}
	sb, err := s.sandbox(ctx, in.Sandbox)
	if err != nil {
		return nil, err
	}
	base, limit := cmp.Or(in.Path, here), cmp.Or(in.Limit, searchMax)
	if in.Pattern == "" {
		found, err := sb.Files().Glob(ctx, base, in.Glob, limit)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		for _, f := range found.Items {
			b.WriteString(f.Path + "\n")
		}
		return searchResult(b.String(), found.Truncated), nil
	}
	found, err := sb.Files().Grep(ctx, client.GrepQuery{
		Base: base, Pattern: in.Pattern, Literal: in.Literal, IgnoreCase: in.IgnoreCase, Include: in.Glob, Limit: limit, Context: in.Context,
	})
	if err != nil {
		return nil, err
	}
	return searchResult(matches(found.Items), found.Truncated), nil
}

// matches are lines as grep shows them.
func matches(found []api.GrepMatch) string {
	var b strings.Builder
	for i, m := range found {
		if i > 0 && len(m.Before)+len(m.After) > 0 {
			b.WriteString("--\n")
		}
		for j, line := range m.Before {
			fmt.Fprintf(&b, "%s-%d-%s\n", m.Path, m.Line-len(m.Before)+j, clip.Text(line, lineMax))
		}
		fmt.Fprintf(&b, "%s:%d:%s\n", m.Path, m.Line, clip.Text(m.Text, lineMax))
		for j, line := range m.After {
			fmt.Fprintf(&b, "%s-%d-%s\n", m.Path, m.Line+1+j, clip.Text(line, lineMax))
		}
	}
	return b.String()
}

// lineMax bounds a line in a result that has many.
const lineMax = 500

func clipLine(s string) string { return clip.Line(s, lineMax) }

func searchResult(text string, cut bool) *sdk.CallToolResult {
	switch {
	case text == "":
		text = "nothing was found"
	case cut:
		text += "[… there is more; a narrower path, glob or pattern shows it, or a higher limit …]"
	}
	return textResult(text)
}
