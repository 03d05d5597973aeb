// Package skill is the Agent Skills standard (agentskills.io): folders with a
// SKILL.md that teach an agent how a kind of work is done.
//
//	tree, err := skill.Folder("pdf-forms")           // or Archive, Git: with limits
//	problems := skill.Validate(tree)                 // every rule of the standard, strictly
//	s, warnings, err := skill.Load(tree)             // as clients should: warn, and load
//	store, err := skill.Open(ctx, records, files)    // what tenants have installed
//	installed, err := store.Install(ctx, "default", skill.Install{Tree: tree})
//
// A Tree is all of a folder in memory, small enough for that. Its Version is a
// hash of every path and content, so that the same folder is the same version
// wherever it comes from. The Store keeps the files of a version as values of a
// kv.Store, for as long as the record of a tenant names them, so that every server
// of one store reads what another has installed.
//
// What is loaded was written by strangers: files are regular ones beneath the
// folder, counted and bounded while they are read, never after. Nothing here runs
// what a skill holds.
//
// Trees are plain data. A Store is safe for concurrent use; what Install returned
// survives kill -9 and a power cut.
package skill
