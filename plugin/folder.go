package plugin

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Bounds of a folder.
const (
	pluginsMax   = 64
	filesMax     = 1000
	fileBytesMax = 8 << 20
	bytesMax     = 16 << 20 // of all files
	depthMax     = 16       // of folders in each other
)

// Plugin is a plug-in as its folder holds it.
type Plugin struct {
	Manifest
	Hash  string // of all files and their names: another hash is another plug-in
	Files int
	Bytes int64
	Tar   []byte // the files, for a machine
}

// Read reads a plug-in's folder. Invalid: the manifest, or a link or another thing that is no
// file. Limit: too much. NotFound: no such folder, or no manifest in it.
func Read(dir string) (*Plugin, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(abs)
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "%s: there is no such folder", name)
	}
	defer root.Close()
	r := reader{root: root, name: name}
	r.tar = tar.NewWriter(&r.out)
	err = r.folder(".", 0)
	if err = errors.Join(err, r.tar.Close()); err != nil {
		return nil, err
	}
	if r.manifest == nil {
		return nil, errs.New(errs.NotFound, "%s: there is no %s in the folder", name, ManifestName)
	}
	m, err := ParseManifest(name+"/"+ManifestName, name, r.manifest)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.out.Bytes())
	return &Plugin{Manifest: m, Hash: hex.EncodeToString(sum[:]), Files: r.files, Bytes: r.bytes, Tar: r.out.Bytes()}, nil
}

// reader reads a folder into a tar that is the same for the same files.
type reader struct {
	root     *os.Root
	name     string
	out      bytes.Buffer
	tar      *tar.Writer
	files    int
	bytes    int64
	manifest []byte
}

func (r *reader) folder(dir string, depth int) error {
	if depth > depthMax {
		return errs.New(errs.Limit, "%s: folders nested deeper than %d", r.name, depthMax)
	}
	entries, err := fs.ReadDir(r.root.FS(), dir) // by name
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: the folder cannot be read", r.name)
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && (e.Name() == "__pycache__" || e.Name() == ".git"):
			continue // of tools of the host
		case e.IsDir():
			err = r.folder(at, depth+1)
		case e.Type().IsRegular():
			err = r.file(at)
		default:
			err = errs.New(errs.Invalid, "%s: %.200q is neither a file nor a folder; links are not taken", r.name, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) file(at string) error {
	f, err := r.root.Open(at)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: %.200q cannot be read", r.name, at)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errs.Wrap(errs.Invalid, err, "%s: %.200q is no file", r.name, at)
	}
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: %.200q cannot be read", r.name, at)
	}
	r.files++
	r.bytes += int64(len(data))
	if len(data) > fileBytesMax || r.bytes > bytesMax || r.files > filesMax {
		return errs.New(errs.Limit, "%s: at most %d files, %d MiB in all, %d MiB each", r.name, filesMax, bytesMax>>20, fileBytesMax>>20)
	}
	if at == ManifestName {
		r.manifest = data
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := r.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: mode, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
		return errs.Wrap(errs.Invalid, err, "%s: %.200q cannot be packed", r.name, at)
	}
	_, err = r.tar.Write(data)
	return err
}

// Found is a folder of plug-ins' folder: a plug-in, or why it is none.
type Found struct {
	Name   string
	Plugin *Plugin
	Err    error
}

// ReadDir reads all plug-ins of a folder, by their names. A folder that is not there has none.
func ReadDir(dir string) ([]Found, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the folder of plug-ins cannot be read")
	}
	var found []Found
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if len(found) == pluginsMax {
			return found, errs.New(errs.Limit, "there are more than %d plug-ins; the rest is left out", pluginsMax)
		}
		p, err := Read(filepath.Join(dir, e.Name()))
		found = append(found, Found{Name: e.Name(), Plugin: p, Err: err})
	}
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}
