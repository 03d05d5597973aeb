package thread

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// ArgsHash identifies the arguments of a call however they are spelt: hex, of the
// JSON with its keys in order and without spaces. What is decided about a call is
// decided about these.
func ArgsHash(args json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber() // a number is what was written
	text := []byte(args)
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			text = canonical
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
