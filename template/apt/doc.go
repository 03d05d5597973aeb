// Package apt reads where packages of Debian and its relatives come from, and
// fetches them for a tree without running anything of the tree.
//
//	f := apt.NewFetcher(cache)
//	debs, err := f.Fetch(ctx, apt.Request{Tree: dir, Packages: []string{"jq"}}, say)
//
// A sandbox has no network, so that packages are fetched on the host by the
// host's apt-get, which checks their signatures, and installed inside, where
// their scripts run. Nothing of the tree decides what the host's apt-get does:
// of its settings only the list of installed packages, sources by http and
// https, and the keys that these name are read.
//
// All functions are safe for concurrent use; fetches that share a cache wait
// for each other.
package apt
