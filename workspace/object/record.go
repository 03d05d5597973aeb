package object

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
)

// Bounds of the format.
const (
	ContentBytesMax = 64 << 20 // of one object
	segmentHeader   = 16
	recordHeader    = 52
	// compressMin is the length below which compression is not tried.
	compressMin = 128
)

const segmentMagic = "skhseg1\n"

const (
	codecRaw  = 0
	codecZstd = 1
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// header is a record's header.
type header struct {
	kind   Kind
	codec  uint8
	stored uint32
	raw    uint32
	hash   Hash
	crc    uint32 // of the payload
}

// append writes the header behind b.
func (h header) append(b []byte) []byte {
	start := len(b)
	b = append(b, 'r', 'c', byte(h.kind), h.codec)
	b = binary.LittleEndian.AppendUint32(b, h.stored)
	b = binary.LittleEndian.AppendUint32(b, h.raw)
	b = append(b, h.hash[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.crc)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], crcTable))
}

var errRecord = errs.New(errs.Corrupt, "not a record")

// parseHeader reads the recordHeader bytes of b.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < recordHeader || b[0] != 'r' || b[1] != 'c' ||
		crc32.Checksum(b[:recordHeader-4], crcTable) != binary.LittleEndian.Uint32(b[recordHeader-4:]) {
		return h, errRecord
	}
	h = header{kind: Kind(b[2]), codec: b[3], stored: binary.LittleEndian.Uint32(b[4:]), raw: binary.LittleEndian.Uint32(b[8:])}
	copy(h.hash[:], b[12:44])
	h.crc = binary.LittleEndian.Uint32(b[44:])
	switch {
	case h.kind < Blob || h.kind > Tree || h.codec > codecZstd,
		h.raw > ContentBytesMax || h.stored > h.raw,
		h.codec == codecRaw && h.stored != h.raw:
		return h, errRecord
	}
	return h, nil
}

var encoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}}

// decoder has no state between calls.
var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(ContentBytesMax))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// seal makes the record of an object: header and payload.
func seal(kind Kind, hash Hash, content []byte) []byte {
	h := header{kind: kind, codec: codecRaw, raw: uint32(len(content)), hash: hash}
	b := make([]byte, recordHeader, recordHeader+len(content)/2+64)
	if len(content) >= compressMin {
		e := encoders.Get().(*zstd.Encoder)
		b = e.EncodeAll(content, b)
		encoders.Put(e)
		h.codec = codecZstd
	}
	if h.codec == codecRaw || len(b)-recordHeader >= len(content) {
		h.codec = codecRaw
		b = append(b[:recordHeader], content...)
	}
	payload := b[recordHeader:]
	h.stored, h.crc = uint32(len(payload)), crc32.Checksum(payload, crcTable)
	h.append(b[:0])
	return b
}

// open returns the content of a payload, checked against CRC and hash.
func (h header) open(payload []byte) ([]byte, error) {
	if uint32(len(payload)) != h.stored || crc32.Checksum(payload, crcTable) != h.crc {
		return nil, errs.New(errs.Corrupt, "object %s is damaged", h.hash)
	}
	content := payload
	if h.codec == codecZstd {
		var err error
		content, err = decoder().DecodeAll(payload, make([]byte, 0, h.raw))
		if err != nil || uint32(len(content)) != h.raw {
			return nil, errs.Wrap(errs.Corrupt, err, "object %s is damaged", h.hash)
		}
	}
	if HashOf(h.kind, content) != h.hash {
		return nil, errs.New(errs.Corrupt, "object %s is another one", h.hash)
	}
	return content, nil
}
