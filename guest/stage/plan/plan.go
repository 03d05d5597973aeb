// Package plan is what the host and the first program of a machine agree on:
// the words of the kernel's command line that are for us, and the list of
// modules in the initramfs.
//
//	host:    words, err := plan.Params{Root: "vda", Boot: boot}.Encode()
//	machine: p, err := plan.ParseParams(commandLine)
//	         list, err := plan.ParseModules(text); names := plan.Choose(list, p.Wants())
//
// It decides and changes nothing.
package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of what the machine reads.
const (
	lineBytesMax   = 64 << 10
	nameBytesMax   = 64
	modulesMax     = 256
	modulesTextMax = 64 << 10
)

// Params are the words of the command line that begin with "skete.".
type Params struct {
	// Root, Layer and Work name block devices in /dev; "" = none. Without a
	// layer the root's changes are kept in memory.
	Root, Layer, Work string
	// Boot is told to the guest.
	Boot wire.Boot
}

// Encode returns the words. Invalid: a name is no block device's.
func (p Params) Encode() (string, error) {
	if p.Root == "" {
		return "", errs.New(errs.Invalid, "a machine needs a root disk")
	}
	var words []string
	for _, w := range []struct{ key, name string }{{"root", p.Root}, {"layer", p.Layer}, {"work", p.Work}} {
		if w.name == "" {
			continue
		}
		if !deviceName(w.name) {
			return "", errs.New(errs.Invalid, "%.80q is not the name of a disk", w.name)
		}
		words = append(words, "skete."+w.key+"="+w.name)
	}
	data, err := json.Marshal(p.Boot)
	if err != nil {
		return "", err
	}
	words = append(words, "skete.boot="+base64.RawURLEncoding.EncodeToString(data))
	return strings.Join(words, " "), nil
}

// ParseParams finds our words in a kernel's command line; others are none of
// our business. Invalid: one of ours is unknown, given twice or not readable.
func ParseParams(line string) (Params, error) {
	var p Params
	if len(line) > lineBytesMax {
		return p, errs.New(errs.Invalid, "the command line has more than %d bytes", lineBytesMax)
	}
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(line) {
		word, ours := strings.CutPrefix(word, "skete.")
		if !ours {
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		if seen[key] {
			return p, errs.New(errs.Invalid, "skete.%.40s is given twice", key)
		}
		seen[key] = true
		if err := p.set(key, value); err != nil {
			return p, err
		}
	}
	if p.Root == "" || !seen["boot"] {
		return p, errs.New(errs.Invalid, "the command line has no skete.root or no skete.boot")
	}
	return p, nil
}

func (p *Params) set(key, value string) error {
	disks := map[string]*string{"root": &p.Root, "layer": &p.Layer, "work": &p.Work}
	if disk := disks[key]; disk != nil {
		if !deviceName(value) {
			return errs.New(errs.Invalid, "skete.%s=%.80q is not the name of a disk", key, value)
		}
		*disk = value
		return nil
	}
	switch key {
	case "boot":
		data, err := base64.RawURLEncoding.DecodeString(value)
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "skete.boot")
		}
		p.Boot, err = wire.ReadBoot(bytes.NewReader(data))
		return err
	}
	return errs.New(errs.Invalid, "unknown word skete.%.40q", key)
}

// deviceName accepts names of block devices, never a path.
func deviceName(s string) bool {
	if s == "" || len(s) > nameBytesMax {
		return false
	}
	for _, r := range []byte(s) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}

// Use says what a module is for.
type Use string

// Uses of modules. A machine loads what it wants and no more: each module
// costs it milliseconds under emulation.
const (
	Always Use = "always"
	Virtio Use = "virtio" // the channel is a virtio-serial port
	Vsock  Use = "vsock"  // the channel is a vsock
	Net    Use = "net"    // connections are captured
	Erofs  Use = "erofs"  // the root is an erofs image; tried when ext4 does not mount
)

// Wants returns the uses of a machine with these parameters.
func (p Params) Wants() []Use {
	uses := []Use{Always}
	switch {
	case strings.HasPrefix(p.Boot.Channel, "virtio:"):
		uses = append(uses, Virtio)
	case strings.HasPrefix(p.Boot.Channel, "vsock:"):
		uses = append(uses, Vsock)
	}
	if p.Boot.Network != nil {
		uses = append(uses, Net)
	}
	return uses
}

// Module is a file in the initramfs's /mod, in the order of loading.
type Module struct {
	File string
	Uses []Use
}

// EncodeModules returns the text of /modules.list: a line for each module.
func EncodeModules(list []Module) string {
	var b strings.Builder
	for _, m := range list {
		b.WriteString(m.File)
		for i, u := range m.Uses {
			b.WriteByte(" ,"[min(i, 1)])
			b.WriteString(string(u))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseModules reads the text of /modules.list.
func ParseModules(text string) ([]Module, error) {
	if len(text) > modulesTextMax {
		return nil, errs.New(errs.Invalid, "the list of modules has more than %d bytes", modulesTextMax)
	}
	var list []Module
	for line := range strings.Lines(text) {
		file, uses, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || file == "" || len(file) > nameBytesMax || strings.ContainsAny(file, "/\x00") || strings.HasPrefix(file, ".") {
			return nil, errs.New(errs.Invalid, "the list of modules has a line %.100q", line)
		}
		m := Module{File: file}
		for u := range strings.SplitSeq(uses, ",") {
			m.Uses = append(m.Uses, Use(u))
		}
		if list = append(list, m); len(list) > modulesMax {
			return nil, errs.New(errs.Invalid, "more than %d modules", modulesMax)
		}
	}
	return list, nil
}

// Choose returns the files that a machine with these uses loads, in order.
func Choose(list []Module, wanted []Use) []string {
	var files []string
	for _, m := range list {
		if overlaps(m.Uses, wanted) {
			files = append(files, m.File)
		}
	}
	return files
}

func overlaps(a, b []Use) bool {
	for _, x := range a {
		if slices.Contains(b, x) {
			return true
		}
	}
	return false
}
