package runs

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/skete-dev/skete/thread"
)

// DerivedID is the same for the same words: a run that is entered again
// after a crash finds the record of the first time.
func DerivedID(words ...string) thread.RunID {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return thread.RunID("run_" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:20])
}
