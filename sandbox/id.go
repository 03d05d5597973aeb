package sandbox

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// ID names a sandbox: "sbx_" and 20 characters of a–z, 2–7 (100 bits, not to
// be guessed). The length is fixed because gVisor accepts abbreviated ids.
type ID string

// IDPrefix is what every ID begins with, and no name.
const IDPrefix = idPrefix

const (
	idPrefix = "sbx_"
	idLen    = len(idPrefix) + 20
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns a random ID.
func NewID() ID {
	var b [13]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return idOf(b[:])
}

// idOf makes an ID of 13 or more bytes of randomness.
func idOf(b []byte) ID { return ID(idPrefix + idEncoding.EncodeToString(b[:13])[:20]) }

// ParseID checks the form of s.
func ParseID(s string) (ID, error) {
	bad := len(s) != idLen || !strings.HasPrefix(s, idPrefix) ||
		strings.Trim(s[len(idPrefix):], "abcdefghijklmnopqrstuvwxyz234567") != ""
	if bad {
		return "", errs.New(errs.Invalid, "%.40q is not a sandbox id", s).
			WithHint("ids look like sbx_k3j5…; `skete vm list` shows them")
	}
	return ID(s), nil
}

// IsIDBeginning reports whether s may be the beginning of an ID: the prefix, and
// at least one character behind it.
func IsIDBeginning(s string) bool {
	rest, ok := strings.CutPrefix(s, idPrefix)
	return ok && rest != "" && len(s) <= idLen && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// KeyedID derives an ID from a tenant's idempotency key: the same for ever,
// and not to be guessed by who knows the key but not the secret.
func KeyedID(secret []byte, tenant, key string) ID {
	return idOf(keyed(secret, tenant, key))
}

// KeyedSnapshotID is KeyedID for a snapshot.
func KeyedSnapshotID(secret []byte, tenant, key string) SnapshotID {
	return SnapshotID(snapshotPrefix + idEncoding.EncodeToString(keyed(secret, tenant, key))[:20])
}

func keyed(secret []byte, tenant, key string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(tenant))
	h.Write([]byte{0})
	h.Write([]byte(key))
	return h.Sum(nil)
}
