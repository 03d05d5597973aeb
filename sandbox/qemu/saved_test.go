package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// holey makes a file of random blocks, zeros and holes, not a whole number of
// blocks long.
func holey(t *testing.T, seed uint64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "holey"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	rng := rand.New(rand.NewPCG(seed, 1))
	size := int64(40*blockBytes) + int64(rng.IntN(blockBytes))
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		data := make([]byte, rng.IntN(3*blockBytes))
		if rng.IntN(3) > 0 {
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
		}
		at := rng.Int64N(size)
		if _, err := f.WriteAt(data[:min(int64(len(data)), size-at)], at); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func content(t *testing.T, f *os.File) []byte {
	t.Helper()
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func empty(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The sum is the content's, however it lies in holes.
func TestCopyDataKeepsEveryByteAndItsSum(t *testing.T) {
	for seed := range uint64(40) {
		from := holey(t, seed)
		want := content(t, from)
		to := empty(t)
		sum, err := copyData(t.Context(), to, from, int64(len(want)))
		if err != nil || !bytes.Equal(content(t, to), want) {
			t.Fatalf("seed %d: %v, or another content", seed, err)
		}
		dense := empty(t)
		if _, err := dense.Write(want); err != nil {
			t.Fatal(err)
		}
		if again, err := copyData(t.Context(), empty(t), dense, int64(len(want))); err != nil || again != sum {
			t.Errorf("seed %d: sum %x of the dense file, %x of the holey one, %v", seed, again, sum, err)
		}
		if at := bytes.IndexFunc(want, func(r rune) bool { return r != 0 }); at >= 0 {
			if _, err := dense.WriteAt([]byte{want[at] ^ 1}, int64(at)); err != nil {
				t.Fatal(err)
			}
			if other, _ := copyData(t.Context(), empty(t), dense, int64(len(want))); other == sum {
				t.Errorf("seed %d: a bit at %d does not change the sum", seed, at)
			}
		}
	}
}

func TestCopyEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := holey(t, 7)
	if _, err := copyData(ctx, empty(t), f, 10); err == nil {
		t.Error("a cancelled copy succeeded")
	}
	to := empty(t)
	if n, err := copyFile(to, f); err != nil || n != int64(len(content(t, f))) || !bytes.Equal(content(t, to), content(t, f)) {
		t.Errorf("CopyFile: %d, %v", n, err)
	}
}

// testSnapshot makes a directory that could be a snapshot.
func testSnapshot(t *testing.T) (string, savedManifest) {
	t.Helper()
	dir := t.TempDir()
	m := savedManifest{Format: savedFormat, Shape: commandShape{QEMU: "7.2", MemoryMB: 1}, MemoryBytes: 1 << 20, LayerBytes: 5}
	mustSaved(t, os.WriteFile(filepath.Join(dir, stateFile), []byte("state"), 0o600))
	mustSaved(t, os.WriteFile(filepath.Join(dir, layerFile), []byte("layer"), 0o600))
	memory := make([]byte, 1<<20)
	copy(memory[3*blockBytes:], "memory")
	mustSaved(t, os.WriteFile(filepath.Join(dir, MemoryFile), memory, 0o600))
	f, err := os.Open(filepath.Join(dir, MemoryFile))
	mustSaved(t, err)
	defer f.Close()
	m.MemorySum, err = copyData(t.Context(), empty(t), f, 1<<20)
	mustSaved(t, err)
	m.StateSum, m.StateBytes, err = sumFile(filepath.Join(dir, stateFile))
	mustSaved(t, err)
	writeTest(t, dir, m)
	return dir, m
}

func writeTest(t *testing.T, dir string, m savedManifest) {
	t.Helper()
	data, err := json.Marshal(m)
	mustSaved(t, err)
	mustSaved(t, os.WriteFile(filepath.Join(dir, manifestFile), data, 0o600))
}

func mustSaved(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadRefusesWhatIsDamaged(t *testing.T) {
	dir, want := testSnapshot(t)
	if got, err := readSaved(dir); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, hurt := range map[string]func(dir string, m *savedManifest){
		"no manifest": func(dir string, _ *savedManifest) { mustSaved(t, os.Remove(filepath.Join(dir, manifestFile))) },
		"no state":    func(dir string, _ *savedManifest) { mustSaved(t, os.Remove(filepath.Join(dir, stateFile))) },
		"another state": func(dir string, _ *savedManifest) {
			mustSaved(t, os.WriteFile(filepath.Join(dir, stateFile), []byte("stAte"), 0o600))
		},
		"short memory": func(dir string, _ *savedManifest) { mustSaved(t, os.Truncate(filepath.Join(dir, MemoryFile), 9)) },
		"long layer":   func(dir string, _ *savedManifest) { mustSaved(t, os.Truncate(filepath.Join(dir, layerFile), 9)) },
		"layer a symlink": func(dir string, _ *savedManifest) {
			mustSaved(t, os.Remove(filepath.Join(dir, layerFile)))
			mustSaved(t, os.Symlink("/etc/hostname", filepath.Join(dir, layerFile)))
		},
		"another format": func(dir string, m *savedManifest) { m.Format++; writeTest(t, dir, *m) },
		"sizes that lie": func(dir string, m *savedManifest) { m.MemoryBytes = 1 << 40; writeTest(t, dir, *m) },
		"negative sizes": func(dir string, m *savedManifest) { m.LayerBytes = -1; writeTest(t, dir, *m) },
		"a huge manifest": func(dir string, _ *savedManifest) {
			mustSaved(t, os.WriteFile(filepath.Join(dir, manifestFile), []byte(`{"format": 1, "x": "`+strings.Repeat("x", manifestBytesMax)+`"}`), 0o600))
		},
		"trailing data": func(dir string, m *savedManifest) {
			data, _ := json.Marshal(m)
			mustSaved(t, os.WriteFile(filepath.Join(dir, manifestFile), append(data, "{}"...), 0o600))
		},
		"unknown keys": func(dir string, _ *savedManifest) {
			mustSaved(t, os.WriteFile(filepath.Join(dir, manifestFile), []byte(`{"format": 1, "more": 2}`), 0o600))
		},
	} {
		dir, m := testSnapshot(t)
		hurt(dir, &m)
		if _, err := readSaved(dir); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

func TestImagesAreSharedAndCannotBeChanged(t *testing.T) {
	dir, m := testSnapshot(t)
	var is savedImages
	defer is.Close()
	a, err := is.Get(t.Context(), dir, m)
	mustSaved(t, err)
	defer a.Close()
	b, err := is.Get(t.Context(), dir, m)
	mustSaved(t, err)
	defer b.Close()
	var sa, sb unix.Stat_t
	mustSaved(t, unix.Fstat(int(a.Fd()), &sa))
	mustSaved(t, unix.Fstat(int(b.Fd()), &sb))
	if sa.Ino != sb.Ino || sa.Dev != sb.Dev {
		t.Error("two loads of one snapshot have memory of their own each")
	}
	if _, err := a.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the memory could be written")
	}
	if err := a.Truncate(0); err == nil {
		t.Error("the memory could be cut")
	}
	if _, err := unix.Mmap(int(a.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the memory could be mapped to write to it")
	}
	data := make([]byte, 6)
	if _, err := b.ReadAt(data, 3*blockBytes); err != nil || string(data) != "memory" {
		t.Errorf("the memory holds %q, %v", data, err)
	}
	is.Close()
	if _, err := a.ReadAt(data, 0); err != nil {
		t.Errorf("a machine's own descriptor after the end of the cache: %v", err)
	}
}

func TestDamagedMemoryIsFoundWhenItIsLoaded(t *testing.T) {
	dir, m := testSnapshot(t)
	f, err := os.OpenFile(filepath.Join(dir, MemoryFile), os.O_WRONLY, 0)
	mustSaved(t, err)
	_, err = f.WriteAt([]byte("M"), 3*blockBytes)
	mustSaved(t, err)
	mustSaved(t, f.Close())
	var is savedImages
	defer is.Close()
	for range 2 {
		if _, err := is.Get(t.Context(), dir, m); err == nil {
			t.Error("damaged memory was loaded")
		}
	}
}

func TestImagesKeepFew(t *testing.T) {
	var is savedImages
	defer is.Close()
	for range 2 * imagesMax {
		dir, m := testSnapshot(t)
		f, err := is.Get(t.Context(), dir, m)
		mustSaved(t, err)
		mustSaved(t, f.Close())
	}
	if n := len(is.held); n > imagesMax {
		t.Errorf("%d are held, at most %d", n, imagesMax)
	}
}

func TestHostCPU(t *testing.T) {
	const info = "processor\t: 0\nmodel name\t: A\nflags\t\t: x y\nmicrocode\t: 1\n\nprocessor\t: 1\nmodel name\t: B\n"
	same, other := strings.Replace(info, ": 1\n\n", ": 2\n\n", 1), strings.Replace(info, "A", "C", 1)
	if cpuOfManifest(info, accelTCG) != cpuOfManifest(same, accelTCG) || cpuOfManifest(info, accelKVM) == cpuOfManifest(same, accelKVM) {
		t.Error("microcode matters where the guest sees the cpu, and only there")
	}
	if cpuOfManifest(info, accelTCG) == cpuOfManifest(other, accelTCG) {
		t.Error("another cpu is another cpu")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1,"shape":{"memory_mb":1},"state_bytes":1,"memory_bytes":1048576,"layer_bytes":1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseSaved(data)
		if err == nil && (m.StateBytes <= 0 || m.LayerBytes <= 0 || m.MemoryBytes < 0) {
			t.Errorf("%+v", m)
		}
	})
}
