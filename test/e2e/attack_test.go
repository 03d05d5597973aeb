package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
)

// attackProgram tries them, each with a mark of its own.
//
//go:embed testdata/attack.py
var attackProgram []byte

// attacking is an internet with attacks on it.
type attacking struct {
	*outside
	nonce string
	token string // of another sandbox, for models
	value string // of the secret
}

// mark is what an attack sends.
func (a *attacking) mark(name string) string {
	return fmt.Sprintf("m%x", sha256.Sum256([]byte(a.nonce+name)))[:25]
}

// briefing is what the program is told.
func (a *attacking) briefing(user string) string {
	skip := []string{}
	if user == "root" { // the machine is root's own, who can end what runs in it
		skip = []string{"the supervisor", "the control port"}
	}
	world := map[string]any{
		"nonce": a.nonce, "public": publicIP, "public6": publicIP6, "socket": a.socket, "abstract": a.abstract, "token": a.token, "wait": 3, "threads": 24, "skip": skip,
	}
	b, err := json.Marshal(world)
	a.ok(err)
	return string(b)
}

// answered is what the program says of an attack.
type answered struct {
	Name, Said string
	Took       float64 // seconds
}

func (a *attacking) answers(out []byte) map[string]string {
	a.t.Helper()
	all := map[string]string{}
	for line := range bytes.Lines(out) {
		var x answered
		if err := json.Unmarshal(line, &x); err != nil {
			a.t.Fatalf("the program says %q: %v", line, err)
		}
		all[x.Name] = x.Said
		if x.Took > 5 {
			a.t.Logf("%s took %.1f s", x.Name, x.Took)
		}
	}
	return all
}

// through says where an attack got to; nothing: it did not get through.
func (a *attacking) through(name, said string) []string {
	m := a.mark(name)
	places := a.ears.heard(m)
	inward := strings.HasPrefix(name, "a redirect") || name == "a name that is bound anew"
	switch {
	case strings.HasPrefix(name, "smuggling: "):
		places = a.smuggled(m)
	case inward: // what the public host is sent is allowed
		places = slices.DeleteFunc(places, func(p string) bool { return strings.Contains(p, " "+publicIP+":") })
	case name == "HTTP/2: coalescing":
		places = slices.DeleteFunc(places, func(p string) bool { return strings.HasPrefix(p, "tcp ") })
	}
	if strings.HasPrefix(said, "through") {
		places = append(places, said)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// attackPolicy is what the sandbox may: a host in part, one whole, one pinned, and names that lead
// where nothing may.
func attackPolicy() *api.NetworkPolicy {
	p := &api.NetworkPolicy{Allow: []api.NetworkRule{
		{Host: "api.example.com", Ports: []int{80, 443, 8080}, Paths: []string{"/open/**"}}, {Host: "files.example.com"}, {Host: "pinned.example.com", Ports: []int{443}, Pinned: true},
	}}
	for _, name := range []string{"rebind.example.com", "meta.example.com", "inward.example.com", "six.example.com"} {
		p.Allow = append(p.Allow, api.NetworkRule{Host: name})
	}
	return p
}

// attacked is a server with a sandbox that is attacked from, and another one.
type attacked struct {
	*networked
	*attacking
	model *llmtest.Server
	other *client.Sandbox
}

func newAttacking(n *internet) *attacking {
	return &attacking{outside: newOutside(n), nonce: rand.Text(), value: "hunter" + rand.Text()}
}

// newAttacked starts a server of the world in an internet of attacks.
func newAttacked(w *world, n *internet, provider string, env ...string) *attacked {
	a := &attacked{networked: &networked{world: w}, attacking: newAttacking(n)}
	n.enter(func() error {
		a.model = llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("Hello from the model.")}, Usage: llm.Usage{Input: 50, Output: 7}}))
		return nil
	})
	w.t.Cleanup(a.model.Close)
	w.ok(os.MkdirAll(w.home, 0o700))
	w.ok(os.WriteFile(filepath.Join(w.home, "skete.yaml"), []byte("models: [{name: fast, vendor: compat, id: fast-1, url: "+a.model.URL+", key_env: MODEL_KEY, output_tokens_max: 100}]\n"), 0o600))
	w.enter, w.env = n.enter, append(env, "SSL_CERT_FILE="+n.roots, "MODEL_KEY=sk-of-the-host")
	w.start()
	_, err := w.c.PutSecret(w.ctx(), "forge", api.PutSecret{Value: a.value, Grants: &[]api.SecretGrant{
		{Host: "files.example.com", Paths: []string{"/with/**"}, As: "bearer", Env: "FORGE_TOKEN", Sandboxes: []string{"attacker"}},
	}})
	w.ok(err)
	models := &api.ModelGrant{Models: []string{"fast"}}
	spec := api.CreateSandbox{Name: "other", Provider: provider, MemoryMB: 256, DiskMB: 64, Egress: attackPolicy(), Models: models}
	if provider == "qemu" {
		spec.Template = "python"
	}
	a.other = w.create(spec)
	a.sb = a.other
	a.token = a.sh("echo $OPENAI_API_KEY")
	spec.Name, spec.Root = "attacker", true
	a.sb = w.create(spec)
	_, err = a.sb.Files().Write(w.ctx(), "/workspace/attack.py", attackProgram, client.WriteOptions{})
	w.ok(err)
	return a
}

// attack runs the program inside, and reports what got through.
func (a *attacked) attack(t *testing.T, user string) {
	t.Helper()
	began := time.Now()
	a.nonce = rand.Text()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := a.sb.RunCommand(ctx, api.RunCommand{Argv: []string{"python3", "/workspace/attack.py", a.briefing(user)}, User: user, OutputMax: 8 << 20})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("the program ended with %d: %v\n%s", r.ExitCode, err, r.Err)
	}
	all := a.answers(r.Out)
	got := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if places := a.through(name, all[name]); len(places) > 0 {
			got++
			t.Errorf("%s got through: %q\nit was told %.300q", name, places, all[name])
		}
	}
	if len(all) < attacksMin {
		t.Errorf("%d attacks were tried, not %d", len(all), attacksMin)
	}
	t.Logf("%d attacks in %s, %d got through", len(all), time.Since(began).Round(time.Second), got)
	a.secretStayed(t, r.Out)
	a.logsAreWhole(t)
	for _, seen := range a.model.Seen() {
		if strings.Contains(fmt.Sprint(seen), a.mark("the key to models of another sandbox")) {
			t.Errorf("the model was asked by another sandbox's key")
		}
	}
}

// attacksMin is how many there are, at least: a program that tries none finds nothing.
const attacksMin = 250

// forms are those in which a secret is sent.
func (a *attacking) forms() []string {
	return []string{a.value, base64.StdEncoding.EncodeToString([]byte("Bearer " + a.value)), base64.StdEncoding.EncodeToString([]byte(a.value))}
}

// secretStayed looks for the secret where it is not granted.
func (a *attacked) secretStayed(t *testing.T, inside []byte) {
	t.Helper()
	for _, form := range a.forms() {
		if bytes.Contains(inside, []byte(form)) {
			t.Errorf("the secret is seen inside, as %q", form)
		}
	}
	sent := 0
	a.ears.each(func(place string, said []byte) {
		if !bytes.Contains(said, []byte(a.value)) {
			return
		}
		sent++
		first, _, _ := bytes.Cut(said, []byte("\r\n"))
		if !strings.HasPrefix(place, "request "+publicIP+":443 files.example.com") || !bytes.Contains(first, []byte(" /with/")) {
			t.Errorf("the secret is sent to %s: %q", place, first)
		}
	})
	if sent == 0 {
		t.Error("the secret was never sent: nothing was tried")
	}
}

// logsAreWhole looks for lines and escapes of a guest's in what people read.
func (a *attacked) logsAreWhole(t *testing.T) {
	t.Helper()
	kept, err := a.sb.NetworkLog(a.ctx(), 0)
	a.ok(err)
	if len(kept) == 0 {
		t.Error("no decision is kept")
	}
	if m := a.mark("lines in the log, by a path"); !strings.Contains(fmt.Sprint(kept), m) {
		t.Errorf("no decision tells of %s: nothing of the guest's is kept", m)
	}
	shown := (&machines{a.networked.world}).cli("egress", "log", a.sb.ID)
	for what, text := range map[string]string{"the server's log": a.log.String(), "the list of decisions": shown} {
		if strings.ContainsAny(text, "\x1b\x07\x00\r") {
			t.Errorf("%s has escapes of the guest's", what)
		}
		for line := range strings.Lines(text) {
			for _, by := range []string{"a path", "headers", "a method", "names"} {
				if strings.HasPrefix(strings.TrimSpace(line), a.mark("lines in the log, by "+by)) {
					t.Errorf("%s has a line of the guest's: %q", what, line)
				}
			}
		}
	}
	for _, d := range kept {
		if all := fmt.Sprint(d); strings.ContainsAny(all, "\x1b\x07\x00\r\n") {
			t.Errorf("a decision has escapes of the guest's: %q", all)
		}
	}
}

// works looks that what is allowed gets through, before and after attacks.
func (a *attacked) works(t *testing.T, sb *client.Sandbox) {
	t.Helper()
	m := "m" + strings.ToLower(rand.Text())
	a.sb, sb = sb, a.sb
	defer func() { a.sb = sb }()
	a.until("what is allowed gets through", func() error {
		if out := a.sh("curl -sS --max-time 20 https://api.example.com/open/" + m); !strings.Contains(out, m) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if len(a.ears.heard(m)) == 0 {
		t.Error("nobody hears what is allowed: nothing can be told of the rest")
	}
}

// TestAttacks tries ways out of real machines, against those outside who listen for them.
func TestAttacks(t *testing.T) {
	t.Run("gvisor", func(t *testing.T) { attacksFrom(t, newInternet(t), "gvisor") })
	t.Run("docker", func(t *testing.T) {
		n := newInternet(t)
		host := engineIn(n)
		attacksFrom(t, n, "docker", "DOCKER_HOST="+host)
	})
}

func attacksFrom(t *testing.T, n *internet, provider string, env ...string) {
	a := newAttacked(newWorld(t, "--providers", provider, "--log-level", "debug"), n, provider, env...)
	a.works(t, a.sb)
	t.Run("user", func(t *testing.T) { a.attack(t, "") })
	t.Run("root", func(t *testing.T) { a.attack(t, "root") })
	a.works(t, a.sb)
	a.works(t, a.other)
}

// The same from a machine whose kernel is its own, by a server that is started anew.
func attacksOnItsOwnKernel(t *testing.T, m *machines) {
	n := newInternet(m.t)
	m.kill()
	a := newAttacked(m.world, n, "qemu")
	a.works(t, a.sb)
	a.attack(t, "") // emulated: once is slow enough
	a.works(t, a.sb)
}

// engineIn starts an engine in the namespaces, where the server's mounts are.
func engineIn(n *internet) (host string) {
	n.t.Helper()
	engine, err := exec.LookPath("dockerd")
	if err != nil {
		n.t.Skip("dockerd is not installed (see scripts/need)")
	}
	dir := n.t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/proc/%d/fd/%d --mount=/proc/%[1]d/fd/%[3]d %[4]s \"$@\"\n", os.Getpid(), n.net, n.mnt, engine)
	n.ok(os.WriteFile(filepath.Join(dir, "dockerd"), []byte(script), 0o755))
	n.t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return enginetest.Start(n.t, enginetest.Docker).Host
}

// harmless are attacks that get nowhere even where nothing isolates, and why.
var harmless = map[string]string{
	"HTTP/2: a line in a header":                             "the host's own server refuses it",
	"HTTP/2: chunks":                                         "the host's own server refuses it",
	"the key to models of another sandbox":                   "there is no gateway",
	"the secret, by fronting":                                noSecret,
	"the secret, for another host":                           noSecret,
	"the secret, for another path":                           noSecret,
	"the secret, for another path, by dots":                  noSecret,
	"the secret, for another port":                           noSecret,
	"the secret, in the clear":                               noSecret,
	"the supervisor's files, and a forged revision or event": "there is no supervisor",
	"vsock": "nobody listens there",
}

// sometimes are attacks that get through where nothing isolates, or do not, as the kernel
// likes.
var sometimes = []string{"a packet beneath IP"} // whether the loopback interface takes packets of strangers

const noSecret = "nobody adds a secret"

// The same attacks by a process that nothing isolates get through: each is a real one.
func TestAttacks_succeedWhereNothingIsolates(t *testing.T) {
	a := newAttacking(newInternet(t))
	file := filepath.Join(t.TempDir(), "attack.py")
	a.ok(os.WriteFile(file, attackProgram, 0o600))
	a.decoys()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", file, a.briefing(""))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	a.enter(cmd.Start)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &errOut)
	}
	all := a.answers(out.Bytes())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		places, why := a.through(name, all[name]), harmless[name]
		switch {
		case len(places) == 0 && why == "" && !slices.Contains(sometimes, name):
			t.Errorf("%s gets nowhere: it is told %.200q", name, all[name])
		case len(places) > 0 && why != "":
			t.Errorf("%s gets to %q, though %s", name, places, why)
		}
	}
	for name := range harmless {
		if _, ok := all[name]; !ok {
			t.Errorf("%s is not tried", name)
		}
	}
}

// decoys are in the place of a supervisor: a process of another user, and a port that
// grants what it is asked for.
func (a *attacking) decoys() {
	a.t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	a.enter(cmd.Start)
	a.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	a.enter(func() error {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			a.accept(ln, func(conn net.Conn) {
				if port, err := wire.Accept(conn); err == nil {
					_ = wire.Grant(conn, port)
				}
			})
		}
		return err
	})
}
