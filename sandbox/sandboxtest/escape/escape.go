// Package escape tries to get out of the machines of a provider that isolates.
//
//	func TestEscape(t *testing.T) {
//		escape.Run(t, escape.World{Capabilities: p.Capabilities(), Boot: …, Create: …})
//	}
//
// One list of attacks is for all providers. Each is a line of a shell inside,
// run as the sandbox's user, as that user where root was granted, and as root,
// with what must happen: it fails, or its output says that it failed. Around
// the machine lies what an escape would find; that must never be seen. What
// only one provider can be asked comes as Special.
package escape

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// World is what the list needs to know of a provider.
type World struct {
	Capabilities sandbox.Capabilities
	// Boot describes a new machine, Guest included.
	Boot func(t *testing.T) sandbox.Boot
	// Create makes it; it is destroyed with t.
	Create func(t *testing.T, b sandbox.Boot) sandbox.Machine
	// Special are attacks that are to fail on this provider alone, for every
	// user; SpecialOfUser, for every user but root.
	Special, SpecialOfUser []Attack
}

// Attack is one way out. It must not succeed.
type Attack struct {
	Name, Line string
	// Free: the command may succeed, only its output is judged.
	Free bool
	// Never is what the output must not have, besides the prize.
	Never string
	// Want is what the whole output must be, if set.
	Want string
	// Own: it is the kernel that refuses. Root of a machine with a kernel of
	// its own may do it, to that kernel alone.
	Own bool
	// Ungranted: where root was granted, the kernel of the machine's own may let
	// the user become it.
	Ungranted bool
	// OfHost: it means nothing where the kernel and its devices are the machine's.
	OfHost bool
	// Open: it succeeds where nothing isolates, and does no harm there: so the
	// list is known to be able to fail.
	Open bool
}

// Run tries the whole list.
func Run(t *testing.T, w World) {
	loot := newPrize(t)
	everyone := append(ofEveryone(loot), w.Special...)
	user := append(append(ofEveryone(loot), ofUser()...), append(w.Special, w.SpecialOfUser...)...)
	if !sharesOwners(w.Capabilities) {
		user = append(user, Attack{Name: "write to /etc", Line: "echo x >> /etc/passwd"})
	}
	for _, c := range []struct {
		name    string
		root    bool
		user    string
		attacks []Attack
	}{
		{"User", false, "", user},
		{"UserWhereRootIs", true, "", user},
		{"Root", true, "root", everyone},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := w.machine(t, c.root)
			for _, a := range c.attacks {
				if ownKernel(w.Capabilities) && (a.OfHost || a.Ungranted && c.root) {
					continue
				}
				a.Free = a.Free || a.Own && c.user == "root" && ownKernel(w.Capabilities)
				if why := try(t.Context(), g, c.user, loot, a); why != nil {
					t.Errorf("%s: %q: %v", a.Name, a.Line, why)
				}
			}
		})
	}
	t.Run("OtherSandbox", func(t *testing.T) { w.other(t) })
	t.Run("Template", func(t *testing.T) { w.template(t) })
	t.Run("LinksOfTemplate", func(t *testing.T) { w.links(t, loot) })
}

func ownKernel(c sandbox.Capabilities) bool {
	return c.Isolation == sandbox.MicroVM || c.Isolation == sandbox.MicroVMEmulated
}

// sharesOwners: without root, the template's files on the host look like the
// sandbox's user's own.
func sharesOwners(c sandbox.Capabilities) bool { return c.Rootless && !c.RootImage }

// machine boots one with the suite's tool in its workspace.
func (w World) machine(t *testing.T, root bool) sandboxtest.Guest {
	t.Helper()
	b := w.Boot(t)
	b.Spec.Root = root
	g := sandboxtest.NewGuest(t, w.Create(t, b))
	g.Write("tool", 0o755, sandboxtest.Tool(t))
	return g
}

// try returns why the attack is one that has succeeded; nil: it has not.
func try(ctx context.Context, g sandboxtest.Guest, user string, loot prize, a Attack) error {
	r := sandboxtest.Start("/bin/sh", "-c", a.Line)
	r.User = user
	res, err := g.Exec(ctx, r)
	if err != nil {
		return err
	}
	return a.judge(loot, res)
}

var (
	errTaken     = errors.New("the prize was taken")
	errSucceeded = errors.New("it succeeded")
	errSaid      = errors.New("the output is not what it must be")
)

func (a Attack) judge(loot prize, res sandboxtest.Result) error {
	var why error
	switch {
	case strings.Contains(res.Stdout, loot.token):
		why = errTaken
	case !a.Free && res.Code == 0:
		why = errSucceeded
	case a.Never != "" && strings.Contains(res.Stdout+res.Stderr, a.Never),
		a.Want != "" && res.Stdout != a.Want:
		why = errSaid
	default:
		return nil
	}
	return &outcome{why, res}
}

// outcome is what a command did, for who reads the failure.
type outcome struct {
	error
	res sandboxtest.Result
}

func (o *outcome) Unwrap() error { return o.error }

func (o *outcome) Error() string {
	const textMax = 400
	return o.error.Error() + ": stdout " + clip(o.res.Stdout, textMax) + " stderr " + clip(o.res.Stderr, textMax)
}
