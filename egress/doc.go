// Package egress decides what may leave a sandbox.
//
//	p := egress.Policy{Profile: egress.None, Allow: []egress.Rule{{Host: "*.example.com", Access: egress.Read}}}
//	rules, err := egress.Compile(p)
//	v := rules.Request(egress.Request{Host: "api.example.com", Port: 443, Method: "GET", Path: "/"}) // v.Allowed, v.Why
//
// A Policy is what people write: a profile to begin with, rules that allow and rules
// that deny. What no rule allows is refused; a rule that denies wins. Rules speak of
// names and never of addresses: the host resolves names, checks each address with
// Refused, and dials the one that it checked, so that a name cannot be bound to
// another address in between.
//
// Everything here is pure and safe for concurrent use; package egress/proxy carries
// the traffic.
package egress
