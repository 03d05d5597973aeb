// Package gateway lets programs in sandboxes use the models of the host. They speak
// the API of a vendor to it and hold a token that is worth nothing elsewhere; keys never
// leave the host.
//
//	g, err := gateway.New(gateway.Config{Models: catalog, Seed: seed, Store: kv})
//	h := g.Door(gateway.Client{Tenant: "default", Sandbox: "sbx_…", Grant: gateway.Grant{Models: []string{"fast"}}})
//	h.ServeHTTP(w, r)                      // of a connection that is known to be that sandbox's
//	env := g.Env("default", "sbx_…")       // what programs need to find it
//
// A call is looked at before it leaves: the model is one of the grant's, nothing in it
// makes the vendor itself fetch from or run at places that the sandbox may not reach, and
// what it may cost at most fits in the budget, also when fifty come at once. Then it is
// passed on as it is, but for the name of the model; the answer is passed back byte for
// byte, as it comes, and counted on its way.
//
// The doors are /anthropic/v1/messages (and …/count_tokens), /openai/v1/responses,
// /openai/v1/chat/completions and /gemini/v1beta/models/MODEL:generateContent (and
// …:streamGenerateContent, …:countTokens, and v1), each with …/models; at the vendors' own
// hosts they are without the first part of the path.
package gateway
