package definition

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// Folder is the agents of a directory as it is when they are asked for: a file that
// was added or changed counts for the next run, and one that is broken breaks its
// agent alone. It is safe for concurrent use.
type Folder struct {
	dir     string
	check   Checker
	others  func() string // see With
	changed func(*Set, error)

	mu    sync.Mutex
	stamp string // of the files that were read
	set   *Set
}

// NewFolder returns the agents of a directory, which need not be there. tools are as
// in Parse. changed is told of each reading that differs from the one before, and of
// the mistakes in it; nil = no one is told.
func NewFolder(dir string, tools []string, changed func(*Set, error)) *Folder {
	if changed == nil {
		changed = func(*Set, error) {}
	}
	return &Folder{dir: dir, check: Checker{Tools: tools}, changed: changed}
}

// With says of which tools that are not built in agents may have, before the Folder is
// used. version changes when covers may answer otherwise.
func (f *Folder) With(covers func(name string) bool, version func() string) *Folder {
	f.check.Covers, f.others = covers, version
	return f
}

// Set returns the agents as they are now.
func (f *Folder) Set() *Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp := stampOf(f.dir)
	var fsys fs.FS
	if stamp != "" {
		fsys = os.DirFS(f.dir)
	}
	if f.others != nil {
		stamp += "\n" + f.others()
	}
	if f.set != nil && stamp == f.stamp {
		return f.set
	}
	set, err := f.check.load(fsys)
	f.set, f.stamp = set, stamp
	f.changed(set, err)
	return set
}

// stampOf changes with each file that is added, removed or written; "" = there is no
// directory.
func stampOf(dir string) string {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", err)
	for _, e := range entries {
		info, err := os.Stat(dir + "/" + e.Name()) // what a link leads to counts
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", e.Name(), err)
			continue
		}
		fmt.Fprintf(&b, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// Resolve is Set.Resolve.
func (f *Folder) Resolve(name string) (Definition, error) { return f.Set().Resolve(name) }

// Complete is Set.Complete.
func (f *Folder) Complete(d Definition) (Definition, error) { return f.Set().Complete(d) }

// List is Set.List.
func (f *Folder) List() []Entry { return f.Set().List() }
