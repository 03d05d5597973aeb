// Package initd is the part of the guest that must never die: PID 1 of a
// machine (or, where the machine is only a set of processes, the reaper of
// them).
//
//	init:       os.Exit(initd.Run(initd.Config{…}))
//	supervise:  c, err := pair.Connect(fd, onEntry, onExit); state, err := c.Adopt(ctx)
//	            entry, existed, err := c.Spawn(ctx, pair.Spawn{Key: …, Argv: …})
//
// # What it does
//
// It starts supervise and restarts it when it dies. It forks every command on
// supervise's request, reaps everything, and is the judge of what ran: a table
// of key -> process with the exit status. It holds a duplicate of every
// descriptor that a command's life depends on (the read ends of its output
// pipes, the write end of its stdin, its terminal, the file that feeds stdin),
// so that supervise can be killed at any moment without a command noticing.
//
// # What it promises
//
// The same key never starts twice in the life of the machine: the table
// decides, under its lock. A status is the kernel's or there is none: keys of
// an earlier boot (found in the on-disk journal) are Lost. Exits are reported
// after the reply that announced the process, each once per supervise.
//
// # How it stays alive
//
// It reads nothing that a command wrote: no output, no /proc text, no network.
// Its only peer is supervise, over a socket pair with small bounded messages
// (message.go); a message that it does not understand makes it drop that
// supervise and start another. Goroutines recover at their top.
//
// Locks, in this order: daemon.forkMu (fork against reap), daemon.mu (table).
package initd
