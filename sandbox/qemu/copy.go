package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// blockBytes is the unit in which files with holes are copied.
const blockBytes = 64 << 10

var (
	emptyBlock = make([]byte, blockBytes)
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// copyData copies the first size bytes of from to the empty file to, blocks of
// zeros left out, and returns a checksum of what it has copied and where to.
func copyData(ctx context.Context, to, from *os.File, size int64) (uint32, error) {
	if err := to.Truncate(size); err != nil {
		return 0, err
	}
	sum, buf := uint32(0), make([]byte, 16*blockBytes)
	for at := int64(0); at < size; {
		start, end, err := nextData(from, at, size)
		if err != nil {
			return 0, err
		}
		for at = start; at < end; {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			n, err := from.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
			if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
				return 0, err
			}
			if sum, err = writeBlocks(to, buf[:n], at, sum); err != nil {
				return 0, err
			}
			at += int64(n)
		}
	}
	return sum, nil
}

// nextData returns where the data at or behind at begins and ends, in whole
// blocks; start = size when there is none.
func nextData(f *os.File, at, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find data: %w", err)
	}
	if end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE); err != nil {
		return 0, 0, fmt.Errorf("find a hole: %w", err)
	}
	start = max(at, start/blockBytes*blockBytes)
	end = (end + blockBytes - 1) / blockBytes * blockBytes
	return min(start, size), min(end, size), nil
}

// writeBlocks writes what is not empty and adds it to the sum. Neighbours go
// out in one write.
func writeBlocks(to *os.File, data []byte, at int64, sum uint32) (uint32, error) {
	var place [8]byte
	full := 0 // bytes before off that wait to be written
	flush := func(off int) error {
		if full == 0 {
			return nil
		}
		_, err := to.WriteAt(data[off-full:off], at+int64(off-full))
		full = 0
		return err
	}
	off := 0
	for off < len(data) {
		block := data[off:min(off+blockBytes, len(data))]
		if bytes.Equal(block, emptyBlock[:len(block)]) {
			if err := flush(off); err != nil {
				return 0, err
			}
		} else {
			binary.LittleEndian.PutUint64(place[:], uint64(at)+uint64(off))
			sum = crc32.Update(crc32.Update(sum, castagnoli, place[:]), castagnoli, block)
			full += len(block)
		}
		off += len(block)
	}
	return sum, flush(off)
}

// copyFile makes the empty file to the same as from, sharing its blocks where
// the host's file system can.
func copyFile(to, from *os.File) (int64, error) {
	info, err := from.Stat()
	if err != nil {
		return 0, err
	}
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return info.Size(), nil
	}
	_, err = copyData(context.Background(), to, from, info.Size())
	return info.Size(), err
}
