package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skete-dev/skete/template"
)

// The image that is pulled: like a distribution with a language, in three layers.
const (
	imageMB    = 300
	imageFiles = 12_000
)

// oci pulls an image from a registry in this process, as a template, and makes
// its ext4 image; beside it skopeo and umoci do the same with theirs.
func (b *bench) oci() error {
	dir, err := os.MkdirTemp("", "skete-bench-oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	house := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir))))
	defer house.Close()
	ref := strings.TrimPrefix(house.URL, "http://") + "/bench:v1"
	if err := pushImage(dir, ref); err != nil {
		return err
	}
	var pulls, images, peers []time.Duration
	for i := range max(b.count(30)/10, 1) { // by turns: the machine drifts
		at := filepath.Join(dir, fmt.Sprint("run", i))
		pull, image, err := b.pullOurs(at, ref)
		if err != nil {
			return err
		}
		pulls, images = append(pulls, pull), append(images, image)
		peer, err := b.pullTheirs(at+"-peer", ref)
		if errors.Is(err, exec.ErrNotFound) {
			b.Skipped("oci_peer_pull", "ms", "skopeo or umoci is not installed")
			continue
		}
		if err != nil {
			return err
		}
		peers = append(peers, peer)
	}
	note := fmt.Sprintf("%d MB, %d files, 3 layers, gzip, loopback", imageMB, imageFiles)
	ours := b.Millis("oci_pull", pulls, "", note+"; checked, unpacked and synced")
	b.Millis("oci_image", images, "", "ext4 image of it, synced")
	if len(peers) > 0 {
		theirs := b.Millis("oci_peer_pull", peers, "", note+"; skopeo copy and umoci unpack, not synced")
		b.Value("oci_pull_to_peer", ours/theirs, "ratio", "", "p50 to p50")
	}
	return nil
}

func (b *bench) pullOurs(dir, ref string) (pull, image time.Duration, err error) {
	defer os.RemoveAll(dir)
	s, err := template.Open(dir)
	if err != nil {
		return 0, 0, err
	}
	pull, err = timed(func() error {
		_, err := s.Pull(b.ctx, ref, template.PullOptions{Name: "bench"}, func(template.Progress) {})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	root, err := s.Rootfs(b.ctx, "bench")
	if err != nil {
		return 0, 0, err
	}
	image, err = timed(func() error {
		_, err := s.Image(b.ctx, root)
		return err
	})
	return pull, image, err
}

func (b *bench) pullTheirs(dir, ref string) (time.Duration, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	layout := filepath.Join(dir, "layout") + ":v1"
	return timed(func() error {
		err := program(b.ctx, "skopeo", "copy", "-q", "--insecure-policy", "--src-tls-verify=false", "docker://"+ref, "oci:"+layout)
		if err != nil {
			return err
		}
		return program(b.ctx, "umoci", "unpack", "--image", layout, filepath.Join(dir, "bundle"))
	})
}

func program(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", argv[0], err, out)
	}
	return nil
}

// pushImage makes the image, always the same, and gives it to a registry.
func pushImage(dir, ref string) error {
	img := v1.Image(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON))
	for n := range 3 {
		path := filepath.Join(dir, fmt.Sprint("layer", n))
		if err := writeLayer(path, n); err != nil {
			return err
		}
		l, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return err
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			return err
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", "amd64"
	if img, err = mutate.ConfigFile(img, c); err != nil {
		return err
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		return err
	}
	return remote.Write(r, img)
}

// writeLayer writes a third of the files; half of what is in them packs well.
func writeLayer(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	data := make([]byte, imageMB<<20/imageFiles)
	for i := range imageFiles / 3 {
		for j := range data {
			data[j] = "skete machine template layer "[j%29]
			if j%2 == 0 {
				data[j] = byte(r.Uint32())
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/lib/part%d/dir%d/file%d", n, i/50, i), Mode: 0o644, Size: int64(len(data))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), f.Close())
}
