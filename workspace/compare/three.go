package compare

import (
	"bytes"
	"slices"
)

// Conflict is a place that both sides changed, each in its own way.
type Conflict struct {
	Line               int // in the result, from 0
	Base, Ours, Theirs []byte
}

// MergeLines joins two changes of one text. With conflicts the result has, in their
// places, both sides between the usual markers.
func MergeLines(base, ours, theirs []byte) (text []byte, conflicts []Conflict) {
	o, a, b := Lines(base), Lines(ours), Lines(theirs)
	w := three{o: o, a: a, b: b, ma: matches(o, a), mb: matches(o, b)}
	w.run()
	return w.out, w.conflicts
}

type three struct {
	o, a, b   [][]byte // base, ours, theirs
	ma, mb    []match  // of o with a, and with b
	i, j, k   int      // places in o, a, b
	out       []byte
	lines     int
	conflicts []Conflict
}

func (w *three) run() {
	for w.i < len(w.o) || w.j < len(w.a) || w.k < len(w.b) {
		if n := w.stable(); n > 0 {
			w.emit(w.o[w.i : w.i+n])
			w.i, w.j, w.k = w.i+n, w.j+n, w.k+n
			continue
		}
		i, j, k := w.next()
		w.unstable(w.o[w.i:i], w.a[w.j:j], w.b[w.k:k])
		w.i, w.j, w.k = i, j, k
	}
}

func (w *three) emit(lines [][]byte) {
	for _, l := range lines {
		w.out = append(w.out, l...)
	}
	w.lines += len(lines)
}

// covering returns the first match that ends behind a place of the base.
func covering(ms []match, i int) match {
	n, _ := slices.BinarySearchFunc(ms, i, func(m match, i int) int {
		if m.a+m.n <= i {
			return -1
		}
		return 1
	})
	return ms[min(n, len(ms)-1)]
}

// stable is how many lines from here on are the same in all three.
func (w *three) stable() int {
	x, y := covering(w.ma, w.i), covering(w.mb, w.i)
	if x.a > w.i || y.a > w.i || x.b+w.i-x.a != w.j || y.b+w.i-y.a != w.k {
		return 0
	}
	return min(x.a+x.n, y.a+y.n) - w.i
}

// next finds the next line of the base that both sides still have.
func (w *three) next() (i, j, k int) {
	for i = w.i; i < len(w.o); {
		x, y := covering(w.ma, i), covering(w.mb, i)
		if x.a <= i && y.a <= i {
			return i, x.b + i - x.a, y.b + i - y.a
		}
		i = max(x.a, y.a)
	}
	return len(w.o), len(w.a), len(w.b)
}

func join(lines [][]byte) []byte { return bytes.Join(lines, nil) }

// unstable joins a part that at least one side changed.
func (w *three) unstable(o, a, b [][]byte) {
	base, ours, theirs := join(o), join(a), join(b)
	switch {
	case bytes.Equal(base, theirs), bytes.Equal(ours, theirs):
		w.emit(a)
	case bytes.Equal(base, ours):
		w.emit(b)
	default:
		w.conflicts = append(w.conflicts, Conflict{Line: w.lines, Base: base, Ours: ours, Theirs: theirs})
		w.emit(Lines([]byte("<<<<<<< now\n")))
		w.emit(ended(a))
		w.emit(Lines([]byte("=======\n")))
		w.emit(ended(b))
		w.emit(Lines([]byte(">>>>>>> before\n")))
	}
}

// ended makes the last line end, so that a marker can follow.
func ended(lines [][]byte) [][]byte {
	n := len(lines)
	if n == 0 || bytes.HasSuffix(lines[n-1], []byte("\n")) {
		return lines
	}
	lines = slices.Clone(lines)
	lines[n-1] = append(slices.Clone(lines[n-1]), '\n')
	return lines
}
