package qemu

// tailBytesMax is what is kept of QEMU's own words.
const tailBytesMax = 4 << 10

// tail keeps the end of what is added.
type tail struct{ data []byte }

func (t *tail) add(p []byte) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - tailBytesMax; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
}

// String returns what is kept.
func (t *tail) String() string { return string(t.data) }
