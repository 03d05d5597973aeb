package client

import "github.com/skete-dev/skete/client/preview"

// Previews returns a handle on the sandbox's previews; it does not ask the server.
func (s *Sandbox) Previews() *preview.Previews { return preview.New(s.c.t, s.path("/previews")) }
