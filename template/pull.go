package template

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/oci"
)

// Progress says how far something is.
type Progress struct {
	Stage string // "pull" or "unpack"
	Layer string // digest that Done and Total are about; "" for a remark
	Done  int64
	Total int64
	Text  string // in words: what is tried again, and why
}

// PullOptions are a pull's.
type PullOptions struct {
	Name         string // of the template; "" = the last part of the repository's name
	Platform     string // "" = this machine's
	InsecureHTTP bool
	Auth         oci.Auth
	// Backoff is the first pause before something is tried again; 0 = 500 ms.
	Backoff time.Duration
}

// Pull makes a template of an image in a registry. What was fetched before an
// error or a kill is not fetched again. tell is called from several
// goroutines, one at a time, and must be quick.
//
// Unavailable: the registry cannot be reached; Denied: it wants another name
// and password; Corrupt: it sent what is not what it should be.
func (s *Store) Pull(ctx context.Context, ref string, o PullOptions, tell func(Progress)) (Info, error) {
	info, err := s.pull(ctx, ref, o, tell)
	if err != nil {
		return Info{}, fmt.Errorf("pull %.200q: %w", ref, importError(err))
	}
	return info, nil
}

func (s *Store) pull(ctx context.Context, text string, o PullOptions, tell func(Progress)) (Info, error) {
	ref, err := oci.ParseReference(text, o.InsecureHTTP)
	if err != nil {
		return Info{}, err
	}
	name := cmp.Or(o.Name, strings.ToLower(ref.Short()))
	if err := checkNewName(name); err != nil {
		return Info{}, err
	}
	release, err := s.blobs.Use(ctx)
	if err != nil {
		return Info{}, err
	}
	defer release()
	img, err := oci.Pull(ctx, ref, oci.PullOptions{Platform: o.Platform, Auth: o.Auth, Backoff: o.Backoff}, s.blobs, func(e oci.Event) {
		tell(Progress{Stage: "pull", Layer: e.Layer, Done: e.Done, Total: e.Total, Text: e.Text})
	})
	if err != nil {
		return Info{}, err
	}
	return s.fromImage(ctx, name, img, img.Digests(), tell)
}

// fromImage lays an image's layers down, once for all callers.
func (s *Store) fromImage(ctx context.Context, name string, img oci.Image, blobs []string, tell func(Progress)) (Info, error) {
	rec := record{Blobs: blobs, Source: &Source{Reference: img.Reference, Digest: img.Digest, Platform: img.Platform, Config: img.Config}}
	unlock, err := s.Lock(ctx, "layers-"+img.Key())
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	if info, ok, err := s.again(name, img.Key(), rec); ok || err != nil {
		return info, err
	}
	info, err := s.make(ctx, name, rec, func(t *layerTree) error { return s.applyLayers(ctx, t, img, tell) })
	if err != nil {
		return Info{}, err
	}
	data, err := json.Marshal(record{Hash: info.Hash, Bytes: info.Bytes, Skipped: info.Skipped})
	if err != nil {
		return Info{}, err
	}
	return info, s.WriteFile(s.Path(madeDir, img.Key()), data)
}

// again names the tree that the same layers have made before.
func (s *Store) again(name, key string, rec record) (info Info, ok bool, err error) {
	err = s.alone(func() error {
		before, found := s.made(key)
		if !found {
			return nil
		}
		dir := s.Path(treesDir, before.Hash)
		if _, err := os.Stat(dir); err != nil {
			return nil
		}
		rec.Hash, rec.Bytes, rec.Skipped, rec.CreatedAt = before.Hash, before.Bytes, before.Skipped, time.Now().UTC()
		rec.Languages = languagesIn(Rootfs{Dir: dir, Env: rec.environment(rootView{Dir: dir})})
		info, ok = rec.info(name), true
		return s.writeRecord(name, rec)
	})
	return info, ok, err
}

// made says what layers made before.
func (s *Store) made(key string) (record, bool) {
	var r record
	data, err := os.ReadFile(s.Path(madeDir, key))
	return r, err == nil && json.Unmarshal(data, &r) == nil && hashForm().MatchString(r.Hash)
}

func (s *Store) applyLayers(ctx context.Context, t *layerTree, img oci.Image, tell func(Progress)) error {
	for n, l := range img.Layers {
		what := cmp.Or(l.Digest, l.DiffID)
		tell(Progress{Stage: "unpack", Layer: what, Total: l.Size})
		if err := s.applyLayer(ctx, t, l); err != nil {
			return fmt.Errorf("layer %d, %.19s: %w", n+1, what, err)
		}
		tell(Progress{Stage: "unpack", Layer: what, Done: l.Size, Total: l.Size})
	}
	return nil
}

// applyLayer checks what it lays down by the hash of the tar; how that was
// packed does not matter then.
func (s *Store) applyLayer(ctx context.Context, t *layerTree, l oci.Layer) error {
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	limits := s.bounds()
	plain, closePlain, err := oci.UnpackArchive(r, oci.ArchiveLimits{Bytes: 2*limits.Bytes + 1<<20, Ratio: limits.Ratio})
	if errs.Is(err, errs.Invalid) && l.Size == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	defer closePlain()
	ahead := oci.ReadAhead(oci.Verify(plain, l.DiffID, "a layer of the image"))
	defer ahead.Close()
	return applyWhole(ctx, t, ahead, ociLayer)
}
