package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
	"github.com/skete-dev/skete/template"
)

// skeleton is the top level of a template.
type skeleton struct {
	dirs, files []string
	links       map[string]string
	etc         []string // regular files that engines would replace by their own
	temps       []string // those of tempDirs that are directories
	missing     []string // those that are not there
	covered     []string // those that are something else, and get a tmpfs
}

// ownDirs are made by the engine or by us in every machine, whatever the
// template has there.
var ownDirs = []string{"proc", "sys", "dev", "run", path.Base(wire.BootDir), path.Base(stateDir), path.Base(sandbox.WorkspaceDir)}

// engineFiles are what engines put into /etc unless something is mounted there.
var engineFiles = []string{"hostname", "hosts", "resolv.conf"}

// tempDirs need a mount each, or Podman would put a tmpfs without a bound there.
var tempDirs = []string{"tmp", "var/tmp"}

// makeTempDirs makes those that the template lacks. os.Root keeps us inside,
// whatever the template's links say.
func (s skeleton) makeTempDirs(merged string) error {
	root, err := os.OpenRoot(merged)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range s.missing {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if err := root.Chmod(name, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	return nil
}

// tempDir sorts one of tempDirs by what the template has there. A bind's source
// is resolved by the engine, on the host: a link in it would lead out of the
// template. So a link, or what lies behind one, is never bound.
func (s *skeleton) tempDir(dir, name string) {
	for part := range prefixes(name) {
		info, err := os.Lstat(filepath.Join(dir, part))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			s.missing = append(s.missing, name)
			return
		case err != nil || !info.IsDir():
			s.covered = append(s.covered, name)
			return
		}
	}
	s.temps = append(s.temps, name)
}

// prefixes yields "a", "a/b", … of "a/b/…".
func prefixes(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(name) {
			if name[i] == '/' && !yield(name[:i]) {
				return
			}
		}
		yield(name)
	}
}

// readSkeleton looks at the top level of a template. Sockets and devices have
// no place in one and are left out.
func readSkeleton(dir string) (skeleton, error) {
	s := skeleton{links: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case slices.Contains(ownDirs, name):
		case e.IsDir():
			s.dirs = append(s.dirs, name)
		case e.Type().IsRegular():
			s.files = append(s.files, name)
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(filepath.Join(dir, name))
			if err != nil {
				return s, err
			}
			s.links[name] = target
		}
	}
	for _, name := range engineFiles {
		if info, err := os.Lstat(filepath.Join(dir, "etc", name)); err == nil && info.Mode().IsRegular() && slices.Contains(s.dirs, "etc") {
			s.etc = append(s.etc, path.Join("etc", name))
		}
	}
	for _, name := range tempDirs {
		s.tempDir(dir, name)
	}
	return s, nil
}

// mounts binds the top level of a machine's overlay into the skeleton. A
// directory that the template binds from the host is left to that bind.
func (s skeleton) mounts(merged string, binds []template.Bind) []engine.Mount {
	var ms []engine.Mount
	for _, name := range slices.Concat(s.dirs, s.files, s.etc, s.temps, s.missing) {
		if slices.ContainsFunc(ms, func(m engine.Mount) bool { return m.Target == "/"+name }) {
			continue
		}
		target := "/" + name
		if slices.ContainsFunc(binds, func(b template.Bind) bool { return b.Target == target }) {
			continue
		}
		ms = append(ms, bind(filepath.Join(merged, name), target, false))
	}
	return ms
}

// archive is an open tar archive.
type archive struct {
	io.ReadCloser
	err func() error // what went wrong in writing it; called when all is read
}

// rootEntry keeps Podman from mounting files of its own over /etc/passwd and
// /etc/group, which it does where the image does not know the user. The guest
// sees the template's, never these.
const rootEntry = "root:x:0:\n"

// archive returns the skeleton as an image's content, and the hash of that.
// The same top level makes the same bytes.
func (s skeleton) archive() (archiver, string) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf) // in memory nothing fails but a name without end
	dirs := slices.Concat(ownDirs, s.dirs, []string{"etc"})
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, name := range dirs {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: dirMode(name), Format: tar.FormatPAX})
	}
	for _, name := range s.files {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Format: tar.FormatPAX})
	}
	for _, name := range []string{"etc/passwd", "etc/group"} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(rootEntry)), Format: tar.FormatPAX})
		_, _ = io.WriteString(w, rootEntry)
	}
	names := make([]string, 0, len(s.links))
	for name := range s.links {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: s.links[name], Mode: 0o777, Format: tar.FormatPAX})
	}
	_ = w.Close()
	sum := sha256.Sum256(buf.Bytes())
	content := func(context.Context) (archive, error) {
		return archive{io.NopCloser(bytes.NewReader(buf.Bytes())), func() error { return nil }}, nil
	}
	return content, hex.EncodeToString(sum[:12])
}

// dirMode: what only the guest may enter.
func dirMode(name string) int64 {
	if name == path.Base(wire.BootDir) || name == path.Base(stateDir) {
		return 0o700
	}
	return 0o755
}
