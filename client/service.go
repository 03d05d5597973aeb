package client

import "github.com/skete-dev/skete/client/service"

// Services returns a handle on the sandbox's services; it does not ask the server.
func (s *Sandbox) Services() *service.Services { return service.New(s.c.t, s.path("/services")) }
