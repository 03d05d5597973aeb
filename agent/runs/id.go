package runs

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// DerivedID is the same for the same words: a run that is entered again
// after a crash finds the record of the first time.
func DerivedID(words ...string) thread.RunID {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return thread.RunID("run_" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:20])
}

// Fingerprint tells two requests under one key apart.
func (s Start) Fingerprint() string {
	asked, _ := json.Marshal(struct { // plain data
		Thread thread.ID
		Agent  string
		Input  []llm.Block
		Model  string
		Mode   []any `json:",omitempty"` // keys of earlier versions stay good
	}{s.Thread, s.Agent, s.Input, s.Model, s.mode()})
	return HashName(string(asked))
}

// mode is what a start asks for beside its words; nil = nothing. The bytes of images are
// not in the JSON of blocks.
func (s Start) mode() []any {
	var images []any
	for _, b := range s.Input {
		if b.Media != nil && len(b.Media.Data) > 0 {
			images = append(images, HashName(string(b.Media.Data)))
		}
	}
	if !s.Planning && s.EndCheck == nil && images == nil {
		return nil
	}
	return append([]any{s.Planning, s.EndCheck}, images...)
}

// HashName makes a name of fixed form of any text.
func HashName(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
