package capture

// Lose is what an overflow of the kernel's queue does.
func (c *Capture) Lose() { c.watcher.Lose() }
