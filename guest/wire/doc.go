// Package wire is the protocol between host and guest: the messages
// (guest.proto, binary Connect), the one version number, the preamble that
// opens a stream on a machine's channel, and the host's client.
//
//	c := wire.NewClient(machine.Dial)
//	defer c.Close()
//	hello, err := c.Hello(ctx)
//	stream, err := c.Process.Exec(ctx, connect.NewRequest(&wire.StartRequest{…}))
//
// Everything that arrives here from a guest is hostile: messages are bounded
// (MessageBytesMax), lines are bounded (PreambleBytesMax), and a guest that
// says nothing runs into the caller's context.
//
// A Client is safe for concurrent use. Each streaming call has a connection
// of its own, so a slow reader holds up no other call.
package wire

//go:generate protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix= guest.proto history.proto service.proto
