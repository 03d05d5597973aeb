package event

// Kept is how many things are remembered.
func (p *Paces) Kept() int { return max(len(p.told), len(p.of)) }
