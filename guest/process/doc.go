// Package process is the core of processes in the guest, and the Process
// service of guest.v1 over it.
//
//	core, err := process.New(process.Config{…}) // in supervise; adopts what runs
//	path, h := wire.NewProcessHandler(core.Service(), opts...)
//	defer core.Close()
//
// Init (guest/initd) forks and reaps; this package moves output into spools,
// feeds stdin, and serves readers. It can be killed at any moment: what it
// holds in memory is either in init's table too, or derived from file sizes.
//
// # Where a byte is
//
// A byte of output is in the pipe or in the spool file, never in our memory:
// splice(2) moves it inside the kernel, and the file's size is the truth. For
// a terminal there is a pipe in between, which init holds. A byte of stdin is
// acknowledged when it is in the feed file; sendfile(2) moves it on, and the
// file description's own offset, which init shares, is the truth.
//
// # What is kept
//
// Of each stream the first MiB and the newest 16 MiB; the cut is stated. All
// streams together keep at most Boot.OutputBytesMax, ended processes give way
// first. Keys are known until Forget.
//
// Lock order: Core.mu or proc.mu (never both), then a spool or a stdin, then
// Core.taskMu.
package process
