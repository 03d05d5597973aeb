// Package pair is the socket pair between the two halves of the guest: the
// messages that cross it, and supervise's end of it.
//
//	c, err := pair.Connect(pair.SocketFD, onEntry, onExit)
//	boot, err := c.Adopt(ctx) // every process that is there comes through onEntry
//	entry, existed, err := c.Spawn(pair.Spawn{Key: …, Argv: …})
//
// Init's end is guest/initd. Messages are small, bounded and binary; both
// sides refuse what is not whole. Descriptors cross with the messages, and who
// receives one owns it.
//
// A Client is safe for concurrent use. When init is gone, every call returns
// Unavailable and Done is closed.
package pair
