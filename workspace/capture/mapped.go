package capture

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	processesMax = 2000 // whose mappings are looked at
	mapsBytesMax = 4 << 20
)

// mappedFiles adds to found the inodes of the files of a device that some process
// has mapped and shares with others, or with the disk. whole is false if not
// all processes could be looked at.
func mappedFiles(dev uint64, found map[uint64]struct{}) (whole bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return false
	}
	seen, buffer := 0, make([]byte, 64<<10)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if seen++; seen > processesMax {
			return false
		}
		fd, err := unix.Openat(int(proc.Fd()), name+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			if !passedMaps(err) {
				return false
			}
			continue
		}
		err = mappedFile(fd, dev, buffer, found)
		if err = errors.Join(err, unix.Close(fd)); err != nil && !passedMaps(err) {
			return false
		}
	}
	return true
}

// passedMaps says that a process need not be looked at: it is gone, or has more
// rights than we who may look at all (Open checks that), so it is none of those
// who work in the directory.
func passedMaps(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// mappedFile asks for the mappings of one process, or reads them all where the
// kernel (before 6.11) cannot be asked.
func mappedFile(fd int, dev uint64, buffer []byte, found map[uint64]struct{}) error {
	err := queryMaps(fd, dev, found)
	if errors.Is(err, unix.ENOTTY) {
		return readMaps(fd, dev, buffer, found)
	}
	return err
}

func readMaps(fd int, dev uint64, buffer []byte, found map[uint64]struct{}) error {
	text := buffer[:0]
	for {
		if len(text) == cap(text) {
			if len(text) >= mapsBytesMax { // a process with 40,000 mappings
				return unix.E2BIG
			}
			text = append(text, 0)[:len(text)]
		}
		n, err := unix.Read(fd, text[len(text):cap(text)])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		text = text[:len(text)+n]
	}
	return parseMaps(text, dev, found)
}

// mapQuery is struct procmap_query of linux/fs.h.
type mapQuery struct {
	size, flags, addr              uint64
	start, end, vmaFlags, pageSize uint64
	offset, inode                  uint64
	major, minor                   uint32
	nameSize, buildSize            uint32
	nameAddr, buildAddr            uint64
}

const (
	queryIoctl    = 3<<30 | uint(unsafe.Sizeof(mapQuery{}))<<16 | 'f'<<8 | 17 // _IOWR('f', 17, …)
	queryShared   = 0x08
	queryNext     = 0x10
	queryOnlyFile = 0x20
)

// queryMaps walks the shared mappings of files. ENOTTY: the kernel cannot.
func queryMaps(fd int, dev uint64, found map[uint64]struct{}) error {
	q := mapQuery{}
	for addr := uint64(0); ; addr = q.end {
		q = mapQuery{size: uint64(unsafe.Sizeof(q)), flags: queryShared | queryNext | queryOnlyFile, addr: addr}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(queryIoctl), uintptr(unsafe.Pointer(&q))); errno != 0 {
			if errno == unix.ENOENT || errno == unix.ESRCH { // no more, or no memory at all: the kernel's own
				return nil
			}
			return errno
		}
		if unix.Mkdev(q.major, q.minor) == dev {
			found[q.inode] = struct{}{}
		}
		if q.end <= addr {
			return unix.EINVAL
		}
	}
}

// parseMaps reads /proc/PID/maps: "from-to rwxs offset major:minor inode path".
func parseMaps(text []byte, dev uint64, found map[uint64]struct{}) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 5 || len(fields[1]) != 4 {
			return errWatchEvent("a line of a process's mappings")
		}
		major, minor, ok := bytes.Cut(fields[3], []byte(":"))
		x, err1 := strconv.ParseUint(string(major), 16, 32)
		y, err2 := strconv.ParseUint(string(minor), 16, 32)
		ino, err3 := strconv.ParseUint(string(fields[4]), 10, 64)
		if !ok || errors.Join(err1, err2, err3) != nil {
			return errWatchEvent("a line of a process's mappings")
		}
		if fields[1][3] == 's' && ino != 0 && unix.Mkdev(uint32(x), uint32(y)) == dev {
			found[ino] = struct{}{}
		}
	}
	return lines.Err()
}
