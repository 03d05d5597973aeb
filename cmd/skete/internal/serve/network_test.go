package serve

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/plugin"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/secret"
)

// The secret is made once and for the server's user alone; one that is cut short is not
// taken, and the message says what to do.
func TestNetworkSeed(t *testing.T) {
	p := filepath.Join(t.TempDir(), "network.key")
	first, err := networkSeed(p)
	must(t, err)
	again, err := networkSeed(p)
	must(t, err)
	info, err := os.Stat(p)
	must(t, err)
	if len(first) != seedBytes || !bytes.Equal(first, again) || info.Mode().Perm() != 0o600 {
		t.Errorf("%x, then %x, mode %s", first, again, info.Mode())
	}
	must(t, os.Truncate(p, 5))
	if _, err := networkSeed(p); !errs.Is(err, errs.Corrupt) || !strings.Contains(errs.Hint(err), "remove it") {
		t.Errorf("%v", err)
	}
}

// A model is told what it can reach, and no more than it can read.
func TestReach(t *testing.T) {
	var many egress.Policy
	for range 13 {
		many.Allow = append(many.Allow, egress.Rule{Host: "a.example.com", Access: egress.Read})
	}
	for want, s := range map[string]sandbox.Spec{
		"There is no network.":      {},
		"There is no network. ":     {Network: egress.None},
		"public network can be":     {Network: egress.Open},
		"Packages can be installed": {Network: egress.Default},
		"Nothing on the network":    {Egress: &egress.Policy{}},
		"a.example.com read; a":     {Egress: &egress.Policy{Allow: many.Allow[:1]}},
		"read, and 3 more; a per":   {Egress: &many},
	} {
		if got := reach(s); !strings.Contains(got, strings.TrimSpace(want)) {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// What an agent's file says of the network is held to.
func TestSpecOf_network(t *testing.T) {
	s, err := specOf(map[string]any{"network": "none", "egress": map[string]any{"allow": []any{map[string]any{"host": "a.example.com"}}}})
	must(t, err)
	if !s.HasNetwork() || len(s.Policy().Allow) != 1 || !s.Persist {
		t.Errorf("%+v", s)
	}
}

// Steps of builds have no network, whatever the server's default is.
func TestStepSpec(t *testing.T) {
	l, d := sandbox.Limits{CPUsMax: 4, MemoryMBMax: 4096, DiskMBMax: 16 << 10, PidsMax: 4096, IdleTimeoutMax: time.Hour}, sandbox.Defaults{Network: egress.Default}
	s, err := sandbox.Normalise(stepSpec("debian", l), l, d)
	must(t, err)
	if s.HasNetwork() || s.Settled(sandbox.Capabilities{Network: true}, d).HasNetwork() {
		t.Errorf("a step has the network %q", s.Network)
	}
}

// What an agent's file says of models is granted to the programs of its sandbox.
func TestSpecOf_models(t *testing.T) {
	s, err := specOf(map[string]any{"models": map[string]any{"models": []any{"fast"}, "cost_usd": 5, "per_minute": 60}})
	must(t, err)
	if d := cmp.Diff(&sandbox.ModelGrant{Models: []string{"fast"}, CostUSD: 5, PerMinute: 60}, s.Models); d != "" {
		t.Error(d)
	}
	for said, want := range map[string]any{"models": []any{"fast"}, "nothing": map[string]any{"model": "fast"}} {
		if _, err := specOf(map[string]any{"models": want}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", said, err)
		}
	}
}

// A stream that comes before it is known whose machine it is of waits for that, or for
// the end of the server.
func TestWhenManaged(t *testing.T) {
	for name, managed := range map[string]bool{"managed": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			r := &running{}
			served := make(chan struct{})
			serve := r.whenManaged(func(sandbox.ID, net.Conn, uint32) {
				if !isManaged(r) {
					t.Error("it was served before")
				}
				close(served)
			})
			here, there := net.Pipe()
			defer there.Close()
			over := make(chan struct{})
			go func() {
				defer close(over)
				serve("sbx_a", here, 1)
			}()
			if !managed {
				must(t, r.close())
				<-over
				if _, err := there.Read(make([]byte, 1)); err == nil {
					t.Error("the stream is open")
				}
				return
			}
			close(r.managed)
			<-served
			<-over
			must(t, r.close())
		})
	}
}

func isManaged(r *running) bool {
	select {
	case <-r.managed:
		return true
	default:
		return false
	}
}

// A secret that is granted to an agent is so in the sandboxes of its own runs.
func TestUserOf(t *testing.T) {
	info := sandbox.Info{ID: "sbx_a", Spec: sandbox.Spec{Name: "web"}, ForRun: sandbox.ForRun{Run: "run_a", Agent: "coder"}}
	if d := cmp.Diff(secret.User{Agent: "coder", Sandboxes: []string{"sbx_a", "web"}}, (&running{}).userOf(info)); d != "" {
		t.Error(d)
	}
}

// The sandbox of a plug-in is one by the plug-in's name, and wants what its manifest names; of one
// that is not there, or is another one by now, it is given nothing.
func TestUserOf_aPlugin(t *testing.T) {
	p := &plugin.Plugin{Hash: "one", Manifest: plugin.Manifest{Name: "guard", Secrets: []plugin.Secret{{Name: "vendor", Hosts: []string{"a.example"}}}}}
	r := &running{pluginMachines: &pluginMachines{plugins: []*plugin.Plugin{p}}}
	info := sandbox.Info{ID: "sbx_a", Spec: sandbox.Spec{Name: "plugin-other", Metadata: map[string]string{pluginKey: "guard", pluginHashKey: "one"}}}
	want := secret.User{Sandboxes: []string{"plugin-guard"}, Wants: secret.Wants{"vendor": {"a.example"}}}
	if d := cmp.Diff(want, r.userOf(info)); d != "" {
		t.Error(d)
	}
	info.Spec.Metadata[pluginHashKey] = "two"
	for _, r := range []*running{r, {}} {
		if d := cmp.Diff(secret.User{Wants: secret.Wants{}}, r.userOf(info)); d != "" {
			t.Error(d)
		}
	}
}
