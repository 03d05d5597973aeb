package tool

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Files is a backend of files: the sandbox, the thread, a store, a
// directory of the host, or a composite of them by path prefix. Paths are
// absolute, cleaned, UTF-8, with "/" between their parts. The methods and
// their windows are those of deepagents 0.7's BackendProtocol.
//
// Errors are *FileError for what the model can act on; everything else is the
// platform's. Safe for concurrent use.
type Files interface {
	// List names what is directly in a directory, sorted by name, at most ListMax.
	List(ctx context.Context, dir string) ([]FileInfo, error)
	// Stat describes one file; Hash is filled in for regular ones when it is cheap (Files decides).
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Read returns the whole file, at most max bytes; FileError too_large beyond.
	Read(ctx context.Context, path string, max int64) (content []byte, hash string, err error)
	// ReadAt returns at most max bytes from off on (none behind the end) and
	// the size of the whole file, so that a file of any size can be paged.
	ReadAt(ctx context.Context, path string, off int64, max int) (content []byte, bytes int64, err error)
	// Write creates or replaces a file atomically; parents are made. ifHash:
	// "" = whatever there is; "absent" = only if there is none; else only if
	// the file's hash is this one. FileError conflict otherwise.
	Write(ctx context.Context, path string, content []byte, ifHash string) (hash string, err error)
	// Delete removes a file, or a directory with all beneath it.
	Delete(ctx context.Context, path string) error
	// Glob finds regular files; see deepagents' rules: a bare pattern matches
	// the name at any depth, "/" in front anchors, dot files only when the
	// segment begins with a dot, braces expand. truncated: limit reached.
	Glob(ctx context.Context, dir, pattern string, limit int) (files []FileInfo, truncated bool, err error)
	// Grep finds lines that match the pattern in regular text files. FileError
	// invalid_arguments: it is no regular expression.
	Grep(ctx context.Context, dir string, pattern Pattern, glob string, limit int) (matches []Match, truncated bool, err error)
}

// Pattern is what Grep looks for within a line: literal text, or a regular expression
// of RE2.
type Pattern struct {
	Text   string
	Regexp bool
}

// Bounds of every backend.
const (
	ListMax      = 10_000
	resultsMax   = 10_000 // the most that Glob and Grep are asked for
	LineBytesMax = 4096   // of Match.Text
	PathBytesMax = 4096
)

// Absent is the ifHash of a file that must not be there.
const Absent = "absent"

// FileInfo describes a file.
type FileInfo struct {
	Path     string
	Dir      bool
	Bytes    int64
	Modified time.Time
	Hash     string // sha256, hex; "" = not known
}

// Match is a line that grep found.
type Match struct {
	Path string
	Line int // from 1
	Text string
}

// FileError is a failure that the model can act on.
type FileError struct {
	Code string // CodeNotFound and such
	Path string // as the agent sees it
	// Hint is a sentence for the model about what would work, or "".
	Hint string
}

// Error implements error.
func (e *FileError) Error() string { return e.Code + ": " + e.Path }

// CleanPath checks a path that a model wrote and cleans it. A path is
// absolute, UTF-8 without NUL, has no ".." in it and at most PathBytesMax
// bytes; else the error is *FileError invalid_path with a hint.
func CleanPath(p string) (string, error) {
	why := ""
	switch {
	case p == "":
		why = "the path is empty"
	case len(p) > PathBytesMax:
		p, why = p[:100], "the path is longer than 4096 bytes"
	case strings.IndexByte(p, 0) >= 0 || !utf8.ValidString(p):
		why = "the path has bytes in it that are no text"
	case p[0] == '~':
		why = `"~" is not expanded; write the absolute path`
	case p[0] != '/':
		why = `paths are absolute: they begin with "/"`
	case slices.Contains(strings.Split(p, "/"), ".."):
		why = `".." is not allowed in a path`
	default:
		return path.Clean(p), nil
	}
	return "", &FileError{Code: CodeInvalidPath, Path: strings.ToValidUTF8(p, "\uFFFD"), Hint: why}
}

// Commands starts programs in a machine. Safe for concurrent use.
type Commands interface {
	// Start runs a command once per key: a key that is known attaches to what
	// was started under it, running or ended. The error is *FileError{CodeInvalidPath}
	// for a bad directory; anything else is the platform's.
	Start(ctx context.Context, key string, c Command) (Process, error)
	// Find returns what was started under a key. NotFound (errs): nothing was.
	Find(ctx context.Context, key string) (Process, error)
	// List names what was started under keys with this prefix and is still
	// known, the oldest first, at most ListMax.
	List(ctx context.Context, prefix string) ([]Listed, error)
}

// Listed is one process of a list.
type Listed struct {
	Key     string
	Command string // what was given to the shell
	Started time.Time
	Running bool
	Ended   Ended
}

// Command is a shell command.
type Command struct {
	Shell   string // for /bin/bash -c, or sh
	Dir     string // "" = the workspace
	Env     map[string]string
	Timeout time.Duration // 0 = none; enforced in the guest, by the process group
	// Merge writes stderr where stdout goes, so that their order is the true
	// one; there is only one stream then.
	Merge bool
}

// Process is a started command. It goes on when no caller reads from it.
type Process interface {
	// Output visits what was written to stdout and stderr, in the order in
	// which it came as far as that is known, from the offsets on, and returns
	// when the command has ended and all was visited; follow false: when all
	// that is there was visited. Dropped bytes (the spool's bound) are told by
	// a chunk with Gap.
	Output(ctx context.Context, from Offsets, follow bool, visit func(Chunk) error) error
	// Wait returns how it ended, once what it wrote can be read whole.
	Wait(ctx context.Context) (Ended, error)
	// Status returns it without waiting; running true = not ended. Written may
	// grow for a moment after the end.
	Status(ctx context.Context) (ended Ended, running bool, err error)
	// Kill ends the process group. No error when it has ended already.
	Kill(ctx context.Context) error
}

// Offsets are positions in the two streams, bytes.
type Offsets struct{ Stdout, Stderr int64 }

// Chunk is a piece of output.
type Chunk struct {
	Stderr bool
	Offset int64
	Data   []byte
	Gap    int64 // bytes that were dropped before Data
}

// Ended is how a command ended.
type Ended struct {
	Exit     int    // the status; 128+n after signal n
	Signal   string // "" = none
	TimedOut bool
	// OutOfMemory: the machine's limit ended it.
	OutOfMemory bool
	// Killed: by Kill, or by the shutdown of the machine.
	Killed bool
	// Lost: it is not known how it ended; it was started before the machine was.
	Lost bool
	// Written is how many bytes it wrote so far, also while it is running.
	Written Offsets
}
