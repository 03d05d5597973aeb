package object

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// block is what a disk writes as a whole.
const block = 512

// tornAt reports whether what stands in a file from at on, which is no whole
// record, is what a crash leaves.
func tornAt(f *os.File, at, size int64) (bool, error) {
	rest := make([]byte, size-at)
	if _, err := f.ReadAt(rest, at); err != nil {
		return false, err
	}
	return torn(rest, at), nil
}

// torn is tornAt for what is in memory.
func torn(rest []byte, at int64) bool {
	if len(rest) < recordHeader {
		return true
	}
	length := recordHeader
	if h, err := parseHeader(rest); err == nil {
		if length += int(h.stored); length > len(rest) {
			return true
		}
	}
	return hasHole(rest[:length], at) || nextRecord(rest) < 0
}

// neverBegun reports whether a segment without a head is what a crash leaves
// of one that was being made: no record is in it.
func neverBegun(f *os.File, size int64) (bool, error) {
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil && size > 0 {
		return false, err
	}
	return headless(data), nil
}

func headless(data []byte) bool {
	return len(data) < segmentHeader || nextRecord(data) < 0 && hasHole(data[:segmentHeader], 0)
}

// hasHole reports whether a part of a file at this place has blocks of zeros:
// whole ones, or the part of one in which it begins or ends.
func hasHole(part []byte, at int64) bool {
	for len(part) > 0 {
		n := min(len(part), block-int(at%block))
		if n >= 4 && len(bytes.TrimLeft(part[:n], "\x00")) == 0 {
			return true
		}
		part, at = part[n:], at+int64(n)
	}
	return false
}

// nextRecord is where behind the first byte the next whole record begins; -1 =
// there is none.
func nextRecord(data []byte) int {
	for at := 1; ; at++ {
		i := bytes.Index(data[min(at, len(data)):], []byte("rc"))
		if i < 0 {
			return -1
		}
		at += i
		h, err := parseHeader(data[at:])
		if err != nil || recordHeader+int(h.stored) > len(data)-at {
			continue
		}
		if _, err := h.open(data[at+recordHeader:][:h.stored]); err == nil {
			return at
		}
	}
}

// Found is an object that Inspect has found whole.
type Found struct {
	Kind    Kind
	Hash    Hash
	Content []byte
}

// Damage is a part of a file that is no whole record.
type Damage struct {
	File    string
	At, End int64
	// Torn: it is what a crash leaves, and Open cuts it off.
	Torn bool
	Why  string
}

// Inspect reads all segments of a store that no process has open, and changes
// nothing. Behind a damage it goes on with the next whole record.
func Inspect(dir string, found func(Found), damage func(Damage)) (bytes int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".seg") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return bytes, err
		}
		bytes += int64(len(data))
		number, ok := segmentNumber(name)
		if !ok {
			damage(Damage{File: name, End: int64(len(data)), Why: "it is no name of a segment"})
			continue
		}
		inspect(name, number, data, i == len(names)-1, found, damage)
	}
	return bytes, nil
}

func inspect(name string, number uint32, data []byte, last bool, found func(Found), damage func(Damage)) {
	if len(data) < segmentHeader || !validSegment(data[:segmentHeader], number) {
		damage(Damage{File: name, End: min(segmentHeader, int64(len(data))), Why: "the head is damaged", Torn: last && headless(data)})
	}
	for at := min(segmentHeader, len(data)); at < len(data); {
		end, why := at, "it is no record"
		h, err := parseHeader(data[at:])
		if err == nil && recordHeader+int(h.stored) <= len(data)-at {
			end = at + recordHeader + int(h.stored)
			content, err := h.open(data[at+recordHeader : end])
			if err == nil {
				found(Found{h.kind, h.hash, content})
				at = end
				continue
			}
			why = err.Error()
		}
		d := Damage{File: name, At: int64(at), Torn: last && torn(data[at:], int64(at)), Why: why}
		if end == at || d.Torn {
			next := nextRecord(data[at:])
			if end = at + next; next < 0 || d.Torn {
				end = len(data)
			}
		}
		d.End = int64(end)
		damage(d)
		at = end
	}
}
