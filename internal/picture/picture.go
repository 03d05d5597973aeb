// Package picture looks at images that are to be shown to a model: which kind they
// are, and whether they are small enough. It reads headers only and decodes no pixels,
// so an image that would fill the memory when it is unpacked does no harm here.
package picture

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif"  // for DecodeConfig
	_ "image/jpeg" // for DecodeConfig
	_ "image/png"  // for DecodeConfig
	"net/http"

	"github.com/skete-dev/skete/errs"
)

// Bounds of one image: what vendors take.
const (
	BytesMax = 5 << 20
	SideMax  = 8000 // pixels
)

// Check returns the MIME type of an image: image/png, image/jpeg, image/gif or
// image/webp. Limit: it has too many bytes or pixels. Invalid: it is none of these, or
// its header is damaged.
func Check(data []byte) (mime string, err error) {
	if len(data) > BytesMax {
		return "", errs.New(errs.Limit, "an image has %d bytes; at most %d can be shown", len(data), BytesMax).WithHint("make a smaller copy")
	}
	width, height := 0, 0
	switch mime = http.DetectContentType(data); mime {
	case "image/webp":
		width, height = webp(data)
	case "image/png", "image/jpeg", "image/gif":
		c, _, err := image.DecodeConfig(bytes.NewReader(data))
		if err == nil {
			width, height = c.Width, c.Height
		}
	default:
		return "", errs.New(errs.Invalid, "that is no image that models can look at: its content is %s", mime).WithHint("they take PNG, JPEG, GIF and WebP")
	}
	switch {
	case width <= 0 || height <= 0:
		return "", errs.New(errs.Invalid, "the header of an image (%s) is damaged", mime)
	case width > SideMax || height > SideMax:
		return "", errs.New(errs.Limit, "an image has %d × %d pixels; at most %d × %d can be shown", width, height, SideMax, SideMax).WithHint("make a smaller copy")
	}
	return mime, nil
}

// webp reads the size out of the first chunk of a WebP file (RFC 9649); 0 = it has none.
func webp(b []byte) (width, height int) {
	const head = 20 // RIFF, size, WEBP, the chunk's name and size
	if len(b) < head+10 {
		return 0, 0
	}
	p := b[head:]
	switch string(b[12:16]) {
	case "VP8 ":
		if !bytes.Equal(p[3:6], []byte{0x9d, 0x01, 0x2a}) {
			return 0, 0
		}
		return int(binary.LittleEndian.Uint16(p[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(p[8:]) & 0x3fff)
	case "VP8L":
		if p[0] != 0x2f {
			return 0, 0
		}
		bits := binary.LittleEndian.Uint32(p[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case "VP8X":
		return int(uint32(p[4])|uint32(p[5])<<8|uint32(p[6])<<16) + 1, int(uint32(p[7])|uint32(p[8])<<8|uint32(p[9])<<16) + 1
	}
	return 0, 0
}
