package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skete-dev/skete/errs"
)

// Options say which image is wanted.
type Options struct {
	Platform string // "" = this machine's
}

// FromFiles finds the image in what `docker save` wrote or in an OCI layout.
// The files must stay open while layers are read. Invalid: they are none, or
// they hold several images.
func FromFiles(files Files, o Options) (Image, error) {
	want, err := ParsePlatform(o.Platform)
	if err != nil {
		return Image{}, err
	}
	f := reader{files, want, o.Platform != ""}
	data, err := f.document("manifest.json")
	if err == nil {
		return f.saved(data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Image{}, err
	}
	data, err = f.document("index.json")
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, errs.New(errs.Invalid, "there is neither a manifest.json, as `docker save` writes, nor an index.json, as an OCI layout has").
			WithHint("a root file system as tar, `docker save`, or an OCI layout can be imported")
	}
	if err != nil {
		return Image{}, err
	}
	return f.layout(data, 0)
}

type reader struct {
	files Files
	want  v1.Platform
	asked bool
}

func (f reader) document(name string) ([]byte, error) {
	r, size, err := f.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > documentBytesMax {
		return nil, errs.New(errs.Limit, "the image's file %.100q is larger than %d bytes", name, documentBytesMax)
	}
	return io.ReadAll(io.LimitReader(r, documentBytesMax))
}

// blob reads a document that has a digest.
func (f reader) blob(d v1.Descriptor) ([]byte, error) {
	digest := d.Digest.String()
	if err := checkDigest(digest); err != nil {
		return nil, err
	}
	data, err := f.document(blobName(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.Invalid, "the image's archive lacks %s", digest)
	}
	if err == nil && digestOf(data) != digest {
		err = errs.New(errs.Corrupt, "the image's archive has other bytes for %s than that name says", digest)
	}
	return data, err
}

func blobName(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

// layout follows an OCI layout from an index to the image.
func (f reader) layout(data []byte, depth int) (Image, error) {
	index, err := parseIndex(data)
	if err != nil {
		return Image{}, err
	}
	if depth > indexDepthMax {
		return Image{}, errs.New(errs.Limit, "the image's indexes are deeper than %d levels", indexDepthMax)
	}
	d, err := choose(index, f.want)
	if err != nil {
		return Image{}, err
	}
	if data, err = f.blob(d); err != nil {
		return Image{}, err
	}
	if d.MediaType.IsIndex() {
		return f.layout(data, depth+1)
	}
	m, err := parseManifest(data)
	if err != nil {
		return Image{}, err
	}
	img := Image{Digest: d.Digest.String()}
	if data, err = f.blob(m.Config); err != nil {
		return Image{}, err
	}
	diffs, err := img.config(data, f.want, f.asked)
	if err != nil {
		return Image{}, err
	}
	if err := checkCount(diffs, len(m.Layers)); err != nil {
		return Image{}, err
	}
	for n, l := range m.Layers {
		layer, err := f.layer(blobName(l.Digest.String()), diffs[n])
		if err != nil {
			return Image{}, err
		}
		layer.Digest = l.Digest.String()
		img.Layers = append(img.Layers, layer)
	}
	return img, nil
}

func (f reader) layer(name string, diff v1.Hash) (Layer, error) {
	r, size, err := f.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Layer{}, errs.New(errs.Invalid, "the image's archive lacks the layer %.100q", name)
	}
	if err != nil {
		return Layer{}, err
	}
	_ = r.Close()
	return Layer{DiffID: diff.String(), Size: size, Open: func() (io.ReadCloser, error) {
		r, _, err := f.files.Open(name)
		return r, err
	}}, nil
}

// savedImage is an entry of the manifest.json of `docker save`.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// saved reads what `docker save` wrote.
func (f reader) saved(data []byte) (Image, error) {
	var list []savedImage
	if err := json.Unmarshal(data, &list); err != nil {
		return Image{}, errs.Wrap(errs.Invalid, err, "the manifest.json of the image's archive cannot be read")
	}
	if len(list) != 1 {
		return Image{}, errs.New(errs.Invalid, "the archive holds %d images", len(list)).WithHint("`docker save` one image alone")
	}
	s := list[0]
	if len(s.Layers) == 0 || len(s.Layers) > layersMax {
		return Image{}, errs.New(errs.Limit, "the image has %d layers, 1 to %d can be read", len(s.Layers), layersMax)
	}
	config, err := f.document(clean(s.Config))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, errs.New(errs.Invalid, "the image's archive lacks the configuration %.100q", s.Config)
	}
	if err != nil {
		return Image{}, err
	}
	img := Image{Digest: digestOf(config)}
	diffs, err := img.config(config, f.want, f.asked)
	if err != nil {
		return Image{}, err
	}
	if err := checkCount(diffs, len(s.Layers)); err != nil {
		return Image{}, err
	}
	if len(s.RepoTags) > 0 {
		img.Reference = short(s.RepoTags[0])
	}
	for n, name := range s.Layers {
		l, err := f.layer(clean(name), diffs[n])
		if err != nil {
			return Image{}, err
		}
		img.Layers = append(img.Layers, l)
	}
	return img, nil
}

func clean(name string) string { return path.Clean("/" + name)[1:] }

// Verify returns a reader that ends with an error of the class Corrupt instead
// of io.EOF when what it read has not the digest. what is named in the error.
func Verify(r io.Reader, digest, what string) io.Reader {
	return &verifier{r: r, h: sha256.New(), digest: digest, what: what}
}

type verifier struct {
	r            io.Reader
	h            hash.Hash
	digest, what string
}

func (v *verifier) Read(b []byte) (int, error) {
	n, err := v.r.Read(b)
	_, _ = v.h.Write(b[:n])
	if errors.Is(err, io.EOF) {
		if have := "sha256:" + hex.EncodeToString(v.h.Sum(nil)); have != v.digest {
			return n, errs.New(errs.Corrupt, "%s has the digest %s instead of %s", v.what, have, v.digest)
		}
	}
	return n, err
}
