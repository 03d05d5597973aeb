package compare

import (
	"bytes"
	"slices"
)

// This file compares texts by lines, and joins two changes of one text.
//
// # Algorithm
//
// Differences are found by E. Myers, "An O(ND) Difference Algorithm and Its
// Variations" (1986), in its greedy form, after equal beginnings and ends are
// taken off. Texts that differ in more than editsMax lines are taken to differ
// as a whole in their middle. MergeLines is the diff3 of Khanna, Kunal and Pierce
// ("A Formal Investigation of Diff3", 2007): both sides are matched with the
// base; where only one side changed, or both alike, that is the result.
//
// All functions are pure.

// Bounds of the work on texts that have little in common: editsMax that of the
// memory, which grows with its square (32 MiB), workMax that of the time.
const (
	editsMax = 2000
	editsMin = 64
	workMax  = 1 << 28 // lines compared
)

// TextBytesMax is the size beyond which a file is not compared by lines.
const TextBytesMax = 4 << 20

// IsText reports whether data can be compared by lines.
func IsText(data []byte) bool {
	return len(data) <= TextBytesMax && !bytes.Contains(data[:min(len(data), 8000)], []byte{0})
}

// Lines cuts a text behind each line end.
func Lines(text []byte) [][]byte { return slices.Collect(bytes.Lines(text)) }

// match says that n lines from a on stand from b on in the other text.
type match struct{ a, b, n int }

// matches returns what two texts have in common, in order; the last match is
// empty and stands at both ends.
func matches(a, b [][]byte) []match {
	head := 0
	for head < len(a) && head < len(b) && bytes.Equal(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	var found []match
	if head > 0 {
		found = append(found, match{0, 0, head})
	}
	for _, m := range myers(a[head:len(a)-tail], b[head:len(b)-tail]) {
		found = append(found, match{m.a + head, m.b + head, m.n})
	}
	if tail > 0 {
		found = append(found, match{len(a) - tail, len(b) - tail, tail})
	}
	return append(found, match{len(a), len(b), 0})
}

// myers finds a shortest edit script and returns its matches; none if the
// texts have too little in common.
func myers(a, b [][]byte) []match {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return nil
	}
	limit := min(n+m, editsMax, max(editsMin, workMax/(n+m)))
	zero := limit + 1              // where diagonal 0 is
	far := make([]int, 2*limit+3)  // how far in a each diagonal got
	before := make([][]int, 0, 16) // far's diagonals -d-1..d+1 before round d
	for d := 0; d <= limit; d++ {
		before = append(before, slices.Clone(far[zero-d-1:zero+d+2]))
		for k := -d; k <= d; k += 2 {
			x := far[zero+k-1] + 1
			if down(d, k, far[zero+k-1], far[zero+k+1]) {
				x = far[zero+k+1]
			}
			y := x - k
			for x < n && y < m && bytes.Equal(a[x], b[y]) {
				x, y = x+1, y+1
			}
			far[zero+k] = x
			if x >= n && y >= m {
				return walkBack(before, n, m)
			}
		}
	}
	return nil
}

// down reports whether diagonal k is reached in round d by taking a line of b,
// else by leaving out one of a.
func down(d, k, below, above int) bool { return k == -d || k != d && below < above }

// walkBack follows the rounds from the end to the beginning.
func walkBack(before [][]int, x, y int) []match {
	var found []match
	for d, v := range slices.Backward(before) {
		far := func(k int) int { return v[k+d+1] }
		k := x - y
		startX, startY := 0, 0 // of the equal lines at the end of the round
		nextX, nextY := 0, 0
		if d > 0 {
			prev := k - 1
			if down(d, k, far(k-1), far(k+1)) {
				prev = k + 1
			}
			nextX = far(prev)
			nextY = nextX - prev
			startX, startY = nextX, nextY+1
			if prev == k-1 {
				startX, startY = nextX+1, nextY
			}
		}
		if x > startX {
			found = append(found, match{startX, startY, x - startX})
		}
		x, y = nextX, nextY
	}
	slices.Reverse(found)
	return found
}
