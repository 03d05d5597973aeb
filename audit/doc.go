// Package audit is the record of who did what on a server: an append-only log whose records
// are chained by hashes, so that what was changed, removed or added later is found, and where.
//
//	l, err := audit.Open(ctx, audit.Config{Dir: dir, KV: store})
//	l.Append(audit.Record{Tenant: "default", Who: "ci", What: "api.create-sandbox", On: "sbx_…", Result: "201"})
//	found, err := l.Verify(ctx)
//
// A log is a directory of files, each named by its first record. A file begins with a line
// that says what came before it, and has a line for each record: the record's hash in
// hexadecimal, a space, and the record as JSON. The hash is SHA-256 of the hash before it,
// as 32 bytes, and the JSON as it stands there (B. Schneier, J. Kelsey: Secure Audit Logs to
// Support Computer Forensics, 1999, without their keys). So one that can write the files can
// also write another chain; what shows that is the newest hash, which the server keeps in its
// store, and which can be taken elsewhere.
//
// What a tenant can make happen as often as it likes goes through Fold first, so that no tenant
// fills the log or hides what others did; what is folded is counted.
//
// A record is written before Append returns and survives kill -9; a power cut may lose those
// of the last second. Old files are removed beyond a size, which is a record, too.
package audit
