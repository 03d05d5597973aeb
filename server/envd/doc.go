// Package envd lets the SDKs of E2B work here, unmodified: it speaks their REST API
// of sandboxes, and in sandboxes the protocol of envd, the program that those SDKs
// expect in each (package protocol).
//
//	b, err := envd.New(envd.Config{Sandboxes: manager, Records: kv, Gate: gate, Hub: hub})
//	b.Register(table) // at /e2b/, and /files for signed addresses
//
// It is a translation and has no machinery of its own. A sandbox is one of the
// manager's, a command one of the guest's, and what a call changes is a step of the
// sandbox's history, by the API key that stands behind it.
//
// One address serves everything: a request with the header E2b-Sandbox-Id is for a
// sandbox, and E2b-Sandbox-Port says for which port of it: 49983 is envd, which is
// here and not in the machine; another is carried to the machine. All others are for
// the REST API.
//
// Keys. The REST API takes our API keys. What is for a sandbox takes its access
// token: it is derived from a secret of the store, lets in to that one sandbox, and
// ends with it, or when no key that asked for it is good any more. The token never
// reaches the machine.
//
// What clients may send and we do not have is refused, in the shape of their errors:
// an option that was ignored would be a promise.
//
// Source: the behaviour of the npm packages e2b 2.45.0 and 2.51.0 and of envd 0.6.
// A Bridge is safe for concurrent use.
package envd
