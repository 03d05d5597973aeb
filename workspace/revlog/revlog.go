// Package revlog keeps the list of a workspace's revisions in one append-only
// file.
//
//	l, revs, err := revlog.Open(path)
//	err = l.Append(rev)      // on disk when it returns
//	err = l.Replace(revs)    // after old ones were dropped
//
// # Format
//
//	file   = "skhlog1\n" record*
//	record = length(4) crc(4) json
//
// Integers are little-endian; length is that of json, crc its CRC-32C. json is
// a Revision, its "n" first. What follows the last whole record is left of a
// crash and is cut off by Open, unless whole records follow further on: then the
// list is damaged.
//
// A Log is for one goroutine at a time.
package revlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
)

// Name is what the file is called in the store of a history.
const Name = "revisions"

// Revision is the state of a workspace at one moment, and who made it so.
type Revision struct {
	N    uint64      `json:"n"` // from 1, ascending
	Root object.Hash `json:"root"`
	Time time.Time   `json:"time"` // what a clock said that anybody may set; orders nothing
	// Clock is how long the history had been open when it was made, in µs, by a
	// clock that cannot be set; never less than that of the revision before.
	Clock  int64  `json:"clock,omitempty"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Thread string `json:"thread,omitempty"`
	Run    string `json:"run,omitempty"`
	Step   int    `json:"step,omitempty"`
	Call   string `json:"call,omitempty"`
	Actor  string `json:"actor,omitempty"` // "agent", "user:anna", "outside"
	Label  string `json:"label,omitempty"`
	// Undoes is the revision that an undo or restore went back to.
	Undoes uint64 `json:"undoes,omitempty"`
	// Jump: it went there because the caller named it, not by an undo or a redo.
	Jump bool `json:"jump,omitempty"`
	// Whole: all files were gone back to that revision, but for what going back
	// leaves alone; not one path, nor one step.
	Whole bool `json:"whole,omitempty"`
	// Aside: the files differ from those of the revision before only in what
	// going back leaves alone.
	Aside bool `json:"aside,omitempty"`
	// Plan is the id of the plan that was carried out, and Kept what that left as
	// it was, the first of it.
	Plan string   `json:"plan,omitempty"`
	Kept [][]byte `json:"kept,omitempty"`
	// Thin: Root has no directories any more of those that can be made again; they
	// were given up for room. Files and Bytes are those of the tree as it was.
	Thin bool `json:"thin,omitempty"`
	// Torn files were changing while they were read.
	Torn []string `json:"torn,omitempty"`
}

const (
	magic          = "skhlog1\n"
	recordBytesMax = 1 << 20
	logBytesMax    = 256 << 20
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// Log is the open file.
type Log struct {
	path string
	file *os.File
	end  int64
	last uint64
}

// Open reads the log at path, making it if need be. Corrupt: it is no log, or
// its revisions are out of order.
func Open(path string) (*Log, []Revision, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l := &Log{path: path, file: f}
	revs, err := l.load()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return l, revs, nil
}

func (l *Log) load() ([]Revision, error) {
	data, err := io.ReadAll(io.LimitReader(l.file, logBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > logBytesMax {
		return nil, errs.New(errs.Corrupt, "the list of revisions is larger than %d MiB", logBytesMax>>20)
	}
	if len(data) < len(magic) {
		if err := l.begin(); err != nil {
			return nil, err
		}
		return nil, nil
	}
	if string(data[:len(magic)]) != magic {
		return nil, errs.New(errs.Corrupt, "the list of revisions is something else")
	}
	revs, end, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if n := len(revs); n > 0 {
		l.last = revs[n-1].N
	}
	l.end = int64(end)
	return revs, l.file.Truncate(l.end)
}

func (l *Log) begin() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	if _, err := l.file.WriteAt([]byte(magic), 0); err != nil {
		return err
	}
	l.end = int64(len(magic))
	return errors.Join(l.file.Sync(), syncDir(filepath.Dir(l.path)))
}

// Read is Open for who only looks: it changes nothing. torn is how many bytes
// at the end Open would cut off. With an error, revs are those before it.
func Read(path string) (revs []Revision, torn int, err error) {
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, 0, err
	case len(data) < len(magic):
		return nil, len(data), nil
	case string(data[:len(magic)]) != magic:
		return nil, 0, errs.New(errs.Corrupt, "the list of revisions is something else")
	}
	revs, end, err := Parse(data)
	return revs, len(data) - end, err
}

// record takes the first record of data apart; whole is false if it is none.
func record(data []byte) (text []byte, whole bool) {
	if len(data) < 8 {
		return nil, false
	}
	length := int(binary.LittleEndian.Uint32(data))
	if length == 0 || length > recordBytesMax || length > len(data)-8 {
		return nil, false
	}
	text = data[8 : 8+length]
	return text, crc32.Checksum(text, crcTable) == binary.LittleEndian.Uint32(data[4:])
}

// follows reports whether a whole record begins somewhere behind.
func follows(data []byte) bool {
	for {
		i := bytes.Index(data, []byte(`{"n":`))
		if i < 0 {
			return false
		}
		if i >= 8 {
			if _, whole := record(data[i-8:]); whole {
				return true
			}
		}
		data = data[i+1:]
	}
}

// Parse reads the records of a log and returns where the last whole one ends.
// Corrupt: it is damaged, in a way that no crash can; revs are those before.
func Parse(data []byte) (revs []Revision, end int, err error) {
	end = len(magic)
	for {
		text, whole := record(data[end:])
		if !whole {
			if len(data) > end && follows(data[end+1:]) { // one record is written at a time
				return revs, end, errs.New(errs.Corrupt, "the list of revisions is damaged at byte %d", end)
			}
			return revs, end, nil
		}
		var r Revision
		if err := json.Unmarshal(text, &r); err != nil {
			return revs, end, errs.Wrap(errs.Corrupt, err, "a revision cannot be read")
		}
		if n := len(revs); r.N == 0 || n > 0 && r.N <= revs[n-1].N {
			return revs, end, errs.New(errs.Corrupt, "revision %d is out of order", r.N)
		}
		revs = append(revs, r)
		end += 8 + len(text)
	}
}

func encode(b []byte, r Revision) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > recordBytesMax {
		return nil, errs.New(errs.Invalid, "a revision's labels are larger than %d bytes", recordBytesMax)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(text, crcTable))
	return append(b, text...), nil
}

// Append adds a revision; it is on disk when Append returns nil. Else it is
// not there.
func (l *Log) Append(r Revision) error {
	if r.N <= l.last {
		return errs.New(errs.Internal, "revision %d does not follow %d", r.N, l.last)
	}
	b, err := encode(nil, r)
	if err != nil {
		return err
	}
	if _, err = l.file.WriteAt(b, l.end); err == nil {
		err = unix.Fdatasync(int(l.file.Fd()))
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = errs.Wrap(errs.Limit, err, "the disk that keeps the history is full")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write revision %d: %w", r.N, err), l.file.Truncate(l.end))
	}
	l.end += int64(len(b))
	l.last = r.N
	return nil
}

// Replace writes the whole list anew, in one step.
func (l *Log) Replace(revs []Revision) error {
	b := []byte(magic)
	for _, r := range revs {
		var err error
		if b, err = encode(b, r); err != nil {
			return err
		}
	}
	temp := l.path + ".new"
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(temp, l.path)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(temp))
	}
	_ = l.file.Close()
	l.file, l.end, l.last = f, int64(len(b)), 0
	if n := len(revs); n > 0 {
		l.last = revs[n-1].N
	}
	return syncDir(filepath.Dir(l.path))
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
