package server

import (
	"context"

	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/envd"
	"github.com/skete-dev/skete/server/vercel"
)

// registerBridge adds the surfaces for SDKs of others to the table.
func (s *Server) registerBridge(c Config) {
	if c.Bridges == nil {
		return
	}
	e := envd.Config{
		Sandboxes: s.sandboxes, Records: c.Bridges, Gate: s.gate, Hub: s.hub, UploadBytesMax: s.limits.UploadBytesMax,
		Templates: s.templateNames, Started: s.metrics.CommandStarted, Log: s.log,
	}
	if s.secrets != nil {
		e.Secrets = s.secrets
	}
	_, e.Domain = previewDomain(c.Previews)
	if c.Logins != nil {
		e.Owner = c.Logins.Good
	}
	s.bridge = envd.New(e)
	s.bridge.Register(s.table)
	v := vercel.Config{
		Sandboxes: s.sandboxes, Gate: s.gate, Hub: s.hub, UploadBytesMax: s.limits.UploadBytesMax, Started: s.metrics.CommandStarted, Log: s.log,
	}
	if c.Previews != nil {
		v.Address = func(id sandbox.ID, port int) string {
			return c.Previews.URL(preview.Target{Sandbox: string(id), Port: uint16(port)})
		}
	}
	vercel.New(v).Register(s.table)
}

// bridgeHosts are the names that clients of others call the server by.
func bridgeHosts(c Config) []string {
	if _, domain := previewDomain(c.Previews); domain != "" && c.Bridges != nil {
		return []string{envd.Host(domain)}
	}
	return nil
}

func (s *Server) templateNames(ctx context.Context) ([]string, error) {
	all, err := s.templates.List(ctx)
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names, err
}

// Sweep forgets what was kept of sandboxes that are gone.
func (s *Server) Sweep(ctx context.Context) error {
	if s.bridge == nil {
		return nil
	}
	return s.bridge.Sweep(ctx)
}
