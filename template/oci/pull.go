package oci

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skete-dev/skete/errs"
)

const (
	fetchersMax  = 3 // layers at a time
	attemptsMax  = 6 // without having come further in between
	furtherBytes = 64 << 10
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 20 * time.Second
)

// Event says how far a pull is.
type Event struct {
	// Layer is the digest that Done and Total are about, "" for all else.
	Layer string
	Done  int64
	Total int64
	// Text says in words what happens: a retry and its reason.
	Text string
}

// PullOptions are a pull's.
type PullOptions struct {
	Platform string // "" = this machine's
	Auth     Auth
	// Backoff is the first pause before something is tried again; 0 = 500 ms.
	Backoff time.Duration
}

// Pull fetches an image into the cache. tell is called from several
// goroutines, one at a time. What is there stays there after an error, and a
// later pull goes on with it.
func Pull(ctx context.Context, ref Reference, o PullOptions, blobs *BlobCache, tell func(Event)) (Image, error) {
	want, err := ParsePlatform(o.Platform)
	if err != nil {
		return Image{}, err
	}
	var mu sync.Mutex
	p := &puller{ref: ref, want: want, asked: o.Platform != "", blobs: blobs, first: o.Backoff, tell: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		tell(e)
	}}
	if p.first == 0 {
		p.first = backoffFirst
	}
	err = p.retry(ctx, "sign in", func() (bool, error) {
		p.reg, err = dial(ctx, ref, o.Auth)
		return false, err
	})
	if err != nil {
		return Image{}, err
	}
	defer p.reg.close()
	return p.pull(ctx)
}

type puller struct {
	ref   Reference
	want  v1.Platform
	asked bool
	blobs *BlobCache
	first time.Duration
	tell  func(Event)
	reg   *registry
}

// retry tries again what a registry may be able to do later; do says whether
// it came further, which gives it all attempts anew.
func (p *puller) retry(ctx context.Context, what string, do func() (further bool, err error)) error {
	for attempt := 1; ; attempt++ {
		further, err := do()
		if err == nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if further {
			attempt = 1
		}
		if !errs.Temporary(err) || attempt >= attemptsMax {
			return err
		}
		pause := min(p.first<<(attempt-1), backoffMax)
		pause = pause/2 + rand.N(pause/2+1)
		if r, is := errors.AsType[*refused](err); is {
			pause = max(pause, r.after)
		}
		p.tell(Event{Text: what + ": " + errs.Public(err) + "; again in " + pause.Round(10*time.Millisecond).String()})
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func (p *puller) pull(ctx context.Context) (Image, error) {
	data, digest, err := p.manifest(ctx)
	if err != nil {
		return Image{}, err
	}
	m, err := parseManifest(data)
	if err != nil {
		return Image{}, err
	}
	img := Image{Reference: p.ref.String(), Digest: digest}
	config, err := p.config(ctx, m.Config)
	if err != nil {
		return Image{}, err
	}
	diffs, err := img.config(config, p.want, p.asked)
	if err != nil {
		return Image{}, err
	}
	if err := checkCount(diffs, len(m.Layers)); err != nil {
		return Image{}, err
	}
	paths, err := p.layers(ctx, m.Layers)
	if err != nil {
		return Image{}, err
	}
	for n, l := range m.Layers {
		path := paths[n]
		img.Layers = append(img.Layers, Layer{
			Digest: l.Digest.String(), DiffID: diffs[n].String(), Size: l.Size,
			Open: func() (io.ReadCloser, error) { return os.Open(path) },
		})
	}
	return img, nil
}

// manifest follows indexes to the image's manifest.
func (p *puller) manifest(ctx context.Context) (data []byte, digest string, err error) {
	id := p.ref.ref.Identifier()
	if _, ok := p.ref.ref.(name.Digest); ok {
		if err := checkDigest(id); err != nil {
			return nil, "", err
		}
	}
	for range indexDepthMax + 1 {
		err = p.retry(ctx, "the manifest", func() (bool, error) {
			data, _, err = p.reg.manifest(ctx, id)
			return false, err
		})
		if err != nil {
			return nil, "", err
		}
		index, err := parseIndex(data)
		if err != nil {
			return nil, "", err
		}
		if len(index.Manifests) == 0 {
			return data, digestOf(data), nil
		}
		d, err := choose(index, p.want)
		if err != nil {
			return nil, "", err
		}
		if id = d.Digest.String(); checkDigest(id) != nil {
			return nil, "", checkDigest(id)
		}
	}
	return nil, "", errs.New(errs.Limit, "the image's indexes are deeper than %d levels", indexDepthMax)
}

func (p *puller) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Size > documentBytesMax {
		return nil, errs.New(errs.Limit, "the image's configuration has %d bytes", d.Size)
	}
	path, err := p.fetch(ctx, d, func(int64) {})
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// layers fetches all layers, a few at a time; the first error ends the others.
func (p *puller) layers(ctx context.Context, list []v1.Descriptor) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	paths := make([]string, len(list))
	slots := make(chan struct{}, fetchersMax)
	var wg sync.WaitGroup
	for _, d := range list {
		p.tell(Event{Layer: d.Digest.String(), Total: d.Size})
	}
	for n, d := range list {
		wg.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return
			}
			path, err := p.fetch(ctx, d, func(done int64) {
				p.tell(Event{Layer: d.Digest.String(), Done: done, Total: d.Size})
			})
			if err != nil {
				cancel(err)
			}
			paths[n] = path
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return paths, nil
}

func (p *puller) fetch(ctx context.Context, d v1.Descriptor, tell func(int64)) (path string, err error) {
	want := Wanted{Digest: d.Digest.String(), Size: d.Size}
	var best int64
	err = p.retry(ctx, short12(want.Digest), func() (bool, error) {
		before := best
		path, err = p.blobs.Fetch(ctx, want, func(ctx context.Context, offset int64) (io.ReadCloser, int64, error) {
			return p.reg.open(ctx, want.Digest, offset, want.Size)
		}, func(done int64) {
			best = max(best, done)
			tell(done)
		})
		switch {
		case errors.Is(err, errDigest):
			err = p.ref.lied("the layer", want.Digest)
		case errors.Is(err, errShort):
			err = p.ref.failed(err, "read a layer")
		}
		return best-before >= furtherBytes, err
	})
	return path, err
}

// short12 is a digest as people read it.
func short12(digest string) string {
	return digest[len("sha256:"):][:12]
}
