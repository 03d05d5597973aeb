package audit

// Folding is how many tenants the log remembers for Fold.
func (l *Log) Folding() int {
	l.folds.mu.Lock()
	defer l.folds.mu.Unlock()
	return len(l.folds.of)
}
