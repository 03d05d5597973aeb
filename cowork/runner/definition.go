package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
)

// Bounds of what a tenant keeps.
const (
	definitionPrefix = "definition/"
	versionsMax      = 50  // of one definition; the oldest goes
	definitionsMax   = 200 // of a tenant
)

// Definition is one that the server keeps, or has in its folder.
type Definition struct {
	Name     string    `json:"name"`
	Folder   bool      `json:"-"` // it is a file of the server's folder
	Versions []Version `json:"versions"`
}

// Version is the content of a definition at a time, the newest last.
type Version struct {
	Hash    string    `json:"hash"` // of the text, which is a blob
	Version string    `json:"version,omitempty"`
	File    string    `json:"file"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
}

func definitionKey(tenant, name string) string { return definitionPrefix + tenant + "/" + name }

// Put keeps a definition under its name. The same text again changes nothing.
func (r *Runner) Put(ctx context.Context, tenant, file string, text []byte, by string) (Definition, error) {
	w, err := cowork.Parse(file, text)
	if err != nil {
		return Definition{}, err
	}
	blobs, err := r.c.Threads.Blobs(ctx, tenant)
	if err != nil {
		return Definition{}, err
	}
	hash, err := blobs.Put(ctx, text)
	if err != nil {
		return Definition{}, err
	}
	for range 20 {
		d, revision, err := r.stored(ctx, tenant, w.Name)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return d, err
		}
		if n := len(d.Versions); n > 0 && d.Versions[n-1].Hash == hash {
			return d, nil
		}
		if revision == 0 {
			if err := r.room(ctx, tenant); err != nil {
				return d, err
			}
		}
		d.Name = w.Name
		d.Versions = slices.DeleteFunc(d.Versions, func(v Version) bool { return v.Hash == hash })
		d.Versions = append(d.Versions, Version{Hash: hash, Version: w.Version, File: filepath.Base(file), By: by, At: r.c.Now().UTC().Truncate(time.Second)})
		d.Versions = d.Versions[max(len(d.Versions)-versionsMax, 0):]
		value, err := json.Marshal(d)
		if err != nil {
			return d, err
		}
		if revision == 0 {
			_, err = r.c.Records.Create(ctx, definitionKey(tenant, w.Name), value)
		} else {
			_, err = r.c.Records.Update(ctx, definitionKey(tenant, w.Name), value, revision)
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.Exists) {
			return d, err
		}
	}
	return Definition{}, errs.New(errs.Unavailable, "the definition keeps changing")
}

func (r *Runner) room(ctx context.Context, tenant string) error {
	n := 0
	err := r.c.Records.List(ctx, definitionPrefix+tenant+"/", func(string, []byte, uint64) error { n++; return nil })
	if err == nil && n >= definitionsMax {
		err = errs.New(errs.Limit, "the tenant has %d workflows, at most %d", n, definitionsMax)
	}
	return err
}

func (r *Runner) stored(ctx context.Context, tenant, name string) (Definition, uint64, error) {
	var d Definition
	value, revision, err := r.c.Records.Get(ctx, definitionKey(tenant, name))
	if err != nil {
		return d, 0, err
	}
	if err := json.Unmarshal(value, &d); err != nil {
		return d, 0, errs.Wrap(errs.Corrupt, err, "the record of a workflow cannot be read")
	}
	return d, revision, nil
}

// Definitions lists what a tenant can run by name: what it keeps, and what the folder has
// beside that.
func (r *Runner) Definitions(ctx context.Context, tenant string) ([]Definition, error) {
	var list []Definition
	err := r.c.Records.List(ctx, definitionPrefix+tenant+"/", func(_ string, value []byte, _ uint64) error {
		var d Definition
		if err := json.Unmarshal(value, &d); err != nil {
			return errs.Wrap(errs.Corrupt, err, "the record of a workflow cannot be read")
		}
		list = append(list, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, file := range r.folder() {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if !slices.ContainsFunc(list, func(d Definition) bool { return d.Name == name }) {
			list = append(list, Definition{Name: name, Folder: true, Versions: []Version{{File: filepath.Base(file)}}})
		}
	}
	slices.SortFunc(list, func(a, b Definition) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Text returns a definition's text: of the newest version, or of the one with a hash.
func (r *Runner) Text(ctx context.Context, tenant, name, version string) (file string, text []byte, err error) {
	return r.text(ctx, tenant, name, version)
}

func (r *Runner) text(ctx context.Context, tenant, name, version string) (file string, text []byte, err error) {
	d, _, err := r.stored(ctx, tenant, name)
	if errs.Is(err, errs.NotFound) && version == "" {
		return r.read(name)
	}
	if err != nil {
		return "", nil, err
	}
	at := len(d.Versions) - 1
	if version != "" {
		at = slices.IndexFunc(d.Versions, func(v Version) bool { return strings.HasPrefix(v.Hash, version) })
	}
	if at < 0 {
		return "", nil, errs.New(errs.NotFound, "the workflow %.64q has no version %.64q", name, version)
	}
	blobs, err := r.c.Threads.Blobs(ctx, tenant)
	if err != nil {
		return "", nil, err
	}
	text, err = blobs.Get(ctx, d.Versions[at].Hash)
	return d.Versions[at].File, text, err
}

// Remove forgets a definition; the runs of it keep what they began with.
func (r *Runner) Remove(ctx context.Context, tenant, name string) error {
	_, revision, err := r.stored(ctx, tenant, name)
	if errs.Is(err, errs.NotFound) {
		return noWorkflow(name)
	}
	if err != nil {
		return err
	}
	return r.c.Records.Delete(ctx, definitionKey(tenant, name), revision)
}

var extensions = []string{".yaml", ".yml", ".json"}

func (r *Runner) folder() (files []string) {
	if r.c.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(r.c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.c.Log.Warn("the folder of workflows cannot be read", "dir", r.c.Dir, "err", err)
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(r.c.Dir, e.Name()))
		}
	}
	return files
}

// read reads a definition of the folder as it is now.
func (r *Runner) read(name string) (file string, text []byte, err error) {
	for _, f := range r.folder() {
		if strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)) != name {
			continue
		}
		info, err := os.Stat(f)
		if err == nil && info.Size() > cowork.FileBytesMax {
			return "", nil, errs.New(errs.Limit, "the file of the workflow %s has more than %d bytes", name, cowork.FileBytesMax)
		}
		if err == nil {
			text, err = os.ReadFile(f)
		}
		if err != nil {
			return "", nil, errs.Wrap(errs.Internal, err, "the file of the workflow %s cannot be read", name)
		}
		return filepath.Base(f), text, nil
	}
	return "", nil, noWorkflow(name)
}

func noWorkflow(name string) error {
	return errs.New(errs.NotFound, "there is no workflow %.64q", name).WithHint("`skete workflow list` shows them; `skete workflow run FILE` runs a file")
}

// HashOf is what a definition of this text is called as a version.
func HashOf(text []byte) string { return runs.HashName(string(text)) }
