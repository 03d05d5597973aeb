// Package stdin brings bytes into a process: accepted by offset, never twice.
//
//	s, err := stdin.New(stdin.Env{Init: init, Dir: dir, Go: spawn}, &entry)
//	acked, closed, err := s.Write(ctx, offset, data, eof)
//
// A byte is accepted when it is in the feed file; the file's size is the truth.
// sendfile(2) moves it on, and the file description's own offset, which init
// shares, says how far. So supervise may die at any moment: the next one goes
// on where the two files stand. The feed is replaced when it has grown and all
// of it was taken, so that gigabytes of stdin do not fill the disk.
//
// A Stdin is safe for concurrent use.
package stdin
