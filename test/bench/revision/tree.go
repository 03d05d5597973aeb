package revision

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// nameOf is the path of a file: ten in a directory, as in a source tree.
func nameOf(n int) string { return fmt.Sprintf("d%02d/e%03d/file%05d.go", n/10%40, n/10, n) }

// sizeOf is the size of a file, 10.7 KB in the mean: 128 MB in 12,000. Most are
// small, as in a source tree.
func sizeOf(n int) int {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	return 200 + int(r.ExpFloat64()*10_500)%300_000
}

var words = func() (all [512]string) {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range all {
		b := make([]byte, 2+r.IntN(9))
		for j := range b {
			b[j] = byte('a' + r.IntN(26))
		}
		all[i] = string(b)
	}
	return all
}()

// contents is a text that compresses about as source does.
func contents(seed, size int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 2))
	b := make([]byte, 0, size+16)
	for len(b) < size {
		b = append(b, words[min(r.IntN(512), r.IntN(512))]...)
		b = append(b, " \n\t("[min(r.IntN(4), r.IntN(4))])
	}
	return b[:size]
}

// Plant writes a tree of n files.
func Plant(dir string, n int) error { return wood{files: n}.plant(dir) }

// plant writes the tree.
func (w wood) plant(dir string) error {
	if w.blob > 0 {
		if err := random(filepath.Join(dir, "blob"), w.blob); err != nil {
			return err
		}
	}
	for n := range w.files {
		path := filepath.Join(dir, nameOf(n))
		if n%10 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, contents(n, sizeOf(n)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// random writes a file that does not compress.
func random(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), size)
	return errors.Join(err, f.Close())
}
