package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"
)

// The form of a key that no user chose: a prefix and rand.Text.
const (
	madeUpPrefix = "cmd-"
	madeUpBytes  = len(madeUpPrefix) + 26
)

// NewKey makes a key for a command whose caller gave none, so that a repeated
// start after a broken connection never runs it twice.
func NewKey() string { return madeUpPrefix + rand.Text() }

// MadeUp reports whether a key has the form of NewKey's: only the client
// that made it will repeat it.
func MadeUp(key string) bool {
	if len(key) != madeUpBytes || !strings.HasPrefix(key, madeUpPrefix) {
		return false
	}
	for _, c := range []byte(key[len(madeUpPrefix):]) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// Fingerprint is a StartRequest's of what the caller asked for, equal for
// equal requests. request must be something that JSON can say.
func Fingerprint(request any) []byte {
	b, err := json.Marshal(request) // maps are sorted
	if err != nil {
		panic(err) // a type of ours that is none of JSON
	}
	sum := sha256.Sum256(b)
	return sum[:]
}
