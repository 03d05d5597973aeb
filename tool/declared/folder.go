package declared

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
)

// Bounds of a folder of tools.
const (
	toolsMax      = 200
	filesBytesMax = 256 << 10 // of the files beside a manifest, which every run keeps
)

// Entry is a tool of a folder.
type Entry struct {
	Name     string
	File     string // of the manifest, in the folder
	Manifest Manifest
	Files    []skill.Entry // beside the manifest
	Err      error         // why it cannot be used
}

// Folder is the tools of a directory as it is when they are asked for: NAME.yaml, or
// NAME/tool.yaml with files beside it. A file that is broken breaks its tool alone. Safe for
// concurrent use.
type Folder struct {
	dir string

	mu      sync.Mutex
	stamp   string // of the files that were read
	entries []Entry
}

// NewFolder returns the tools of a directory, which need not be there.
func NewFolder(dir string) *Folder { return &Folder{dir: dir} }

// Version changes when a file does.
func (f *Folder) Version() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read()
	return f.stamp
}

// List returns the tools as they are now, sorted by name.
func (f *Folder) List() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read()
	return f.entries
}

// read takes what changed. Precondition: the lock is held.
func (f *Folder) read() {
	names, stamp := look(f.dir)
	if stamp == f.stamp && f.entries != nil {
		return
	}
	f.stamp, f.entries = stamp, []Entry{}
	for i, name := range names {
		e := load(f.dir, name)
		switch j := slices.IndexFunc(f.entries, func(o Entry) bool { return o.Name == e.Name }); {
		case i >= toolsMax:
			e.Manifest, e.Files, e.Err = Manifest{}, nil, errs.New(errs.Limit, "%s: there are more than %d tools", name, toolsMax)
		case j >= 0:
			e.Manifest, e.Files, e.Err = Manifest{}, nil, errs.New(errs.Invalid, "%s: the tool %s is in %s too", name, e.Name, f.entries[j].File)
		}
		f.entries = append(f.entries, e)
	}
	slices.SortStableFunc(f.entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

// look lists the manifests of a directory, and makes a stamp that changes with any file.
func look(dir string) (names []string, stamp string) {
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(&b, "%v\n", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") {
			continue
		}
		whole := filepath.Join(dir, e.Name())
		manifest := filepath.Join(e.Name(), manifestFile)
		if info, err := os.Stat(filepath.Join(dir, manifest)); err == nil && info.Mode().IsRegular() {
			names = append(names, manifest)
			stampTree(&b, whole)
		} else if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
			names = append(names, e.Name())
			stampTree(&b, whole)
		}
	}
	return names, b.String()
}

func stampTree(b *strings.Builder, root string) {
	n := 0
	_ = filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		info, serr := os.Stat(name) // what a link leads to counts
		if n++; n > skill.FilesMax {
			return fs.SkipAll
		}
		if err = errors.Join(err, serr); err != nil {
			fmt.Fprintf(b, "%s %v\n", name, err)
			return nil
		}
		fmt.Fprintf(b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		return nil
	})
}

// Load reads a manifest of the host, and the files beside one that is called tool.yaml.
func Load(file string) Entry {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, manifestFile)
	}
	if whole, err := filepath.Abs(file); err == nil {
		file = whole
	}
	if filepath.Base(file) == manifestFile {
		dir := filepath.Dir(file)
		return load(filepath.Dir(dir), filepath.Join(filepath.Base(dir), manifestFile))
	}
	return load(filepath.Dir(file), filepath.Base(file))
}

func load(dir, name string) Entry {
	e := Entry{Name: nameOf(filepath.ToSlash(name)), File: name}
	data, err := readFile(filepath.Join(dir, name))
	if err == nil {
		e.Manifest, err = Parse(name, data)
	}
	if err == nil && filepath.Base(name) == manifestFile {
		e.Files, err = beside(filepath.Join(dir, filepath.Dir(name)), name)
	}
	if err != nil {
		e.Manifest, e.Files, e.Err = Manifest{}, nil, err
		return e
	}
	e.Name = e.Manifest.Name
	return e
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, errs.New(errs.NotFound, "%s: it cannot be read", filepath.Base(name))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, FileBytesMax+1)) // Parse refuses one that is larger
	if err != nil {
		return nil, errs.New(errs.Invalid, "%s: it cannot be read", filepath.Base(name))
	}
	return data, nil
}

// beside are the files in the folder of a manifest.
func beside(dir, name string) ([]skill.Entry, error) {
	t, err := skill.Files(dir)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%s: %s", name, errs.Public(err))
	}
	files := slices.DeleteFunc(t.Files, func(e skill.Entry) bool { return e.Path == manifestFile })
	if n := (skill.Tree{Files: files}).Bytes(); n > filesBytesMax {
		return nil, errs.New(errs.Limit, "%s: the files beside it have %d bytes, at most %d are possible", name, n, filesBytesMax).
			WithHint("put what is large into a template")
	}
	return files, nil
}

// pinned is what a run keeps of a tool.
type pinned struct {
	Manifest Manifest      `json:"manifest"`
	Files    []skill.Entry `json:"files,omitempty"`
}

func unpin(data json.RawMessage) (p pinned, err error) { return p, json.Unmarshal(data, &p) }
