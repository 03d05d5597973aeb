package store

import (
	"strings"
	"testing"
)

func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "a.b", "=2e", "=", "*", ">", "\x00\xff/ü", "a//b", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if enc, err := encodeKey(key); err == nil {
			if strings.ContainsFunc(enc, func(r rune) bool { return !(r < 0x80 && plainKey(byte(r))) && r != '=' && r != '.' }) {
				t.Errorf("encoded %q as %q", key, enc)
			}
			if got, err := decodeKey(enc); err != nil || got != key {
				t.Errorf("decoded %q as %q, %v; it was %q", enc, got, err, key)
			}
		}
		if dec, err := decodeKey(key); err == nil {
			if enc, err := encodeKey(dec); err != nil || enc != key {
				t.Errorf("%q decodes to %q, which encodes to %q, %v", key, dec, enc, err)
			}
		}
	})
}
