package store

import (
	"encoding/hex"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file writes names that tenants choose as NATS subjects.
//
// All functions are pure.

// keyBytesMax bounds a key before encoding.
const keyBytesMax = 512

// A key is a path: segments of any bytes, separated by "/", none empty. NATS
// subjects allow little, so a segment is written with every byte other than
// A-Za-z0-9_- as "=" and two hex digits, and "/" becomes ".". Nothing that a
// tenant chooses can name a wildcard or another segment.

// encodeKey returns the key as a part of a subject.
func encodeKey(key string) (string, error) {
	if key == "" || len(key) > keyBytesMax {
		return "", errs.New(errs.Invalid, "a key has 1 to %d bytes, not %d", keyBytesMax, len(key))
	}
	var b strings.Builder
	for i, segment := range strings.Split(key, "/") {
		if segment == "" {
			return "", errs.New(errs.Invalid, "key %.64q has an empty segment", key)
		}
		if i > 0 {
			b.WriteByte('.')
		}
		encodeSegment(&b, segment)
	}
	return b.String(), nil
}

func encodeSegment(b *strings.Builder, s string) {
	for i := range len(s) {
		if plainKey(s[i]) {
			b.WriteByte(s[i])
			continue
		}
		b.WriteByte('=')
		b.WriteString(hex.EncodeToString([]byte{s[i]}))
	}
}

// plainKey reports whether a byte stands for itself.
func plainKey(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// decodeKey is the inverse of Encode; it refuses what that never writes.
func decodeKey(subject string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(subject); i++ {
		switch c := subject[i]; {
		case c == '.':
			b.WriteByte('/')
		case c == '=' && i+2 < len(subject):
			raw, err := hex.DecodeString(subject[i+1 : i+3])
			if err != nil {
				return "", errs.Wrap(errs.Corrupt, err, "a key of the store cannot be read")
			}
			b.Write(raw)
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	if again, err := encodeKey(b.String()); err != nil || again != subject {
		return "", errs.New(errs.Corrupt, "a key of the store cannot be read")
	}
	return b.String(), nil
}

// keyFilter is the subject filter of all keys with the prefix, which is ""
// or ends in "/".
func keyFilter(prefix string) (string, error) {
	if prefix == "" {
		return ">", nil
	}
	dir, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return "", errs.New(errs.Invalid, "prefix %.64q does not end in a slash", prefix)
	}
	enc, err := encodeKey(dir)
	return enc + ".>", err
}

// tenantBytesMax bounds a tenant's name before encoding.
const tenantBytesMax = 64

// encodeTenant returns the tenant as one token of a subject, and a file's name.
func encodeTenant(tenant string) (string, error) {
	if tenant == "" || len(tenant) > tenantBytesMax {
		return "", errs.New(errs.Invalid, "a tenant's name has 1 to %d bytes, not %d", tenantBytesMax, len(tenant))
	}
	var b strings.Builder
	encodeSegment(&b, tenant)
	return b.String(), nil
}
