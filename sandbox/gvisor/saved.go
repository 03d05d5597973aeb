package gvisor

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/sandbox"
)

// This file is a machine of gVisor's in a directory: which files there are,
// and a manifest of what the machine was made by and on.
//
// A directory that is sealed is read by any number of machines at once, and
// never written again.

// What a snapshot's directory holds. The three files of gVisor's are loaded by
// any number of machines at once, and not written again.
const (
	savedState   = "checkpoint.img" // the kernel's objects
	metadata     = "pages_meta.img" // which page is where
	PagesFile    = "pages.img"      // memory, page by page; also of the writable layer and the spools
	savedGuest   = "guest"          // the guest program, whose code is mapped
	manifestName = "manifest.json"  // written last: without it there is no snapshot
	manifestMax  = 64 << 10         // bytes
	manifestForm = 1                // of the manifest
	gvisorModule = "gvisor.dev/gvisor"
)

var files = []string{savedState, metadata, PagesFile, savedGuest}

// savedManifest says what a snapshot was made by and on, and what it is made of.
// All must be the same where it is loaded, but for the host's paths and the
// names of the machine.
type savedManifest struct {
	Form   int    `json:"form"`
	GVisor string `json:"gvisor"` // version; gVisor's own check compares a string that our build has not
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`  // hash of what the processor can do
	Spec   string `json:"spec"` // hash of the specification, see shapeOf
	Rootfs string `json:"rootfs"`
	DiskMB int    `json:"disk_mb"`
	// Files by name. The pages are looked at by their size alone: reading a
	// machine's memory twice would cost more than the load.
	Files map[string]savedFile `json:"files"`
}

type savedFile struct {
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc,omitempty"` // Castagnoli's; 0 for the pages
}

// savedBy describes the machine that a program makes of a specification.
func savedBy(program string, spec *specs.Spec, rootfs string, diskMB int) (savedManifest, error) {
	version, err := savedVersionOf(program)
	if err != nil {
		return savedManifest{}, err
	}
	return savedManifest{
		Form: manifestForm, GVisor: version, Arch: runtime.GOARCH, CPU: savedCPU(),
		Spec: savedShape(spec), Rootfs: rootfs, DiskMB: diskMB,
	}, nil
}

// savedVersionOf reads which gVisor is linked into a program.
func savedVersionOf(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("which gVisor is in %s: %w", filepath.Base(program), err)
	}
	for _, d := range info.Deps {
		if d.Path == gvisorModule {
			if d.Replace != nil {
				return "", errors.New("a gVisor of no version")
			}
			return d.Version, nil
		}
	}
	return "", errors.New("no gVisor is in the program")
}

// savedCPU is of the processor's maker and abilities. Programs look at them
// once and would go on with what is not there; gVisor checks them too.
func savedCPU() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	var lines []string
	for line := range strings.Lines(string(data)) {
		name, _, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "vendor_id", "flags", "CPU implementer", "Features":
			lines = append(lines, line)
		case "":
			if lines != nil { // one processor stands for all
				return savedHash(strings.Join(lines, ""))
			}
		}
	}
	return savedHash(strings.Join(lines, ""))
}

func savedHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// savedShape hashes a specification without what differs from machine to machine:
// its names and the host's paths. What is left must be equal, since gVisor
// puts the saved kernel together with the mounts, in their order, and the
// capabilities of the new machine.
func savedShape(spec *specs.Spec) string {
	s := *spec
	s.Hostname, s.Annotations = "", map[string]string{}
	for name, value := range spec.Annotations {
		if !strings.HasSuffix(name, ".source") {
			s.Annotations[name] = value
		}
	}
	root, linux := *spec.Root, *spec.Linux
	root.Path, linux.CgroupsPath = "", ""
	s.Root, s.Linux, s.Mounts = &root, &linux, slices.Clone(spec.Mounts)
	for i := range s.Mounts {
		s.Mounts[i].Source = ""
	}
	data, _ := json.Marshal(s) // maps are sorted; no field can fail
	return savedHash(string(data))
}

// Seal measures the files in dir and writes the manifest, and all of it to the
// disk.
func (m savedManifest) Seal(dir string) error {
	m.Files = map[string]savedFile{}
	for _, name := range files {
		f, err := measureSaved(filepath.Join(dir, name), name == PagesFile)
		if err != nil {
			return err
		}
		m.Files[name] = f
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+manifestName)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, manifestName))
}

// Check refuses a snapshot that is not for a machine like want, or not whole.
func (m savedManifest) Check(dir string) error {
	got, err := readSaved(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
	}
	for _, c := range []struct{ what, was, is string }{
		{"the manifest's form", fmt.Sprint(got.Form), fmt.Sprint(m.Form)},
		{"gVisor's version", got.GVisor, m.GVisor},
		{"the processor's kind", got.Arch, m.Arch},
		{"what the processor can do", got.CPU, m.CPU},
		{"the machine's shape", got.Spec, m.Spec},
		{"the root file system", got.Rootfs, m.Rootfs},
		{"the disk's size", fmt.Sprint(got.DiskMB), fmt.Sprint(m.DiskMB)},
	} {
		if c.was != c.is {
			return fmt.Errorf("%w: %s was %.80q and is %.80q", sandbox.ErrSnapshot, c.what, c.was, c.is)
		}
	}
	for _, name := range files {
		want, ok := got.Files[name]
		is, err := measureSaved(filepath.Join(dir, name), want.CRC == 0)
		if err != nil {
			return fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
		}
		if !ok || is != want {
			return fmt.Errorf("%w: %s is damaged", sandbox.ErrSnapshot, name)
		}
	}
	return nil
}

func readSaved(dir string) (savedManifest, error) {
	var m savedManifest
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, manifestMax+1))
	if err != nil {
		return m, err
	}
	return parseSaved(data)
}

func parseSaved(data []byte) (savedManifest, error) {
	var m savedManifest
	if len(data) > manifestMax {
		return m, fmt.Errorf("a manifest of more than %d bytes", manifestMax)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("the manifest: %w", err)
	}
	if d.More() {
		return m, errors.New("the manifest: data behind its end")
	}
	return m, nil
}

// measureSaved sizes a file and, unless size is enough, sums it up.
func measureSaved(path string, sizeOnly bool) (savedFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return savedFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return savedFile{}, err
	}
	if !info.Mode().IsRegular() {
		return savedFile{}, fmt.Errorf("%s is no file", filepath.Base(path))
	}
	if sizeOnly {
		return savedFile{Bytes: info.Size()}, nil
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(sum, f)
	return savedFile{Bytes: n, CRC: max(1, sum.Sum32())}, err
}
