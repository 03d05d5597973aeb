package gvisor

import (
	"testing"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/escape"
)

func TestEscape(t *testing.T) {
	skipUnlessItBoots(t)
	p := open(t, t.TempDir())
	escape.Run(t, escape.World{
		Capabilities: p.Capabilities(),
		Boot: func(t *testing.T) sandbox.Boot {
			b := bootOf(t, sandboxtest.Rootfs(t))
			b.Guest = guesttest.Binary(t)
			return b
		},
		Create: func(t *testing.T, b sandbox.Boot) sandbox.Machine { return create(t, p, b) },
		Special: []escape.Attack{
			// Elsewhere the roots of binds are shown; here even they are the sentry's.
			{Name: "roots of binds", Line: "cat /proc/self/mountinfo", Free: true, Never: "/Test"},
		},
	})
}
