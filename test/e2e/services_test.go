package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// serves is a service that answers on a port and says so. It has no readiness
// of its own to lean on: the port is what counts.
func serves(port int) string {
	return fmt.Sprintf(`echo "serving as $$"; exec python3 -m http.server %d --bind 127.0.0.1`, port)
}

func (m *machines) services(id string) map[string]api.Service {
	m.t.Helper()
	var all []api.Service
	if err := json.Unmarshal([]byte(m.cli("service", "list", id, "--json")), &all); err != nil {
		m.t.Fatal(err)
	}
	byName := map[string]api.Service{}
	for _, s := range all {
		byName[s.Name] = s
	}
	return byName
}

// untilReady waits until a service is ready with another run than pid's.
func (m *machines) untilReady(id, name string, pid int) (now api.Service) {
	m.t.Helper()
	m.until(name+" is ready", func() error {
		if now = m.services(id)[name]; now.State != "ready" || now.PID == pid {
			return fmt.Errorf("it is %s, pid %d: %s", now.State, now.PID, now.Reason)
		}
		return nil
	})
	return now
}

// A service on real gVisor, as a person uses it: declared, ready when its port
// answers, looked at, restarted, killed and back; and after a stop of the
// machine those of the spec and of skete.yaml are there again.
func TestServices_onGVisor(t *testing.T) {
	m := &machines{newWorld(t, "--providers", "gvisor")}
	m.start()
	sb := m.create(api.CreateSandbox{MemoryMB: 256, DiskMB: 128, Language: "python", Services: []api.ServiceSpec{
		{Name: "from-spec", Command: serves(8101), ReadyTCP: 8101},
	}})
	id := sb.ID
	m.untilReady(id, "from-spec", 0)

	if out := m.cli("service", "add", id, "web", "--tcp", "8102", "--cmd", serves(8102)); out != "web ready\n" {
		t.Errorf("add: %q", out)
	}
	first := m.services(id)["web"]
	if first.State != "ready" || first.PID == 0 || first.Source != "call" {
		t.Fatalf("%+v", first)
	}
	fetch := func(port int) string {
		return m.in(id, fmt.Sprintf(`python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:%d", timeout=20).status)'`, port))
	}
	if got := fetch(8102); got != "200" {
		t.Errorf("it answers %q", got)
	}
	if out := m.cli("service", "logs", id, "web"); !strings.Contains(out, "serving as ") || !strings.Contains(out, "GET /") {
		t.Errorf("logs: %q", out)
	}
	if out := m.cli("service", "restart", id, "web"); out != "web ready\n" {
		t.Errorf("restart: %q", out)
	}
	second := m.services(id)["web"]
	if second.PID == first.PID || second.State != "ready" {
		t.Errorf("after a restart: %+v, before %+v", second, first)
	}
	m.in(id, fmt.Sprintf("kill -9 %d", second.PID))
	third := m.untilReady(id, "web", second.PID)
	if third.Restarts <= second.Restarts || third.LastExit == nil || third.LastExit.Signal != 9 {
		t.Errorf("after kill -9: %+v, before %+v", third, second)
	}
	if out := m.cli("service", "logs", id, "web"); strings.Count(out, "serving as ") != 3 {
		t.Errorf("the log of three runs: %q", out)
	}
	for _, line := range []string{"no-such-program", "echo no config here; exit 7"} { // no check of its own
		if out, err := m.try("service", "add", id, "broken", "--cmd", line); err == nil || !strings.Contains(err.Error(), "broken is ") || !strings.Contains(err.Error(), "no") {
			t.Errorf("%s: %q, %v", line, out, err)
		}
		m.cli("service", "remove", id, "broken")
	}
	if out := m.cli("service", "add", id, "broken", "--no-wait", "--cmd", "exit 7"); !strings.HasPrefix(out, "broken ") {
		t.Errorf("without waiting: %q", out)
	}
	m.cli("service", "remove", id, "broken")
	if out, err := m.try("service", "add", id, "bad", "--cmd", "echo no config; exit 7", "--log", "^up", "--restart", "never"); err == nil || !strings.Contains(err.Error(), "bad is failed") {
		t.Errorf("one that fails: %q, %v", out, err)
	}
	if out := m.cli("service", "logs", id, "bad"); out != "no config\n" {
		t.Errorf("what it wrote: %q", out)
	}

	m.in(id, `printf 'services:\n  from-file:\n    command: '"'"'exec python3 -m http.server 8103 --bind 127.0.0.1'"'"'\n    ready: {tcp: 8103}\n' > skete.yaml`)
	m.cli("service", "load", id)
	m.untilReady(id, "from-file", 0)
	m.cli("service", "remove", id, "bad")

	if _, err := sb.Stop(m.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Start(m.ctx()); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{"from-spec": "spec", "from-file": "file"} {
		if s := m.untilReady(id, name, 0); s.Source != source || s.Restarts != 0 {
			t.Errorf("after the stop: %+v", s)
		}
	}
	if got := fetch(8101) + fetch(8103); got != "200200" {
		t.Errorf("they answer %q", got)
	}
}

// An agent keeps a server up with the tool `service`; it stays when the run is
// over, and rules about commands hold for it.
func TestBrain_agentKeepsAServiceUp(t *testing.T) {
	b := newBrain(t, map[string]string{"server": fmt.Sprintf(`
replies:
  - calls: [{name: service, args: {action: start, name: web, command: %q, ready_tcp: 8104}}]
  - calls: [{name: service, args: {action: start, name: evil, command: 'curl http://example.invalid'}}]
  - calls: [{name: service, args: {action: list}}]
  - calls: [{name: service, args: {action: logs, name: web}}]
else: {text: done}
`, serves(8104))}, map[string]string{"careful": `
approvals:
  - {action: deny, tools: [execute], commands: ['curl *'], reason: no downloads}
`}, "")
	m := &machines{b.world}
	sb := m.create(api.CreateSandbox{MemoryMB: 256, DiskMB: 128, Language: "python"})
	run := b.run("server", api.StartRun{Sandbox: sb.ID, Agent: "careful"})
	b.wait(run.ID, "succeeded")
	var said []string
	for _, r := range b.results(run.ID) {
		said = append(said, r.text)
	}
	if len(said) != 4 || !strings.Contains(said[0], "web is ready") || !strings.Contains(said[1], "no downloads") ||
		!strings.Contains(said[2], "web is ready") || strings.Contains(said[2], "evil") || !strings.Contains(said[3], "serving as ") {
		t.Errorf("%q", said)
	}
	if s := m.services(sb.ID)["web"]; s.State != "ready" {
		t.Errorf("after the run: %+v", s)
	}
}
