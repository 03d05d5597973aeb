package picture_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/picture"
)

func encoded(t *testing.T, how string) []byte {
	t.Helper()
	m := image.NewPaletted(image.Rect(0, 0, 3, 2), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	var err error
	switch how {
	case "png":
		err = png.Encode(&b, m)
	case "jpeg":
		err = jpeg.Encode(&b, m, nil)
	case "gif":
		err = gif.Encode(&b, m, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// resized is a PNG whose header says another size.
func resized(t *testing.T, width, height uint32) []byte {
	b := encoded(t, "png")
	binary.BigEndian.PutUint32(b[16:], width)
	binary.BigEndian.PutUint32(b[20:], height)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

func decoded(t *testing.T, text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// One pixel each, as encoders write them.
const (
	lossy    = "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"
	lossless = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="
)

func TestCheck(t *testing.T) {
	extended := append([]byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"), 0, 0, 0, 0, 2, 0, 0, 1, 0, 0)
	for name, c := range map[string]struct {
		data []byte
		mime string
	}{
		"png":      {encoded(t, "png"), "image/png"},
		"jpeg":     {encoded(t, "jpeg"), "image/jpeg"},
		"gif":      {encoded(t, "gif"), "image/gif"},
		"lossy":    {decoded(t, lossy), "image/webp"},
		"lossless": {decoded(t, lossless), "image/webp"},
		"extended": {extended, "image/webp"},
	} {
		if mime, err := picture.Check(c.data); mime != c.mime || err != nil {
			t.Errorf("%s: %q, %v", name, mime, err)
		}
	}
}

func TestCheck_refuses(t *testing.T) {
	huge := append([]byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"), 0, 0, 0, 0, 255, 255, 255, 1, 0, 0)
	for name, c := range map[string]struct {
		data  []byte
		class errs.Class
		says  string
	}{
		"empty":      {nil, errs.Invalid, "text/plain"},
		"text":       {[]byte("hello"), errs.Invalid, "text/plain"},
		"pdf":        {[]byte("%PDF-1.7"), errs.Invalid, "application/pdf"},
		"svg":        {[]byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), errs.Invalid, "no image"},
		"bmp":        {[]byte("BM\x00\x00\x00\x00"), errs.Invalid, "image/bmp"},
		"cut":        {encoded(t, "png")[:20], errs.Invalid, "damaged"},
		"cut jpeg":   {encoded(t, "jpeg")[:20], errs.Invalid, "damaged"},
		"bomb":       {resized(t, 60_000, 60_000), errs.Limit, "60000 × 60000 pixels"},
		"one side":   {resized(t, 8001, 1), errs.Limit, "8001 × 1"},
		"cut webp":   {decoded(t, lossy)[:24], errs.Invalid, "damaged"},
		"odd webp":   {append([]byte("RIFF\x16\x00\x00\x00WEBPVP8L\x0a\x00\x00\x00"), make([]byte, 16)...), errs.Invalid, "damaged"},
		"huge webp":  {huge, errs.Limit, "16777216 × 2"},
		"many bytes": {append(encoded(t, "png"), make([]byte, picture.BytesMax)...), errs.Limit, "make a smaller copy"},
	} {
		_, err := picture.Check(c.data)
		if errs.Of(err) != c.class || !strings.Contains(errs.Public(err)+" "+errs.Hint(err), c.says) {
			t.Errorf("%s: %v, want %s %q", name, err, c.class, c.says)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00"))
	f.Add([]byte("\x89PNG\r\n\x1a\n"))
	f.Add([]byte("GIF89a\x01\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		mime, err := picture.Check(data)
		if (err == nil) != strings.HasPrefix(mime, "image/") {
			t.Errorf("%q, %v", mime, err)
		}
	})
}
