package template

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// view resolves paths as a program in the sandbox would: links lead where
// they lead inside, never where the same text leads on the host.
type view struct {
	dir   string
	binds []Bind
}

func (r Rootfs) view() view { return view{r.Dir, r.Binds} }

const viewLinksMax = 40

// host says where on the host a path without links in it lies.
func (v view) host(inside string) string {
	best := Bind{Source: v.dir, Target: "/"}
	for _, b := range v.binds {
		if (inside == b.Target || strings.HasPrefix(inside, b.Target+"/")) && len(b.Target) > len(best.Target) {
			best = b
		}
	}
	return filepath.Join(best.Source, strings.TrimPrefix(inside, best.Target))
}

// resolve follows all links of an absolute path and describes what is there.
func (v view) resolve(name string) (string, fs.FileInfo, error) {
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
		if info, err = os.Lstat(v.host(next)); err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > viewLinksMax {
			return "", nil, unix.ELOOP
		}
		target, err := os.Readlink(v.host(next))
		if err != nil {
			return "", nil, err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if info == nil || info.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
		info, _ = os.Lstat(v.host(at)) // a path that ends in "..", or in a link to a directory
	}
	return at, info, nil
}

// program finds an executable file; the result is its path without links.
func (v view) program(name string) (string, error) {
	at, info, err := v.resolve(name)
	if err != nil {
		return "", err
	}
	if info == nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o001 == 0 {
		return "", fs.ErrNotExist
	}
	return at, nil
}

// lookup finds a program in a PATH; the result is the path as found.
func (v view) lookup(tool, pathList string) (string, bool) {
	for _, dir := range filepath.SplitList(pathList) {
		name := path.Join(dir, tool)
		if _, err := v.program(name); err == nil {
			return name, true
		}
	}
	return "", false
}
