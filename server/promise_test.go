package server_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// A caller that waits for a service is told that it works only when it does: also
// of one without a check, which the guest takes for ready as soon as it runs.
func TestServiceThatCannotStartSaysSo(t *testing.T) {
	w := newWorld(t)
	s := dial(t, w).Sandbox(w.sandbox()).Services()
	for name, d := range map[string]struct {
		spec api.ServiceSpec
		want string // part of the states that are told
	}{
		"works":        {api.ServiceSpec{Command: "sleep 1000"}, "ready"},
		"no program":   {api.ServiceSpec{Argv: []string{"/no/such/program"}}, "backoff crash-loop failed"},
		"ends at once": {api.ServiceSpec{Command: "exit 3"}, "backoff crash-loop failed"},
		"ends once":    {api.ServiceSpec{Command: "sleep 0.1; exit 3", Restart: "never"}, "failed stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			d.spec.Name = strings.ReplaceAll(name, " ", "-")
			i, err := s.Declare(t.Context(), d.spec, time.Minute)
			if err != nil || !strings.Contains(d.want, i.State) && !(name == "ends once" && i.State == "ready") {
				t.Errorf("declared: %s (%s), %v; want %s", i.State, i.Reason, err, d.want)
			}
			for range 5 {
				i, err = s.Restart(t.Context(), d.spec.Name, time.Minute)
				if i.State != "ready" || d.want == "ready" { // one that ends was ready if that took a second: on a busy machine
					break
				}
			}
			if err != nil || !strings.Contains(d.want, i.State) {
				t.Errorf("restarted: %s (%s), %v; want %s", i.State, i.Reason, err, d.want)
			}
		})
	}
}

// A preview says whether there is anything to see.
func TestPreviewSaysWhetherSomethingListens(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	c := dial(t, w)
	sb := c.Sandbox(w.sandbox())
	for _, public := range []bool{false, true} {
		for port, want := range map[int]string{serving(t): "true", 1: "false"} {
			p, err := sb.Previews().Open(t.Context(), api.CreatePreview{Port: port, Public: public})
			got := "unknown"
			if p.Listens != nil {
				got = fmt.Sprint(*p.Listens)
			}
			if err != nil || got != want {
				t.Errorf("port %d, public %t: listens %s, %v; want %s", port, public, got, err, want)
			}
		}
	}
	if _, err := sb.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Previews().Open(t.Context(), api.CreatePreview{Port: 5173})
	if err != nil || p.Listens == nil || *p.Listens {
		t.Errorf("of a stopped one: %+v, %v", p, err)
	}
}

// serving listens on a port of this host, which is that of sandboxes here.
func serving(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func dial(t *testing.T, w *world) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}
