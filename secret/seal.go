package secret

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/skete-dev/skete/errs"
)

// Sealer makes values unreadable without something that is not in the store. about is
// what a value belongs to: it is not kept, and what was sealed for one thing opens for no
// other.
//
// Safe for concurrent use.
type Sealer interface {
	Seal(ctx context.Context, plain, about []byte) ([]byte, error)
	// Open is the reverse. Corrupt: it was changed, sealed for something else, or with
	// another key. Unavailable: what holds the key does not answer.
	Open(ctx context.Context, sealed, about []byte) ([]byte, error)
}

const (
	keyBytes = 32
	keyHead  = 8 // of a key's hash, which names it in what it has sealed
	sealForm = 1 // the first byte of what is sealed
)

// keySealer seals with AES-256-GCM: the form, the key's name, a nonce, the ciphertext.
type keySealer struct {
	name []byte
	aead cipher.AEAD
}

// Format implements fmt.Formatter, for all verbs: what it holds tells the key.
func (s *keySealer) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(stars)) }

// NewSealer returns the Sealer of a key of 32 bytes.
func NewSealer(key []byte) (Sealer, error) {
	if len(key) != keyBytes {
		return nil, errs.New(errs.Invalid, "the key of the secrets has %d bytes, not %d", len(key), keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("skete secret key\x00"), key...))
	return &keySealer{sum[:keyHead], aead}, nil
}

// FileSealer returns the Sealer of the key in a file, which is made if it is not there.
// Corrupt: the file holds no key. Denied: others may read it.
func FileSealer(path string) (Sealer, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		key := make([]byte, keyBytes)
		_, _ = rand.Read(key)
		if err := writeKey(path, key); err != nil {
			return nil, err
		}
		return NewSealer(key)
	case err != nil:
		return nil, err
	case info.Mode().Perm()&0o077 != 0:
		return nil, errs.New(errs.Denied, "others may read the key of the secrets").WithHint("chmod 600 %s, and set the secrets anew if others may have read it", path)
	case info.Size() != keyBytes:
		return nil, errs.New(errs.Corrupt, "the key of the secrets has %d bytes, not %d", info.Size(), keyBytes).
			WithHint("bring it back from a backup; without it the secrets have to be set anew")
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return NewSealer(key)
}

// writeKey makes a file that is there whole or not at all.
func writeKey(path string, key []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (s *keySealer) Seal(_ context.Context, plain, about []byte) ([]byte, error) {
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce)
	out := append([]byte{sealForm}, s.name...)
	out = append(out, nonce...)
	return s.aead.Seal(out, nonce, plain, about), nil
}

func (s *keySealer) Open(_ context.Context, sealed, about []byte) ([]byte, error) {
	head := 1 + keyHead + s.aead.NonceSize()
	if len(sealed) < head+s.aead.Overhead() || sealed[0] != sealForm {
		return nil, errs.New(errs.Corrupt, "what is kept of a secret is no sealed value")
	}
	if !bytes.Equal(sealed[1:1+keyHead], s.name) {
		return nil, errs.New(errs.Corrupt, "a secret was sealed with another key").WithHint("bring that key back, or set the secret anew")
	}
	plain, err := s.aead.Open(nil, sealed[1+keyHead:head], sealed[head:], about)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "what is kept of a secret was changed")
	}
	return plain, nil
}
