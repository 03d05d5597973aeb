package declared

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A record is kept short, and no call is made too early for that.
func TestJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, at, calls := []counted(nil), int64(0), 0
		for range rapid.IntRange(0, 300).Draw(t, "calls") {
			at += rapid.Int64Range(0, 1000).Draw(t, "after")
			list = append(list, counted{At: at, N: 1, ID: "x"})
			calls++
		}
		short := joined(append([]counted(nil), list...))
		if len(short) > countsMax {
			t.Fatalf("%d entries", len(short))
		}
		sum := 0
		for _, c := range short {
			sum += c.N
		}
		if sum != calls {
			t.Fatalf("%d calls of %d are counted", sum, calls)
		}
		if len(list) > 0 && short[len(short)-1] != list[len(list)-1] {
			t.Fatalf("the newest one is %+v", short[len(short)-1])
		}
		limit := Rate{Calls: rapid.IntRange(1, 300).Draw(t, "limit"), Per: time.Hour}
		if was, now := freeAt(list, limit), freeAt(short, limit); now < was {
			t.Fatalf("the next call is made when that at %d is over, and not that at %d", now, was)
		}
	})
}
