package template

// What tests from outside look into.
type Entry = entry

const EntryFile = entryFile

var ReadManifest = readManifest
