package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/skete-dev/skete/guest/process/task"
)

// This file finds the processes that hold files: open, mapped, or as
// their working directory.
//
// A process that has a file open when another one is put in its place by a
// rename goes on with the old one, without any error. That is what Replaced says.
//
// Programs of the sandbox choose what stands in /proc (names, numbers of
// files), so every read is bounded. Everything is safe for concurrent use.

// Bounds of one look.
const (
	pathsMax   = 20      // of one holder
	holdersMax = 1000    // of all
	filesMax   = 1 << 16 // that one process has open
	wordsMax   = 200     // bytes of a command
)

// holder is a process that holds files.
type holder struct {
	PID     int
	Command string
	// Paths are the files; More says that there are others.
	Paths []string
	More  bool
	// Replaced: at least one is another file now, or gone.
	Replaced bool
}

// pathSet is a set of paths and all beneath them.
type pathSet map[string]bool

// pathsOf makes a set; the paths are absolute.
func pathsOf(list [][]byte) pathSet {
	s := make(pathSet, len(list))
	for _, p := range list {
		s[filepath.Clean(string(p))] = true
	}
	return s
}

// Has reports whether a path is in the set, or beneath a path that is.
func (s pathSet) Has(path string) bool {
	if len(s) == 0 || !filepath.IsAbs(path) {
		return false
	}
	for {
		if s[path] {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}

// findHolders looks at every process that skip does not name. more: there were too
// many holders, or the look was not whole.
func findHolders(paths pathSet, skip func(pid int) bool) (found []holder, more bool) {
	for _, t := range task.Now() {
		if t.State == 'Z' || t.State == 'X' || skip(t.PID) {
			continue
		}
		h := holder{PID: t.PID}
		more = h.look(paths) || more
		if len(h.Paths) == 0 {
			continue
		}
		if len(found) == holdersMax {
			return found, true
		}
		h.Command = commandOf(t.PID)
		found = append(found, h)
	}
	return found, more
}

// look finds what one process holds; true: not all could be seen.
func (h *holder) look(paths pathSet) bool {
	h.link(paths, task.Path(h.PID, "cwd"))
	dir := task.Path(h.PID, "fd")
	f, err := os.Open(dir)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	names, _ := f.Readdirnames(filesMax)
	f.Close()
	for _, n := range names {
		h.link(paths, dir+"/"+n)
	}
	for line := range strings.Lines(task.Read(task.Path(h.PID, "maps"))) {
		if name, inode, ok := mappedFile(strings.TrimSuffix(line, "\n")); ok {
			h.mapping(paths, name, inode)
		}
	}
	return len(names) == filesMax
}

// deleted is what the kernel writes behind the name of a file that has none.
const deleted = " (deleted)"

// link looks at a link of /proc, which leads to the file itself and reads as
// the name that it had.
func (h *holder) link(paths pathSet, link string) {
	name, err := os.Readlink(link)
	if err != nil {
		return
	}
	bare, gone := strings.CutSuffix(name, deleted)
	if !paths.Has(name) && !(gone && paths.Has(bare)) {
		return
	}
	held, err := os.Stat(link)
	if err != nil {
		return // closed meanwhile
	}
	if there, err := os.Lstat(name); err == nil && os.SameFile(held, there) {
		h.add(name, false) // also one that is really called so
		return
	}
	h.add(bare, true)
}

// mapping looks at a mapped file. Its inode tells whether it is still the one
// at its path: not every process that may look can reach the file itself.
func (h *holder) mapping(paths pathSet, name string, inode uint64) {
	bare, gone := strings.CutSuffix(name, deleted)
	if !paths.Has(bare) {
		return
	}
	replaced := gone
	if info, err := os.Lstat(bare); err != nil {
		replaced = true
	} else if st, ok := info.Sys().(*syscall.Stat_t); ok && inode != 0 {
		replaced = replaced || st.Ino != inode
	}
	h.add(bare, replaced)
}

func (h *holder) add(path string, replaced bool) {
	h.Replaced = h.Replaced || replaced
	if slices.Contains(h.Paths, path) {
		return
	}
	if len(h.Paths) == pathsMax {
		h.More = true
		return
	}
	h.Paths = append(h.Paths, path)
}

// mappedFile parses a line of /proc/<pid>/maps:
// "start-end perms offset major:minor inode   name".
func mappedFile(line string) (name string, inode uint64, ok bool) {
	rest := line
	var field [5]string
	for i := range field {
		rest = strings.TrimLeft(rest, " ")
		field[i], rest, ok = strings.Cut(rest, " ")
		if !ok {
			return "", 0, false
		}
	}
	name = strings.TrimLeft(rest, " ")
	if !strings.HasPrefix(name, "/") {
		return "", 0, false
	}
	inode, err := strconv.ParseUint(field[4], 10, 64)
	return unescape(name), inode, err == nil
}

// unescape undoes what the kernel writes for a line feed in a name.
func unescape(s string) string { return strings.ReplaceAll(s, `\012`, "\n") }

// commandOf is how a process was called, in one line.
func commandOf(pid int) string {
	words := strings.TrimRight(task.Read(task.Path(pid, "cmdline")), "\x00")
	words = strings.Join(strings.Fields(strings.ReplaceAll(words, "\x00", " ")), " ")
	if len(words) > wordsMax {
		words = words[:wordsMax]
	}
	return strings.ToValidUTF8(words, "\uFFFD")
}
