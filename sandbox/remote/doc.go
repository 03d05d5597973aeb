// Package remote boots machines elsewhere: a service makes each, and skete-guest, which
// is put into it, serves the same protocol as in every other machine.
//
//	p, err := remote.New(remote.Config{Name: "remote", Dir: dir, Service: remote.NewE2B(remote.E2B{…})})
//	err = p.Probe(ctx)          // makes a machine, asks it, ends it
//	m, err := p.Create(ctx, boot)
//
// # A service
//
// makes a machine, takes a file, starts a program, and gives an address for a port:
// Service is no more than that. NewE2B is one that speaks E2B's API, another skete's
// included.
//
// # A machine
//
// The guest runs as the ordinary user of the machine, without root, and listens at a
// port of the loopback, which the service shows us by its proxy; each stream is a
// WebSocket of its own that opens with this machine's token (guest/channel). So what
// others see of the port is of no use to them, a broken connection ends one stream, and
// the next one is dialled anew. The service itself sees all that is in the machine.
//
//	Dir/machines/ID/machine.json   record; the directory is made first, removed last
//	Dir/server                     what the service is told of whose a machine is
//
// What the guest cannot do without root is said in Capabilities: no root for commands,
// no limit of ours, no network of ours, and nothing of what isolates is verified.
// A machine is not ours after its service's time for it is up; that is wound up as long
// as this process follows it.
//
// # Loss
//
// A service that does not answer is not a machine that is lost: calls fail and say what
// was asked, and go on when it answers. The machine is lost when the service says that
// there is none, or after it has not answered for as long as it would keep the machine
// unasked: it has ended it then. What was pulled of the workspace's history is here.
//
// All methods are safe for concurrent use.
package remote
