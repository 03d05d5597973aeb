// Package store keeps skete's state durably: on NATS JetStream inside this
// process by default, on an external NATS by URL when users outgrow a machine.
// No other package of the module knows NATS.
//
//	s, err := store.Open(ctx, store.Config{Dir: dir, Log: log})
//	defer s.Close()
//	records, err := s.KV(ctx, "sandboxes")     // a kv.Store
//	rev, err := records.Create(ctx, "sandbox/sbx_…", value)
//	rev, err = records.Update(ctx, "sandbox/sbx_…", value, rev) // compare-and-set
//	log, err := s.Threads().Log(ctx, tenant)     // a thread.Log
//	blobs, err := s.Threads().Blobs(ctx, tenant) // a thread.Blobs
//	s.Live().Publish(tenant, id, data)           // news that may be lost
//
// What it promises. A write that returned nil survives kill -9 and a power
// cut (the default syncs every write; SyncInterval trades that away, and a
// young bucket, or a tenant's first threads, may then be lost as a whole; blobs
// are synced always). A write that returned an error
// did not happen, except with errs.Unavailable, where no server could be asked:
// read before you try again; the revision keeps you from overwriting. Reads
// see the last acknowledged write. One data directory has one server.
//
// A lease keeps two servers from doing the same thing most of the time;
// correctness must rest on revisions.
//
// With an external NATS everything but the blobs is shared: those are files in
// the data directory of the server that wrote them.
//
// All types are safe for concurrent use.
package store
