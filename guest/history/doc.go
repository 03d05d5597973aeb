// Package history keeps the history of a workspace in the machine itself,
// where the host cannot see the workspace: guest.v1's History over package
// workspace, on the disk that the machine mounts (internal/volume/layout).
//
//	h := history.New(history.Config{Disk: wire.DiskDir, Commands: core})
//	err := h.Recover()  // before anything runs: an undo that died is finished
//	mux.Handle(wire.NewHistoryHandler(h, …))
//	h.Close()
//
// Nothing is opened, and no memory taken, until the first call. Apply stops the
// sandbox's commands by itself and lets them go on whatever happens: at its end,
// by a timer that it winds up while it works, or in the next supervise. A host that
// has something to do before that asks it to hold them.
//
// The host takes what it wants to keep by Pull. It does not rely on what a
// machine says of itself: a process with root there can write anything to its disk.
//
// A Service is safe for concurrent use.
package history
