package store

import (
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server/pse" // the variable's owner must be linked
)

// statFile is what nats-server's package pse reads every second, from its
// init() on and in every process that links it, to tell its own CPU usage.
//
//go:linkname statFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var statFile string

// StopSampling ends the sampler that nats-server starts in its init(). Call it
// first thing in main.
//
// It is not only a useless read of /proc per second. Our program is also
// gVisor's kernel process, whose seccomp filter kills it for opening a file:
// without this call every sandbox dies one second after its start. A path with
// a NUL byte is refused before the system call, and the sampler gives up after
// its first failed read.
func StopSampling() { statFile = "\x00" }
