package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
)

// A service has limits of its own: over its memory it is ended, says why, and
// is tried again; what runs beside it is not harmed. What a machine does not
// keep is said.
func TestService_limits(t *testing.T) {
	m := emulated(t)
	m.each(t, func(m *machines, provider string) {
		id := m.vm("--provider", provider, "--template", "small")
		services := m.c.Sandbox(id).Services()
		declare := func(name, command string, limits map[string]uint64) api.Service {
			m.t.Helper()
			got, err := services.Declare(m.ctx(), api.ServiceSpec{Name: name, Command: command, ReadyLog: "begun", Limits: limits}, time.Minute)
			if err != nil {
				m.t.Fatalf("%s: %v", name, err)
			}
			return got
		}
		// It takes 24 MiB and may have 64.
		const keeps = "echo begun; exec busybox dd if=/dev/zero of=/dev/null bs=24M"
		if got := declare("beside", keeps, map[string]uint64{"memory": 64 << 20}); got.State != "ready" || got.Reason != "" {
			m.t.Fatalf("%+v", got)
		}
		// It takes 48 MiB in a session of its own and may have 16; there is enough in the machine.
		began := time.Now()
		declare("hog", "echo begun; busybox usleep 100000; busybox setsid busybox dd if=/dev/zero of=/dev/null bs=48M & wait; busybox sleep 1000", map[string]uint64{"memory": 16 << 20})
		var hog api.Service
		m.until("the hog was started again", func() error {
			if hog = m.services(id)["hog"]; hog.Restarts < 2 || hog.LastExit == nil {
				return fmt.Errorf("%+v", hog)
			}
			return nil
		})
		m.t.Logf("%s: ended %d times within %v, %s: %s", provider, hog.Restarts, time.Since(began).Round(time.Millisecond), hog.State, hog.Reason)
		m.until("it says why", func() error {
			if hog = m.services(id)["hog"]; !strings.HasPrefix(hog.Reason, "it was ended: out of memory") || hog.LastExit.Reason != "out of memory" {
				return fmt.Errorf("%+v %+v", hog, hog.LastExit)
			}
			return nil
		})
		if err := services.Remove(m.ctx(), "hog"); err != nil {
			m.t.Fatal(err)
		}
		if left := m.busy(id, "busybox ps | busybox grep -c '[b]s=48M'; true"); left != "0" {
			m.t.Errorf("%s: %s processes of the hog are left", provider, left)
		}
		m.tasks(provider, id, declare)
		// A weight is what a kernel of Linux keeps.
		want := map[string]string{"gvisor": "not kept on this machine: the limit of cpu_weight"}[provider]
		if got := declare("light", "echo begun; exec busybox sleep 1000", map[string]uint64{"cpu_weight": 10}); got.State != "ready" || got.Reason != want {
			m.t.Errorf("%s: %+v", provider, got)
		}
		if got := m.services(id)["beside"]; got.State != "ready" || got.Restarts != 0 {
			m.t.Errorf("%s: the service beside was harmed: %+v", provider, got)
		}
	})
}

// tasks: a service that forks too much fails, and no other does.
func (m *machines) tasks(provider, id string, declare func(string, string, map[string]uint64) api.Service) {
	m.t.Helper()
	const forks = "echo begun; i=0; while [ $i -lt 20 ]; do busybox sleep 1000 & i=$((i+1)); done; echo all >> /tmp/$0-all; wait"
	name := func(s string) string { return strings.ReplaceAll(forks, "$0", s) }
	many := declare("many", name("many"), map[string]uint64{"pids": 40})
	if provider == "gvisor" { // it is said
		if many.State != "ready" || many.Reason != "not kept on this machine: the limit of pids" {
			m.t.Errorf("%+v", many)
		}
		return
	}
	declare("few", name("few"), map[string]uint64{"pids": 10})
	m.until("the one that may has them all", func() error {
		if got := m.busy(id, "busybox cat /tmp/many-all 2>&1; true"); got != "all" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	m.until("the other one failed", func() error {
		if got := m.services(id)["few"]; got.Restarts == 0 || got.LastExit == nil {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := m.busy(id, "busybox ls /tmp/few-all 2>&1; true"); !strings.Contains(got, "No such file") {
		m.t.Errorf("%s: the service of 10 tasks has 20: %s", provider, got)
	}
	if got := m.services(id)["many"]; got.Restarts != 0 || got.State != "ready" {
		m.t.Errorf("%s: %+v", provider, got)
	}
}
