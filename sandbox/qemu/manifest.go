package qemu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Names in a snapshot's directory. The manifest is written last.
const (
	stateFile    = "state.bin" // QEMU's: devices, and memory that is no file
	MemoryFile   = "memory.bin"
	layerFile    = "layer.img"
	manifestFile = "snapshot.json"
)

// savedFormat is the only one so far.
const savedFormat = 1

const manifestBytesMax = 64 << 10

// savedManifest says what a snapshot needs and what belongs to it.
type savedManifest struct {
	Format      int          `json:"format"`
	Shape       commandShape `json:"shape"`
	StateBytes  int64        `json:"state_bytes"`
	StateSum    string       `json:"state_sha256"`
	MemoryBytes int64        `json:"memory_bytes"` // 0 = the memory is in the state
	MemorySum   uint32       `json:"memory_crc32c"`
	LayerBytes  int64        `json:"layer_bytes"`
}

// parseSaved reads a manifest; unknown keys and trailing data are refused.
func parseSaved(data []byte) (savedManifest, error) {
	var m savedManifest
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if d.More() {
		return m, errors.New("manifest: data after the object")
	}
	if m.Format != savedFormat {
		return m, fmt.Errorf("manifest: format %d, this is %d", m.Format, savedFormat)
	}
	if m.StateBytes <= 0 || m.LayerBytes <= 0 || m.MemoryBytes < 0 ||
		m.MemoryBytes != 0 && m.MemoryBytes != int64(m.Shape.MemoryMB)<<20 {
		return m, errors.New("manifest: sizes that cannot be")
	}
	return m, nil
}

// readSaved reads a snapshot's manifest and looks at its files.
func readSaved(dir string) (savedManifest, error) {
	f, err := os.Open(filepath.Join(dir, manifestFile))
	if err != nil {
		return savedManifest{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, manifestBytesMax+1))
	if err != nil {
		return savedManifest{}, err
	}
	if len(data) > manifestBytesMax {
		return savedManifest{}, fmt.Errorf("manifest: larger than %d bytes", manifestBytesMax)
	}
	m, err := parseSaved(data)
	if err != nil {
		return m, err
	}
	return m, m.check(dir)
}

// check compares the files with what is written of them, but for the
// memory's content: that is summed when it is loaded.
func (m savedManifest) check(dir string) error {
	for name, want := range map[string]int64{stateFile: m.StateBytes, MemoryFile: m.MemoryBytes, layerFile: m.LayerBytes} {
		if want == 0 {
			continue
		}
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() != want {
			return fmt.Errorf("%s has %d bytes, want %d", name, info.Size(), want)
		}
	}
	sum, _, err := sumFile(filepath.Join(dir, stateFile))
	if err == nil && sum != m.StateSum {
		err = fmt.Errorf("%s is damaged", stateFile)
	}
	return err
}

// sumFile returns a file's SHA-256 and size.
func sumFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// hostCPU names the host's processor where a guest sees it.
func hostCPU(accel string) string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return cpuOfManifest(string(data), accel)
}

// cpuOfManifest picks, of the first processor, what a guest could have noticed: under
// emulation no more than its name, since the clock's rate goes with it, and what
// is emulated.
func cpuOfManifest(cpuinfo, accel string) string {
	var parts []string
	if accel == accelTCG {
		parts = append(parts, emulatedCPU)
	}
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			break // the next processor
		}
		switch strings.TrimSpace(key) {
		case "model name":
			parts = append(parts, strings.TrimSpace(value))
		case "microcode", "flags":
			if accel == accelKVM {
				parts = append(parts, strings.TrimSpace(value))
			}
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}
