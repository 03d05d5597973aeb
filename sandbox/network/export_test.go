package network

import "github.com/skete-dev/skete/egress/proxy"

// Decide notes a decision as a proxy does.
func (s *Service) Decide(of Owner, d proxy.Decision) { s.decided(of, d) }
