// Package port knows the TCP ports that programs of the sandbox listen on,
// and carries streams to them.
//
//	path, h := wire.NewPortHandler(port.New(), opts...)
//	port.Forward(ctx, conn, 8080) // answers the preamble, copies until the end
//
// It looks at /proc/net/tcp and tcp6 (often while a client watches, and
// when asked); no guest network is needed, because a stream is dialled on the
// loopback of the machine itself: 127.0.0.1, then ::1.
//
// Everything is safe for concurrent use.
package port
