// Package watch reports changes of a file tree by inotify, numbered, kept for
// readers that come back, and honest about what it lost.
//
//	hub := watch.NewHub(64)
//	w, err := hub.Start(watch.Options{ID: "w1", Path: "/workspace", Recursive: true, As: asUser})
//	next := w.Next()
//	for w.Hold(); ; { events, more, alive := w.From(next); …; <-more }
//	w.Release()
//
// A directory that appears is watched first and read then: what was put into
// it in between is reported as created, so no window is lost. What the kernel
// or the ring lost is one Overflow: look at the tree again.
//
// A watch that no reader holds ends after a minute. All methods are safe for
// concurrent use. Close waits for all goroutines.
package watch
