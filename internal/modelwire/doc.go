// Package modelwire is what clients of model vendors share below their
// dialects: a Guard that bounds how long a reply may be silent and how large it
// may grow, when a used-up rate limit is reset, and JSON strings appended to a
// request.
//
//	g, ctx := modelwire.NewGuard(ctx, 2*time.Minute, 32<<20)
//	defer g.Close()
//	g.Arm()                          // from now on the server must say something
//	res, err := client.Do(req.WithContext(ctx))
//	res.Body = g.Body(res.Body)      // counts its bytes
//	for { g.Arm(); ev, ok := next(); g.Disarm(); … }
//	if why := g.Cause(); why != nil { … }   // ErrSilent, ErrTooLong
//
// A Guard belongs to one request and one goroutine; its timer is the only
// other party. The functions are pure.
package modelwire
