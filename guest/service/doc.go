// Package service keeps declared processes running: guest.v1's Service.
//
//	m, err := service.New(service.Config{Core: core, StateDir: dir, Boot: boot})
//	path, h := wire.NewServiceHandler(m, opts...)
//	m.Become(boot) // after an Adopt
//	defer m.Close()
//
// # Runs
//
// Each start of a service is a run: a process of guest/process under a key of
// its own, with both streams in one. Its number is on disk before it is
// started, and init holds its descriptors; so a supervise that is killed leaves
// the service running, and the next one finds it, its exit status if it has
// ended, and every byte that it wrote.
//
// A service's log is its runs' outputs after one another, with one count of
// bytes. The newest runs are kept, bounded by number and size; what is not
// kept is a gap with its offsets. It is the log of one boot of the machine.
//
// # When it ends
//
// It is started again after 100 ms, then 200 ms, … at most 10 s; a run of 10 s
// begins that anew. Five ends within 60 s are a crash loop: then it is tried
// every 30 s, so that a repaired service comes back by itself, and at once
// when a client asks. Whatever an ended run left behind (its session, its
// descendants, what carries its key in the environment) ends before the next.
//
// # What is kept
//
// Declarations and whether they are to run, in StateDir. With the same disk
// they come back after a boot; else the host declares them anew.
//
// Locks: Manager.mu before unit.mu. Everything is safe for concurrent use.
package service
