package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
)

// holding serves the workspace while it holds one file of it open, and notes
// when it sees that another one was put in its place: then it went on after an
// undo with what is no more.
const holding = `cd /workspace && exec 9< page && busybox httpd -f -p 127.0.0.1:8080 -h /workspace & cd /workspace && exec 9< page
while :; do [ page -ef /proc/$$/fd/9 ] || echo "$$ saw it" >> /tmp/saw; busybox usleep 2000; done`

// backWithin is promised between an undo and the page.
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
		plan, err := h.Plan(m.ctx(), api.PlanChange{Do: api.PlanUndo})
		if err == nil {
			_, err = h.Apply(m.ctx(), plan.ID)
		}
		if err != nil {
			m.t.Fatal(err)
		}
		undone := time.Since(began)
		m.until("the page is back", func() error {
			if out, err := m.try("vm", "exec", id, "--", "/bin/busybox", "wget", "-qO-", "http://127.0.0.1:8080/page"); err != nil || out != "light\n" {
				return fmt.Errorf("%q, %w", out, err)
			}
			return nil
		})
		took := time.Since(began)
		m.t.Logf("%s: the undo took %v, the page was back after %v", provider, undone.Round(time.Millisecond), took.Round(time.Millisecond))
		if took > backWithin {
			m.t.Errorf("%s: the page was back after %v", provider, took)
		}
		if saw := m.busy(id, "busybox cat /tmp/saw 2>/dev/null; true"); saw != "" {
			m.t.Errorf("%s: a service went on with a file that was replaced: %s", provider, saw)
		}
		for name, want := range map[string]uint64{"web": 1, "beside": 0} {
			if got := m.services(id)[name]; got.Restarts != want || got.State != "ready" {
				m.t.Errorf("%s: %s was started anew %d times, not %d: %+v", provider, name, got.Restarts, want, got)
			}
		}
	})
}
