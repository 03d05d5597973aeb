// Package object keeps content by its hash in append-only segment files: the
// contents, lists and trees of a workspace's history.
//
//	s, err := object.Open(dir, object.Config{})
//	h, err := s.Put(object.Blob, content)   // in memory or on its way to disk
//	err = s.Sync()                          // all that was put is on disk
//	content, err := s.Get(object.Blob, h)   // checked against the hash
//
// # Format
//
// A store is a directory of segments, "00000001.seg", "00000002.seg", …; only
// the last one is written to. Integers are little-endian.
//
//	segment  = "skhseg1\n" number(8) record*
//	record   = header payload
//	header   = "rc" kind(1) codec(1) stored(4) raw(4) hash(32) payloadCRC(4) headerCRC(4)
//
// kind is 1 (blob), 2 (list) or 3 (tree). codec is 0 (the payload is the
// content) or 1 (the payload is one zstd frame of it). stored and raw are the
// lengths of payload and content. hash is BLAKE3-256 of the kind's byte
// followed by the content. Both CRCs are CRC-32C; headerCRC covers the 48
// bytes before it.
//
// The same object may stand in several places; any one will do. A crash leaves,
// in the last segment only, something that is no whole record: the file ends in
// it, or no whole record follows, or it has blocks of zeros where data never
// came. Open cuts it off with what follows. Damage of any other kind is Corrupt
// and never repaired silently.
//
// A Store is safe for concurrent use in one process, which owns the directory.
package object
