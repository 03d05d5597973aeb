package capture

import (
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"testing"
)

func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func parts(t *testing.T, data []byte) (sums [][32]byte) {
	t.Helper()
	for len(data) > 0 {
		n := cutChunk(data[:min(len(data), chunkMax)])
		if n <= 0 || n > len(data) || n > chunkMax || n < chunkMin && n != len(data) {
			t.Fatalf("a part of %d bytes", n)
		}
		sums = append(sums, sha256.Sum256(data[:n]))
		data = data[n:]
	}
	return sums
}

func TestCut_editsStayLocal(t *testing.T) {
	data := noise(64 << 20)
	before := parts(t, data)
	if mean := len(data) / len(before); mean < chunkNormal/2 || mean > 2*chunkNormal {
		t.Errorf("parts of %d bytes on average", mean)
	}
	for name, edited := range map[string][]byte{
		"a byte in the middle": func() []byte { d := slices.Clone(data); d[30<<20] ^= 1; return d }(),
		"bytes at the front":   append([]byte("inserted"), data...),
		"bytes at the end":     append(slices.Clone(data), "appended"...),
	} {
		after, fresh := parts(t, edited), 0
		for _, s := range after {
			if !slices.Contains(before, s) {
				fresh++
			}
		}
		if fresh > 2 {
			t.Errorf("%s: %d of %d parts are new", name, fresh, len(after))
		}
	}
	parts(t, make([]byte, 10<<20)) // all zeros end somewhere
}

func BenchmarkCut(b *testing.B) {
	data := noise(16 << 20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		for rest := data; len(rest) > 0; {
			rest = rest[cutChunk(rest[:min(len(rest), chunkMax)]):]
		}
	}
}
