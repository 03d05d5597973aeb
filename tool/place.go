package tool

import (
	"context"
	"time"
)

// Files is a place where files are: the sandbox, the thread, a store, a
// directory of the host, or a composite of them by path prefix. Paths are
// absolute, cleaned, UTF-8, with "/" between their parts. The methods and
// their windows are those of deepagents 0.7's BackendProtocol.
//
// Errors are *FileError for what the model can act on; everything else is the
// platform's. Safe for concurrent use.
type Files interface {
	// List names what is directly in a directory, sorted by name.
	List(ctx context.Context, dir string) ([]FileInfo, error)
	// Stat describes one file; Hash is filled in for regular ones when it is cheap (Files decides).
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Read returns the whole file, at most max bytes; FileError too_large beyond.
	Read(ctx context.Context, path string, max int64) (content []byte, hash string, err error)
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
	// Grep finds lines that contain the literal pattern in regular text files.
	Grep(ctx context.Context, dir, pattern, glob string, limit int) (matches []Match, truncated bool, err error)
}

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
	Code string // one of Codes
	Path string // as the agent sees it
}

// Error implements error.
func (e *FileError) Error() string { return e.Code + ": " + e.Path }

// Commands starts programs in a machine. Safe for concurrent use.
type Commands interface {
	// Start runs a command once per key: a key that is known attaches to what
	// was started under it, running or ended. The error is *FileError{CodeInvalidPath}
	// for a bad directory; anything else is the platform's.
	Start(ctx context.Context, key string, c Command) (Process, error)
	// Find returns what was started under a key. NotFound (errs): nothing was.
	Find(ctx context.Context, key string) (Process, error)
}

// Command is a shell command.
type Command struct {
	Shell   string // for /bin/bash -c, or sh
	Dir     string // "" = the workspace
	Env     map[string]string
	Timeout time.Duration // 0 = none; enforced in the guest, by the process group
}

// Process is a started command. It goes on when nobody looks.
type Process interface {
	// Output visits what was written to stdout and stderr, in the order in
	// which it came as far as that is known, from the offsets on, and returns
	// when the command has ended and all was visited; follow false: when all
	// that is there was visited. Dropped bytes (the spool's bound) are told by
	// a chunk with Gap.
	Output(ctx context.Context, from Offsets, follow bool, visit func(Chunk) error) error
	// Wait returns how it ended.
	Wait(ctx context.Context) (Ended, error)
	// Status returns it without waiting; running true = not ended.
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
}
