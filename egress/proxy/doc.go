// Package proxy carries what a sandbox sends, as its policy allows.
//
//	p := proxy.New(proxy.Config{Sandbox: "web", Rules: rules, CA: authority, Decided: log})
//	defer p.Close()
//	answer := p.Answer(query)      // names, without a query that leaves the host
//	go p.Serve(ctx, conn, address) // a connection that a program opened to it
//
// A program in the sandbox asks for a name and gets an address that stands for it. What
// it opens a connection to arrives here. TLS ends here, with a certificate of an authority
// that the sandbox trusts, so that rules can be about requests; what is allowed goes to
// the real host in a connection of its own, and the host's certificate is checked. A
// connection carries requests to the one host that it was opened to. HTTP/1.1, HTTP/2,
// WebSockets, gRPC and event streams pass; what is refused is answered with the reason,
// and with the command by which a person allows it.
//
// A connection to a pinned host is passed on as it is.
package proxy
