package capture

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// watchEvent builds what the kernel writes.
func watchEvent(mask uint64, kind byte, h, name string) []byte {
	info := make([]byte, infoBytes)
	info[0] = kind
	info = binary.NativeEndian.AppendUint32(info, uint32(len(h)))
	info = append(append(append(info, 1, 0, 0, 0), h...), name...)
	for len(info)%4 != 0 {
		info = append(info, 0)
	}
	binary.NativeEndian.PutUint16(info[2:], uint16(len(info)))
	b := make([]byte, metaBytes)
	binary.NativeEndian.PutUint32(b, uint32(metaBytes+len(info)))
	b[4] = unix.FANOTIFY_METADATA_VERSION
	binary.NativeEndian.PutUint16(b[6:], metaBytes)
	binary.NativeEndian.PutUint64(b[8:], mask)
	return append(b, info...)
}

func TestParse(t *testing.T) {
	one := watchEvent(unix.FAN_CREATE, unix.FAN_EVENT_INFO_TYPE_DFID_NAME, "12345678", "name\x00")
	two := watchEvent(unix.FAN_MODIFY, unix.FAN_EVENT_INFO_TYPE_DFID_NAME, "abcdefgh", ".\x00")
	lost := watchEvent(unix.FAN_Q_OVERFLOW, unix.FAN_EVENT_INFO_TYPE_FID, "", "")[:metaBytes]
	binary.NativeEndian.PutUint32(lost, metaBytes)
	got := map[fileHandle]bool{}
	overflow, err := parseEvents(slices.Concat(one, lost, two, one), func(h fileHandle) { got[h] = true })
	if want := map[fileHandle]bool{"\x01\x00\x00\x0012345678": true, "\x01\x00\x00\x00abcdefgh": true}; err != nil || !overflow || !maps.Equal(got, want) {
		t.Errorf("%v, %v, %v", got, overflow, err)
	}
	change := func(at int, b ...byte) []byte {
		c := slices.Clone(one)
		copy(c[at:], b)
		return c
	}
	for name, b := range map[string][]byte{
		"cut off":                one[:len(one)-1],
		"only a head":            one[:10],
		"another version":        change(4, 9),
		"a head of 0 bytes":      change(6, 0, 0),
		"longer than it is":      change(0, 255),
		"shorter than its head":  change(0, 3),
		"an info of 0 bytes":     change(metaBytes+2, 0, 0),
		"an info beyond the end": change(metaBytes+2, 255, 0),
		"a handle of 0 bytes":    change(metaBytes+infoBytes, 0),
		"a handle beyond":        change(metaBytes+infoBytes, 100),
		"a giant handle":         change(metaBytes+infoBytes, 255, 255, 255, 255),
		"no directory":           change(metaBytes, unix.FAN_EVENT_INFO_TYPE_PIDFD),
	} {
		if _, err := parseEvents(b, func(fileHandle) {}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(watchEvent(unix.FAN_CREATE, unix.FAN_EVENT_INFO_TYPE_DFID_NAME, "12345678", "name\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseEvents(b, func(h fileHandle) {
			if len(h) < 5 || len(h) > 4+handleBytesMax {
				t.Fatalf("a handle of %d bytes", len(h))
			}
			h.fileHandle()
		})
	})
}

const someMaps = `55d0c0000000-55d0c0001000 r--p 00000000 08:01 1234   /bin/cat
7f0000000000-7f0000001000 rw-s 00001000 07:03 77     /work/a b (deleted)
7f0000002000-7f0000003000 rw-s 00000000 00:01 9      /dev/zero (deleted)
7f0000004000-7f0000005000 rw-p 00000000 07:03 78     /work/private
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0      [stack]
7f0000006000-7f0000007000 r--s 00000000 07:03 79
`

func TestParseMaps(t *testing.T) {
	got := map[uint64]struct{}{}
	err := parseMaps([]byte(someMaps), unix.Mkdev(7, 3), got)
	if want := map[uint64]struct{}{77: {}, 79: {}}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"x\n", "1-2 rw-s 0 7:3 x\n", "1-2 rw-s 0 73 5\n", "1-2 rw 0 7:3 5\n", "1-2 rw-s 0 z:3 5\n"} {
		if err := parseMaps([]byte(bad), 0, got); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(someMaps))
	f.Fuzz(func(t *testing.T, b []byte) { _ = parseMaps(b, 1, map[uint64]struct{}{}) })
}

// What a captured scan pays for looking at all processes.
func BenchmarkMapped(b *testing.B) {
	for b.Loop() {
		mappedFiles(0, map[uint64]struct{}{})
	}
}
