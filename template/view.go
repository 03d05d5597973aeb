package template

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// This file finds things in a root file system as a program in the sandbox
// would: links lead where they lead inside, never where the same text leads on
// the host.
//
// A tree is not trusted. All functions only read.

// rootView is a root file system on the host.
type rootView struct {
	Dir   string
	Binds []Bind // shown in it
}

// Bind shows the host's Source at Target in the machine, read-only.
type Bind struct{ Source, Target string }

const viewLinksMax = 40

// host says where on the host a path without links in it lies.
func (t rootView) host(inside string) string {
	best := Bind{Source: t.Dir, Target: "/"}
	for _, b := range t.Binds {
		if (inside == b.Target || strings.HasPrefix(inside, b.Target+"/")) && len(b.Target) > len(best.Target) {
			best = b
		}
	}
	return filepath.Join(best.Source, strings.TrimPrefix(inside, best.Target))
}

// resolve follows all links of an absolute path and describes what is there.
func (t rootView) resolve(name string) (string, fs.FileInfo, error) {
	todo := strings.Split(path.Clean("/"+name), "/")
	at, links := "/", 0
	var info fs.FileInfo
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		var err error
		if info, err = os.Lstat(t.host(next)); err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > viewLinksMax {
			return "", nil, unix.ELOOP
		}
		target, err := os.Readlink(t.host(next))
		if err != nil {
			return "", nil, err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if info == nil || info.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
		info, _ = os.Lstat(t.host(at)) // a path that ends in "..", or in a link to a directory
	}
	return at, info, nil
}

// Program finds an executable file; the result is its path without links.
func (t rootView) Program(name string) (string, error) {
	at, info, err := t.resolve(name)
	if err != nil {
		return "", err
	}
	if info == nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o001 == 0 {
		return "", fs.ErrNotExist
	}
	return at, nil
}

// Lookup finds a program in a PATH; the result is the path as found.
func (t rootView) Lookup(tool, pathList string) (string, bool) {
	for _, dir := range filepath.SplitList(pathList) {
		name := path.Join(dir, tool)
		if _, err := t.Program(name); err == nil {
			return name, true
		}
	}
	return "", false
}
