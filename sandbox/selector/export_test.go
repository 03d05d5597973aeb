package selector

// AskedAtOnce for tests.
const AskedAtOnce = askedAtOnce

// Len is how many machines are kept.
func (t *counters) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.last)
}
