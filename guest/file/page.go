package file

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file makes the tokens with which a listing goes on.
//
// A token is base64 of: version, depth, CRC of listing and place, place. It is
// no secret and grants nothing; the CRC only tells a client that it mixed up
// its listings. The place is compared with names, never opened.

const (
	version       = 1
	tokenBytesMax = 8192
)

// pageToken names the place behind the entry last.
func pageToken(name string, depth int, last string) []byte {
	b := append([]byte{version, byte(depth)}, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[2:], pageSum(name, depth, last))
	b = append(b, last...)
	return []byte(base64.RawURLEncoding.EncodeToString(b))
}

func pageSum(name string, depth int, last string) uint32 {
	return crc32.ChecksumIEEE([]byte(name + "\x00" + string(rune(depth)) + "\x00" + last))
}

// parsePageToken returns the entry to go on after; "" begins at the beginning.
func parsePageToken(token []byte, name string, depth int) (string, error) {
	if len(token) == 0 {
		return "", nil
	}
	bad := errs.New(errs.Invalid, "the page token does not belong to this listing").
		WithHint("leave it out to begin again")
	if len(token) > tokenBytesMax {
		return "", bad
	}
	b, err := base64.RawURLEncoding.DecodeString(string(token))
	if err != nil || len(b) < 7 || b[0] != version || int(b[1]) != depth {
		return "", bad
	}
	last := string(b[6:])
	if binary.BigEndian.Uint32(b[2:]) != pageSum(name, depth, last) || strings.IndexByte(last, 0) >= 0 {
		return "", bad
	}
	return last, nil
}
