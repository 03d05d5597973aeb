// Package registry finds out where package managers fetch from, so that sandboxes can
// fetch from there too and from nowhere else.
//
//	set, err := registry.Ask(ctx, "/bin/sh")
//	err = set.Follow(ctx, http.DefaultClient) // which hosts have the files
//	policy.Rules(set.Rules())
//
// No registry is written down here. The package managers of the host know theirs: what
// their configuration says, or what they bring along. A mirror that the configuration
// names is carried over into machines (Env, Files), without the credentials that are in
// its URL.
//
// A Set is plain data. Ask runs programs of the host, as its server's user; Follow asks
// registries. Parse reads what Ask's script prints, also that which ran elsewhere.
package registry
