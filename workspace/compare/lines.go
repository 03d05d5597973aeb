package compare

// MergeHunk is a part of two texts that differs, with equal lines around it.
type MergeHunk struct {
	OldStart int         `json:"old_start"` // first line, from 1; 0 if there is none
	OldLines int         `json:"old_lines"`
	NewStart int         `json:"new_start"`
	NewLines int         `json:"new_lines"`
	Lines    []MergeLine `json:"lines"`
}

// MergeLine is one line of a hunk. Op is ' ', '-' or '+'.
type MergeLine struct {
	Op   string `json:"op"`
	Text string `json:"text"` // with its end
}

// DiffLines compares two texts; each hunk has up to context equal lines around it.
func DiffLines(old, new []byte, context int) []MergeHunk {
	a, b := Lines(old), Lines(new)
	var hunks []MergeHunk
	var open *MergeHunk
	x, y := 0, 0
	line := func(op string, text []byte) { open.Lines = append(open.Lines, MergeLine{op, string(text)}) }
	for _, m := range matches(a, b) {
		if m.a > x || m.b > y { // lines before the match differ
			if open == nil {
				lead := min(context, x)
				hunks = append(hunks, MergeHunk{OldStart: x - lead, NewStart: y - lead})
				open = &hunks[len(hunks)-1]
				for i := x - lead; i < x; i++ {
					line(" ", a[i])
				}
			}
			for ; x < m.a; x++ {
				line("-", a[x])
			}
			for ; y < m.b; y++ {
				line("+", b[y])
			}
		}
		if open != nil {
			if m.n <= 2*context && (m.a+m.n < len(a) || m.b+m.n < len(b)) { // more follows
				for i := range m.n {
					line(" ", a[m.a+i])
				}
			} else {
				for i := range min(context, m.n) {
					line(" ", a[m.a+i])
				}
				open = nil
			}
		}
		x, y = m.a+m.n, m.b+m.n
	}
	for i := range hunks {
		hunks[i].count()
	}
	return hunks
}

// count fills in the lengths, and numbers lines from 1.
func (h *MergeHunk) count() {
	for _, l := range h.Lines {
		if l.Op != "+" {
			h.OldLines++
		}
		if l.Op != "-" {
			h.NewLines++
		}
	}
	if h.OldLines > 0 {
		h.OldStart++
	}
	if h.NewLines > 0 {
		h.NewStart++
	}
}
