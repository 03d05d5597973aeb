package file_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

func BenchmarkStat(b *testing.B) {
	g := newGuest(b)
	g.put("f", "x")
	m := &wire.StatRequest{Path: []byte("f")}
	for b.Loop() {
		if _, err := g.stat(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "64MiB": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			g := newGuest(b)
			g.put("f", strings.Repeat("x", size))
			b.SetBytes(int64(size))
			for b.Loop() {
				in, err := g.c.Read(context.Background(), connect.NewRequest(&wire.ReadRequest{Path: []byte("f")}))
				if err != nil {
					b.Fatal(err)
				}
				got := 0
				for in.Receive() {
					got += len(in.Msg().Data)
				}
				if in.Err() != nil || got != size {
					b.Fatal(got, in.Err())
				}
				in.Close()
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "64MiB": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			g := newGuest(b)
			chunk := make([]byte, min(size, wire.ChunkBytes))
			b.SetBytes(int64(size))
			for b.Loop() {
				out := g.c.Write(context.Background())
				_ = out.Send(&wire.WriteRequest{Header: &wire.WriteRequest_Header{Path: []byte("f")}})
				for sent := 0; sent < size; sent += len(chunk) {
					if err := out.Send(&wire.WriteRequest{Data: chunk}); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := out.CloseAndReceive(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
