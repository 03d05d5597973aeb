package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
)

func open(t *testing.T, c blobDirConfig) (*blobDir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a", "blobs")
	if c.BlobBytesMax == 0 {
		c.BlobBytesMax = 1 << 20
	}
	d, err := openBlobDir(path, c)
	if err != nil {
		t.Fatal(err)
	}
	return d, path
}

func put(t *testing.T, d *blobDir, content string) string {
	t.Helper()
	hash, err := d.Put([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	if want := hex.EncodeToString(sum[:]); hash != want {
		t.Fatalf("hash %s, want %s", hash, want)
	}
	return hash
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}

// files lists what is in the directory, without directories.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, name)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestDir_keepsOneFileForAContent(t *testing.T) {
	d, path := open(t, blobDirConfig{})
	hash := put(t, d, "hello")
	put(t, d, "hello")
	if got, want := fmt.Sprint(files(t, path)), fmt.Sprintf("[%s/%s/%s]", hash[:2], hash[2:4], hash); got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	again, err := openBlobDir(path, blobDirConfig{BlobBytesMax: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Get(hash); string(got) != "hello" || err != nil {
		t.Errorf("after opening again: %q, %v", got, err)
	}
}

func TestDir_bounds(t *testing.T) {
	d, path := open(t, blobDirConfig{BlobBytesMax: 5})
	put(t, d, "12345")
	_, err := d.Put([]byte("123456"))
	wantClass(t, "a byte over", err, errs.Limit)
	full, _ := open(t, blobDirConfig{FreeBytesMin: 1 << 60})
	_, err = full.Put([]byte("x"))
	wantClass(t, "no room", err, errs.Unavailable)
	if errs.Hint(err) == "" {
		t.Error("no hint what to do")
	}
	for _, bad := range []string{"", "..", strings.Repeat("g", 64), "../../../" + strings.Repeat("a", 55), strings.Repeat("a", 65)} {
		_, err := d.Get(bad)
		wantClass(t, bad, err, errs.Invalid)
		_, err = d.Remove(bad, time.Now())
		wantClass(t, bad, err, errs.Invalid)
	}
	if n := len(files(t, path)); n != 1 {
		t.Errorf("%d files", n)
	}
}

func TestDir_damageIsSeenAndHealedByWhoHasTheContent(t *testing.T) {
	d, path := open(t, blobDirConfig{})
	hash := put(t, d, "hello")
	file := filepath.Join(path, hash[:2], hash[2:4], hash)
	for _, damage := range []string{"hellO", "hell", "", strings.Repeat("x", 2<<20)} {
		if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.Get(hash)
		wantClass(t, fmt.Sprintf("%.10q", damage), err, errs.Corrupt)
		put(t, d, "hello")
		if got, err := d.Get(hash); string(got) != "hello" || err != nil {
			t.Errorf("healed: %q, %v", got, err)
		}
	}
}

func TestDir_removesTheOldOnly(t *testing.T) {
	d, path := open(t, blobDirConfig{})
	hash := put(t, d, "hello")
	now := time.Now()
	if removed, err := d.Remove(hash, now.Add(-time.Hour)); removed || err != nil {
		t.Errorf("a young one: %v, %v", removed, err)
	}
	old := now.Add(-2 * time.Hour)
	file := filepath.Join(path, hash[:2], hash[2:4], hash)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	put(t, d, "hello") // young again
	if removed, err := d.Remove(hash, now.Add(-time.Hour)); removed || err != nil {
		t.Errorf("one that was put again: %v, %v", removed, err)
	}
	for want := range []bool{true, false} {
		if removed, err := d.Remove(hash, now.Add(time.Hour)); removed != (want == 0) || err != nil {
			t.Errorf("an old one: %v, %v", removed, err)
		}
	}
	_, err := d.Get(hash)
	wantClass(t, "removed", err, errs.NotFound)
}

func TestDir_walkCleansUpAfterTheDead(t *testing.T) {
	d, path := open(t, blobDirConfig{})
	hash := put(t, d, "hello")
	old := time.Now().Add(-2 * time.Hour)
	for name, age := range map[string]time.Time{"dead": old, "alive": time.Now()} {
		file := filepath.Join(path, "tmp", name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, age, age); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(path, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var seen []string
	err := d.Walk(func(hash string, size int64, changed time.Time) error {
		seen = append(seen, fmt.Sprint(hash, size, time.Since(changed) < time.Minute))
		return nil
	})
	if want := fmt.Sprint([]string{fmt.Sprint(hash, 5, true)}); err != nil || fmt.Sprint(seen) != want {
		t.Errorf("saw %v, %v, want %s", seen, err, want)
	}
	if got := strings.Join(files(t, path), " "); strings.Contains(got, "dead") || !strings.Contains(got, "alive") || !strings.Contains(got, "stray") {
		t.Errorf("left are %s", got)
	}
}

// TestDir_putAndRemoveMeet: what Put returned is there, whatever sweeps
// meanwhile, as long as the sweep leaves the young alone.
func TestDir_putAndRemoveMeet(t *testing.T) {
	d, _ := open(t, blobDirConfig{})
	const blobs = 4
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			before := time.Now().Add(-20 * time.Millisecond)
			_ = d.Walk(func(hash string, _ int64, _ time.Time) error {
				_, err := d.Remove(hash, before)
				return err
			})
		}
	})
	var puts sync.WaitGroup
	for w := range 3 {
		puts.Go(func() {
			for i := range 60 {
				content := bytes.Repeat([]byte{byte(i % blobs)}, 100)
				began := time.Now()
				hash, err := d.Put(content)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := d.Get(hash)
				if time.Since(began) < 15*time.Millisecond && (err != nil || !bytes.Equal(got, content)) {
					t.Errorf("writer %d: just put, and %v", w, err)
				}
			}
		})
	}
	puts.Wait()
	close(stop)
	wg.Wait()
}

func BenchmarkPut(b *testing.B) {
	d, err := openBlobDir(b.TempDir(), blobDirConfig{BlobBytesMax: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 32<<10)
	b.SetBytes(int64(len(content)))
	for i := 0; b.Loop(); i++ {
		copy(content, fmt.Sprint(i))
		if _, err := d.Put(content); err != nil {
			b.Fatal(err)
		}
	}
}
