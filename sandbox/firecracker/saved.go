package firecracker

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
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// This file is the directory of one snapshot: what is in it, and whether
// it could load here.
//
// A memory image fits one processor model, one version of Firecracker and one
// set of devices; on others it does not load, or worse, loads and goes wrong
// later. So all of that is compared before Firecracker sees it.

// Files of a snapshot.
const (
	savedState  = "vm.state"
	savedMemory = "vm.mem"
	savedLayer  = "layer.img"
	manifest    = "snapshot.json"
)

// format changes with the meaning of any file or device.
const format = 1

const manifestBytesMax = 16 << 10

// savedShape is all that must be equal where a snapshot is loaded.
type savedShape struct {
	Provider    string `json:"provider"`
	Firecracker string `json:"firecracker"`
	CPU         string `json:"cpu"`         // see CPU
	HostKernel  string `json:"host_kernel"` // uname -r
	Root        string `json:"root"`        // hash of the root file system
	VCPUs       int    `json:"vcpus"`
	MemoryMiB   int    `json:"memory_mib"`
	LayerBytes  int64  `json:"layer_bytes"`
	DiskMBps    int    `json:"disk_mbps,omitempty"` // limiters are part of the state
	DiskIOPS    int    `json:"disk_iops,omitempty"`
	Boot        string `json:"boot"` // hash of what the guest was told and keeps: its user, its limits, whether it may be root
}

type savedFile struct {
	Format int              `json:"format"`
	Shape  savedShape       `json:"shape"`
	Bytes  map[string]int64 `json:"bytes"` // size of each file
}

// writeSaved completes the snapshot in dir; everything else is there.
func writeSaved(dir string, s savedShape) error {
	f := savedFile{Format: format, Shape: s, Bytes: map[string]int64{}}
	for _, name := range []string{savedState, savedMemory, savedLayer} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		f.Bytes[name] = info.Size()
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+manifest)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, manifest))
}

// checkSaved says why the snapshot in dir does not fit s, or nil.
func checkSaved(dir string, s savedShape) error {
	in, err := os.Open(filepath.Join(dir, manifest))
	if err != nil {
		return err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, manifestBytesMax+1))
	if err != nil {
		return err
	}
	f, err := parseSaved(data)
	if err != nil {
		return err
	}
	if f.Shape != s {
		return errs.New(errs.Unsupported, "it was made as %+v and would run as %+v", f.Shape, s)
	}
	for name, want := range f.Bytes {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() != want {
			return errs.New(errs.Corrupt, "%s has %d bytes, not %d", name, info.Size(), want)
		}
	}
	return nil
}

func parseSaved(data []byte) (savedFile, error) {
	var f savedFile
	if len(data) > manifestBytesMax {
		return f, errs.New(errs.Corrupt, "the manifest is longer than %d bytes", manifestBytesMax)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, errs.Wrap(errs.Corrupt, err, "the manifest")
	}
	if f.Format != format {
		return f, errs.New(errs.Unsupported, "format %d, not %d", f.Format, format)
	}
	for _, name := range []string{savedState, savedMemory, savedLayer} {
		if _, ok := f.Bytes[name]; !ok {
			return f, errs.New(errs.Corrupt, "the manifest names no %s", name)
		}
	}
	if len(f.Bytes) != 3 {
		return f, errs.New(errs.Corrupt, "the manifest names %d files", len(f.Bytes))
	}
	return f, nil
}

// savedHost returns what of this host a memory image depends on.
func savedHost() (cpu, kernel string, err error) {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", "", err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", "", err
	}
	return savedCPU(data), unix.ByteSliceToString(name.Release[:]), nil
}

// savedCPU names the first processor of a cpuinfo file: its model, its microcode
// and a hash of its features.
func savedCPU(cpuinfo []byte) string {
	first, _, _ := strings.Cut(string(cpuinfo), "\n\n")
	values := map[string]string{}
	for line := range strings.Lines(first) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	flags := strings.Fields(values["flags"] + " " + values["Features"])
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(strings.Join(flags, " ")))
	words := []string{}
	for _, key := range []string{"vendor_id", "cpu family", "model", "stepping", "microcode"} {
		words = append(words, strings.ReplaceAll(values[key], " ", ""))
	}
	return strings.Join(append(words, hex.EncodeToString(sum[:6])), "/")
}

// copySaved copies a disk image to a new file: the same blocks where the file
// system can share them, else the data but not the holes.
func copySaved(in *os.File, to string) (err error) {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			_ = os.Remove(to)
		}
	}()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	return copySavedData(out, in)
}

func copySavedData(out, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if err := out.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // holes to the end
			return nil
		}
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		hole, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find a hole: %w", err)
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return nil
}
