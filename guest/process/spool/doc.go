// Package spool keeps the output of one stream of a process on disk: its first
// bytes and its newest ones, with the cut in between stated.
//
//	s, err := spool.Open(dir, "7.out", spool.BoundsOf(0), &used, names)
//	n, err := s.Fill(func(f *os.File, max int64) (int64, error) { … }) // one filler
//	r := s.NewReader(0)                                                // any number
//	n, gap, err := r.Next(buf)
//
// The files are the truth: a spool that is opened again after a crash knows
// its size from theirs, because a byte is either in a file or still where the
// filler takes it from. One goroutine fills; everything else is safe for
// concurrent use.
package spool
