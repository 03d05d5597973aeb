// Package sandbox gives each agent a machine of its own and keeps the
// machine's life in order.
//
// A Provider boots machines and hands out connections, nothing else; what
// happens inside (processes, files, ports) is the guest protocol
// (guest/wire), the same over every provider. The Manager (sandbox/manager)
// owns all sandboxes of a server; what one goes through is sandbox/life's;
// which provider makes it, sandbox/selector's. This package holds the nouns that
// they, the providers and the server share.
//
// Terms: a *sandbox* is what users name, by ID; a *machine* is the provider's
// side of it; the *guest* is what runs inside. A provider states its
// *isolation* as it truly is.
package sandbox
