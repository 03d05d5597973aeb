package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
)

// holding serves the workspace while it holds one file of it open, and notes
// when it sees that another one was put in its place: then it went on after an
// undo with what is no more.
const holding = `cd /workspace && exec 9< page && busybox httpd -f -p 127.0.0.1:8080 -h /workspace & cd /workspace && exec 9< page
while :; do [ page -ef /proc/$$/fd/9 ] || echo "$$ saw it" >> /tmp/saw; busybox usleep 2000; done`

// backWithin is promised for an undo, and from there to the page, by the
// reference's time.
const backWithin = 2 * time.Second

// An undo starts the services anew that hold what it replaced, before they can
// do anything more with that, and no others; and the page is back.
func TestUndo_restartsWhoHoldsWhatItReplaced(t *testing.T) {
	m := emulated(t)
	m.each(t, func(m *machines, provider string) {
		id := m.vm("--provider", provider, "--template", "small")
		m.busy(id, "echo light > page; echo same > other")
		services := m.c.Sandbox(id).Services()
		for name, s := range map[string]api.ServiceSpec{
			"web":    {Command: holding, ReadyTCP: 8080},
			"beside": {Command: "exec 9< /workspace/other; echo holds; exec busybox sleep 1000000", ReadyLog: "holds"},
		} {
			s.Name = name
			if got, err := services.Declare(m.ctx(), s, time.Minute); err != nil || got.State != "ready" {
				m.t.Fatalf("%+v, %v", got, err)
			}
		}
		page := func() string { return m.busy(id, "busybox wget -qO- http://127.0.0.1:8080/page 2>&1") }
		m.root(id)
		m.busy(id, "echo dark > page")
		if got := page(); got != "dark" {
			m.t.Fatalf("%s: the page is %q before the undo", provider, got)
		}
		h := m.c.Sandbox(id).History()
		began := time.Now()
		patience.Within(m.t, backWithin, "the undo", func() {
			plan, err := h.Plan(m.ctx(), api.PlanChange{Do: api.PlanUndo})
			if err == nil {
				_, err = h.Apply(m.ctx(), plan.ID)
			}
			if err != nil {
				m.t.Error(err)
			}
		})
		undone := time.Since(began)
		patience.Try(m.t, backWithin, "the page", func() error {
			if out, err := m.try("vm", "exec", id, "--", "/bin/busybox", "wget", "-qO-", "http://127.0.0.1:8080/page"); err != nil || out != "light\n" {
				return fmt.Errorf("%q, %w", out, err)
			}
			return nil
		})
		m.t.Logf("%s: the undo took %v, the page was back after %v", provider, undone.Round(time.Millisecond), since(began))
		if saw := m.busy(id, "busybox cat /tmp/saw 2>/dev/null; true"); saw != "" {
			m.t.Errorf("%s: a service went on with a file that was replaced: %s", provider, saw)
		}
		for name, want := range map[string]uint64{"web": 1, "beside": 0} {
			if got := m.services(id)[name]; got.Restarts != want || got.State != "ready" {
				m.t.Errorf("%s: %s was started anew %d times, not %d: %+v; it ended last with %+v", provider, name, got.Restarts, want, got, got.LastExit)
			}
		}
	})
}

// An undo needs nothing of the machine but its guest: not its network, whose
// last device root takes away here, and not the supervise that was there, which
// root kills. What served before serves again once it can be reached.
func TestUndo_whenTheMachineIsBroken(t *testing.T) {
	m := emulated(t)
	m.each(t, func(m *machines, provider string) {
		id := m.vm("--provider", provider, "--template", "small", "--root")
		m.busy(id, "echo light > page")
		m.root(id)
		if got, err := m.c.Sandbox(id).Services().Declare(m.ctx(), api.ServiceSpec{Name: "web", Command: holding, ReadyTCP: 8080}, time.Minute); err != nil || got.State != "ready" {
			m.t.Fatalf("%+v, %v", got, err)
		}
		asRoot := func(line string) (string, error) {
			return m.try("vm", "exec", id, "--user", "root", "--", "/bin/busybox", "sh", "-c", line)
		}
		for _, c := range []struct{ what, breaks, mends string }{
			{"the network is gone", "busybox ip link set lo down", "busybox ip link set lo up"},
			{"supervise is killed", "busybox kill -9 $(busybox pidof guest | busybox tr ' ' '\\n' | busybox grep -vx 1)", "true"},
		} {
			m.busy(id, "echo dark > page && busybox mkdir -p broken")
			m.root(id)
			before, _ := asRoot("busybox pidof guest")
			if out, err := asRoot(c.breaks); err != nil && !strings.Contains(c.breaks, "kill") { // who kills supervise is not answered
				m.t.Logf("%s: %s is not possible: %s", provider, c.breaks, out)
				continue
			}
			began := time.Now()
			patience.Within(m.t, backWithin, "an undo although "+c.what, func() { m.cli("undo", id, "-y") })
			m.t.Logf("%s: %s, the undo took %v", provider, c.what, since(began))
			if got := m.busy(id, "busybox cat page; busybox ls"); got != "light\npage" {
				m.t.Errorf("%s: %s: %q", provider, c.what, got)
			}
			if after, _ := asRoot("busybox pidof guest"); before == "" || (after == before) == strings.Contains(c.breaks, "kill") {
				m.t.Errorf("%s: %s: the guest's processes were %q and are %q", provider, c.what, before, after)
			}
			if out, err := asRoot(c.mends); err != nil {
				m.t.Fatalf("%s: %v", out, err)
			}
			m.until("the page is back", func() error {
				if out, err := m.try("vm", "exec", id, "--", "/bin/busybox", "wget", "-qO-", "http://127.0.0.1:8080/page"); err != nil || out != "light\n" {
					return fmt.Errorf("%q, %w", out, err)
				}
				return nil
			})
		}
	})
}
