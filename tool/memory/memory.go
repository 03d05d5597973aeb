// Package memory says where an agent's long-term memory is and loads it.
//
// Memory is files: AGENTS.md of the workspace and whatever is beneath
// /memories, which a place.Store keeps across threads. The model changes it
// with write_file and edit_file like any other file; what it finds at the
// beginning of a run is loaded here, once, and logged (thread.Context), so
// that the prompt stays a function of the log.
package memory

import (
	"context"
	"errors"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Where memory is.
const (
	Dir  = "/memories"
	File = Dir + "/AGENTS.md"
)

// Bounds of what is loaded.
const (
	filesMax     = 32
	fileBytesMax = 64 << 10
	allBytesMax  = 256 << 10
)

// Note tells the model where its memory is.
const Note = "Files beneath " + Dir + "/ outlive this conversation; all others belong to it alone. " +
	"What you want to know in later conversations (preferences of people, facts about the project, lessons) goes there: " +
	"keep " + File + " short, it is shown to you at the beginning of each, and put details into files beside it. " +
	"Never write secrets there."

// Files are the files that are loaded unless a definition names others.
func Files(workspace string) []string {
	if workspace == "" {
		return []string{File}
	}
	return []string{path.Join(workspace, "AGENTS.md"), File}
}

// comment is what people write for each other and no model needs.
var comment = pattern.Lazy(`(?s)<!--.*?-->`)

// Load reads memory files in their order. Files that are not there, or cannot
// be read, are left out; HTML comments are removed; long files are cut, and
// say so. An error is the platform's.
func Load(ctx context.Context, files tool.Files, paths []string) ([]thread.ContextFile, error) {
	var loaded []thread.ContextFile
	left := allBytesMax
	for _, p := range paths[:min(len(paths), filesMax)] {
		p, err := tool.CleanPath(p)
		if err != nil {
			continue
		}
		content, size, err := files.ReadAt(ctx, p, 0, min(fileBytesMax, left))
		if fe := (*tool.FileError)(nil); errors.As(err, &fe) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text := strings.TrimSpace(comment().ReplaceAllString(whole(content), ""))
		if int64(len(content)) < size {
			text += "\n[the file goes on; read it for the rest]"
		}
		if text != "" {
			loaded = append(loaded, thread.ContextFile{Path: p, Text: text})
			left -= len(content)
		}
	}
	return loaded, nil
}

// whole makes text of a file's beginning, without the torn character that a
// cut may leave.
func whole(content []byte) string {
	for cut := 0; cut < utf8.UTFMax && len(content) > cut; cut++ {
		if r, size := utf8.DecodeLastRune(content[:len(content)-cut]); r != utf8.RuneError || size > 1 {
			content = content[:len(content)-cut]
			break
		}
	}
	return strings.ToValidUTF8(string(content), "\uFFFD")
}
