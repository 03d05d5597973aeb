package capture_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skete-dev/skete/workspace/capture"
)

// some12k is a directory of 12,000 files.
func some12k(b *testing.B, c capture.Config) *place {
	p := newDisk(b, 1<<30, c)
	text := make([]byte, 10_000)
	for i := range 12_000 {
		copy(text, fmt.Sprint(i))
		p.write(fmt.Sprintf("d%d/e%d/f%d", i%30, i%1200, i), string(text))
	}
	p.scan()
	settle()
	p.scan()
	return p
}

func bench(b *testing.B, c capture.Config, changed int) {
	p := some12k(b, c)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		for j := range changed {
			n := (i*changed + j*997) % 12_000
			if err := os.WriteFile(p.path(fmt.Sprintf("d%d/e%d/f%d", n%30, n%1200, n)), fmt.Appendf(nil, "%d %d", i, j), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if r := p.scan(); r.Files != 12_000 {
			b.Fatal(r)
		}
	}
}

func BenchmarkScan_nothing(b *testing.B)     { bench(b, capture.Config{}, 0) }
func BenchmarkScan_ten(b *testing.B)         { bench(b, capture.Config{}, 10) }
func BenchmarkCaptured_nothing(b *testing.B) { bench(b, capture.Config{Watch: true}, 0) }
func BenchmarkCaptured_ten(b *testing.B)     { bench(b, capture.Config{Watch: true}, 10) }
