// Package oci reads images: from a registry, from what `docker save` writes,
// from an OCI layout.
//
//	ref, err := oci.ParseReference("debian:bookworm", false)
//	img, err := oci.Pull(ctx, ref, oci.Options{Platform: "linux/amd64"}, blobs, tell)
//	img, err := oci.FromFiles(files, oci.Options{})
//	for _, l := range img.Layers { r, err := l.Open(); … }
//
// The source of an image is not trusted: every document and layer has the
// digest that was asked for, or is refused and named; documents, layers and
// their sizes are bounded. Names and passwords are used for the registry that
// they were given for, and kept nowhere.
package oci

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skete-dev/skete/errs"
)

// Bounds of an image.
const (
	documentBytesMax = 4 << 20 // of an index, manifest or configuration
	layersMax        = 256
	layerBytesMax    = 16 << 30
	imageBytesMax    = 32 << 30 // of all layers, packed
	indexDepthMax    = 3
	argsMax          = 256
	argBytesMax      = 32 << 10
)

// Image is an image that was found, its layers at hand.
type Image struct {
	Reference string // as asked for; "" for a file
	Digest    string // of its manifest, or of its configuration for `docker save`
	Platform  string
	Config    Config
	Layers    []Layer
}

// Config is what an image says about itself that is of interest here.
type Config struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Layer is a tar, packed in some way.
type Layer struct {
	Digest string // of what Open gives; "" when only DiffID is known
	DiffID string // of the tar
	Size   int64  // of what Open gives
	Open   func() (io.ReadCloser, error)
}

// Key names what the layers make, wherever they come from.
func (i Image) Key() string {
	h := sha256.New()
	for _, l := range i.Layers {
		_, _ = io.WriteString(h, l.DiffID+"\n")
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Digests lists the blobs of the layers.
func (i Image) Digests() []string {
	var all []string
	for _, l := range i.Layers {
		if l.Digest != "" && !slices.Contains(all, l.Digest) {
			all = append(all, l.Digest)
		}
	}
	return all
}

// ParsePlatform reads "os/arch" or "os/arch/variant"; "" is this machine's.
func ParsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS == "" || p.Architecture == "" || len(s) > 100 {
		return v1.Platform{}, errs.New(errs.Invalid, "%.100q is not a platform", s).WithHint("such as linux/amd64 or linux/arm64")
	}
	return *p, nil
}

// choose picks the manifest of a platform from an index.
func choose(index *v1.IndexManifest, want v1.Platform) (v1.Descriptor, error) {
	var has []string
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		if d.Platform == nil {
			if len(index.Manifests) == 1 {
				return d, nil
			}
			continue
		}
		if fits(*d.Platform, want) {
			return d, nil
		}
		if d.Platform.OS != "unknown" && len(has) < 20 {
			has = append(has, d.Platform.String())
		}
	}
	if len(has) == 0 {
		return v1.Descriptor{}, errs.New(errs.Unsupported, "the image's index names no image for %s", want.String())
	}
	return v1.Descriptor{}, errs.New(errs.Unsupported, "the image is not for %s", want.String()).
		WithHint("it is there for %.400q; --platform chooses", strings.Join(has, ", "))
}

// fits compares what matters; arm64 is v8 whether it says so or not.
func fits(has, want v1.Platform) bool {
	if has.OS != want.OS || has.Architecture != want.Architecture {
		return false
	}
	usual := map[string]string{"arm64": "v8", "amd64": "v1"}[has.Architecture]
	return want.Variant == "" || cmp.Or(has.Variant, usual) == want.Variant
}

// parseIndex and the like refuse what is too large or has no sense.
func parseIndex(data []byte) (*v1.IndexManifest, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the image's index cannot be read")
	}
	return index, nil
}

func parseManifest(data []byte) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the image's manifest cannot be read")
	}
	if m.MediaType != "" && !m.MediaType.IsImage() || m.SchemaVersion != 2 {
		return nil, errs.New(errs.Unsupported, "the image's manifest is of the kind %.100q, of version %d", m.MediaType, m.SchemaVersion)
	}
	if !m.Config.MediaType.IsConfig() {
		return nil, errs.New(errs.Unsupported, "this is no image with a root file system but %.100q", cmp.Or(m.Config.MediaType, m.MediaType))
	}
	if len(m.Layers) == 0 || len(m.Layers) > layersMax {
		return nil, errs.New(errs.Limit, "the image has %d layers, 1 to %d can be read", len(m.Layers), layersMax)
	}
	var total int64
	for _, l := range m.Layers {
		if err := checkLayer(l); err != nil {
			return nil, err
		}
		if total += l.Size; total > imageBytesMax {
			return nil, errs.New(errs.Limit, "the image's layers are larger than %d GiB", imageBytesMax>>30)
		}
	}
	return m, nil
}

func checkLayer(l v1.Descriptor) error {
	switch {
	case !l.MediaType.IsLayer() && l.MediaType != types.OCILayerZStd && l.MediaType != "":
		return errs.New(errs.Unsupported, "a layer of the image is of the kind %.100q", l.MediaType)
	case !l.MediaType.IsDistributable():
		return errs.New(errs.Unsupported, "the image has a layer that its registry does not serve (%.100q)", l.MediaType)
	case l.Size < 0 || l.Size > layerBytesMax:
		return errs.New(errs.Limit, "a layer of the image has %d bytes, at most %d GiB can be read", l.Size, layerBytesMax>>30)
	}
	return checkDigest(l.Digest.String())
}

// config reads an image's configuration: its platform and its layers' DiffIDs.
func (i *Image) config(data []byte, want v1.Platform, asked bool) ([]v1.Hash, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the image's configuration cannot be read")
	}
	has := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if c.OS != "" && c.OS != "linux" {
		return nil, errs.New(errs.Unsupported, "the image is for %.100q; sandboxes run Linux", has.String())
	}
	if c.Architecture != "" && !fits(has, want) {
		err := errs.New(errs.Unsupported, "the image is for %.100q, not for %s", has.String(), want.String())
		if !asked {
			return nil, err.WithHint("--platform %s takes it all the same", has.String())
		}
		return nil, err
	}
	i.Platform = has.String()
	i.Config = Config{c.Config.Env, c.Config.WorkingDir, c.Config.User, c.Config.Entrypoint, c.Config.Cmd}.Bounded()
	return c.RootFS.DiffIDs, nil
}

// Bounded is the configuration cut to what is worth keeping.
func (c Config) Bounded() Config {
	return Config{bounded(c.Env), short(c.WorkingDir), short(c.User), bounded(c.Entrypoint), bounded(c.Cmd)}
}

// bounded cuts a list to what is worth keeping.
func bounded(list []string) []string {
	var kept []string
	total := 0
	for _, s := range list {
		if total += len(s); len(kept) == argsMax || total > argBytesMax || strings.IndexByte(s, 0) >= 0 {
			break
		}
		kept = append(kept, s)
	}
	return kept
}

func short(s string) string {
	if len(s) > 4096 || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

// digestOf is the digest of a document.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func checkCount(diffs []v1.Hash, layers int) error {
	if len(diffs) != layers {
		return errs.New(errs.Invalid, "the image has %d layers and its configuration names %d", layers, len(diffs))
	}
	for _, d := range diffs {
		if err := checkDigest(d.String()); err != nil {
			return err
		}
	}
	return nil
}
