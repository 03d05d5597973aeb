// Package secret keeps values that sandboxes use and never see.
//
//	store, err := secret.Open(ctx, kv, sealer)
//	s, err := store.Put(ctx, "default", secret.Put{Name: "forge", Value: secret.New("ghp_…"), Grants: []secret.Grant{{
//		Where: egress.Rule{Host: "api.example.com", Paths: []string{"/repos/**"}}, As: secret.Bearer,
//	}}})
//	held := store.Held("default", secret.User{Sandbox: "web"}, request) // what the host adds to it on its way out
//
// A store is written and not read: what it tells of a secret is its name, its versions
// and its grants. Values leave it in Held alone, for the proxy that sends them to the
// hosts they are granted for. At rest they are sealed, each to its tenant, name and
// version, by a Sealer: a key in a file, or one that a command tells.
//
// A Value prints as "***" whatever is done with it; Reveal says what it is.
package secret
