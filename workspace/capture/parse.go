package capture

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Sizes of what the kernel writes; see fanotify(7).
const (
	metaBytes      = 24 // fanotify_event_metadata
	infoBytes      = 12 // fanotify_event_info_header and fsid
	handleBytes    = 8  // file_handle without its bytes
	handleBytesMax = 128
)

// fileHandle names a directory as open_by_handle_at takes it: type, then bytes.
type fileHandle string

func (h fileHandle) fileHandle() unix.FileHandle {
	return unix.NewFileHandle(int32(binary.NativeEndian.Uint32([]byte(h[:4]))), []byte(h[4:]))
}

// parseEvents calls dir with each directory that a read of events names. overflow:
// events were lost. Corrupt: it is not what the kernel writes.
func parseEvents(b []byte, dir func(fileHandle)) (overflow bool, err error) {
	for len(b) > 0 {
		if len(b) < metaBytes {
			return overflow, errWatchEvent("cut off")
		}
		size, version, meta := int(binary.NativeEndian.Uint32(b)), b[4], int(binary.NativeEndian.Uint16(b[6:]))
		if version != unix.FANOTIFY_METADATA_VERSION || meta < metaBytes || size < meta || size > len(b) {
			return overflow, errWatchEvent("of another version, or a wrong length")
		}
		if binary.NativeEndian.Uint64(b[8:])&unix.FAN_Q_OVERFLOW != 0 {
			overflow = true
		} else if err := parseInfos(b[meta:size], dir); err != nil {
			return overflow, err
		}
		b = b[size:]
	}
	return overflow, nil
}

// parseInfos reads what stands behind an event.
func parseInfos(b []byte, dir func(fileHandle)) error {
	named := false
	for len(b) > 0 {
		if len(b) < 4 {
			return errWatchEvent("cut off")
		}
		kind, size := b[0], int(binary.NativeEndian.Uint16(b[2:]))
		if size < 4 || size > len(b) {
			return errWatchEvent("a wrong length")
		}
		if kind == unix.FAN_EVENT_INFO_TYPE_DFID_NAME || kind == unix.FAN_EVENT_INFO_TYPE_DFID {
			h, err := parseHandle(b[:size])
			if err != nil {
				return err
			}
			dir(h)
			named = true
		}
		b = b[size:]
	}
	if !named {
		return errWatchEvent("without a directory")
	}
	return nil
}

func parseHandle(info []byte) (fileHandle, error) {
	if len(info) < infoBytes+handleBytes {
		return "", errWatchEvent("cut off")
	}
	h := info[infoBytes:]
	n := int(binary.NativeEndian.Uint32(h))
	if n == 0 || n > handleBytesMax || n > len(h)-handleBytes {
		return "", errWatchEvent("a handle of a wrong length")
	}
	return fileHandle(h[4 : handleBytes+n]), nil
}

func errWatchEvent(what string) error {
	return errs.New(errs.Corrupt, "the kernel reports an event that cannot be read: %s", what)
}
