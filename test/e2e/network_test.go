package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// Where the public network of tests is. The range is for documentation: nothing is there.
const publicIP = "203.0.113.7"

var publicNames = []string{"api.example.com", "files.example.com", "other.example.com", "pinned.example.com", "login.example.com"}

// internet is a public network of a test's own, in namespaces that a server is started in:
// names, which are those of one address, and a web server there with TLS and without.
type internet struct {
	t        *testing.T
	net, mnt int      // of the namespaces
	roots    string   // PEM file of who signs for its hosts
	ears     ears     // of all who listen there
	hosts    sync.Map // of handlers, by name, in place of the one that says what it was asked
	web      http.Handler
	tls      *tls.Config
}

func newInternet(t *testing.T) *internet {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	n := &internet{t: t, roots: filepath.Join(t.TempDir(), "roots.pem")}
	hosts := filepath.Join(t.TempDir(), "hosts")
	n.ok(os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+publicIP+" "+strings.Join(publicNames, " ")+"\n"), 0o644))
	n.apart(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""), up("lo", "127.0.0.1"), up("lo:0", publicIP)); err != nil {
			return err
		}
		for name, fd := range map[string]*int{"net": &n.net, "mnt": &n.mnt} {
			if *fd, err = unix.Open("/proc/thread-self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
			t.Cleanup(func() { _ = unix.Close(*fd) })
		}
		return nil
	})
	n.serve()
	return n
}

// apart calls f in a thread of its own, which ends with it.
func (n *internet) apart(f func() error) {
	n.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread is another one by now
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	n.ok(<-done)
}

// enter calls f in the namespaces: what it starts and opens is there.
func (n *internet) enter(f func() error) {
	n.t.Helper()
	n.apart(func() error {
		if err := errors.Join(unix.Setns(n.net, unix.CLONE_NEWNET), unix.Setns(n.mnt, unix.CLONE_NEWNS)); err != nil {
			return err
		}
		return f()
	})
}

func (n *internet) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// up gives an interface of this namespace its address.
func up(name, address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err = r.SetInet4Addr(net.ParseIP(address).To4()); err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r)
	}
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// serve puts the web server at the address. It says what it was asked.
func (n *internet) serve() {
	n.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	n.ok(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "public"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: publicNames,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	n.ok(err)
	n.ok(os.WriteFile(n.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	n.web = n.ears.asked(http.HandlerFunc(n.answer))
	n.tls = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	n.enter(func() error {
		for _, port := range []string{"80", "443"} {
			ln, err := net.Listen("tcp", net.JoinHostPort(publicIP, port))
			if err != nil {
				return err
			}
			ln = overheard{ln, &n.ears}
			s := &http.Server{Handler: n.web, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), TLSConfig: n.tls.Clone()}
			n.t.Cleanup(func() { s.Close() })
			if port == "80" {
				go s.Serve(ln)
			} else {
				go s.ServeTLS(ln, "", "")
			}
		}
		return nil
	})
}

// answer is the answer of a host.
func (n *internet) answer(w http.ResponseWriter, r *http.Request) {
	if h, ok := n.hosts.Load(r.Host); ok {
		h.(http.Handler).ServeHTTP(w, r)
		return
	}
	answer(w, r)
}

// answer says what was asked.
func answer(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Authorization")
	switch path.Base(r.URL.Path) { // some hosts tell a key back in other ways
	case "hints":
		w.Header().Set("Link", "<"+key+">")
		w.WriteHeader(http.StatusEarlyHints)
	case "moved":
		w.Header().Set("Location", "https://other.example.com/?key="+url.QueryEscape(key))
		w.WriteHeader(http.StatusFound)
	case "redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "cookie":
		http.SetCookie(w, &http.Cookie{Name: "key", Value: key})
	case "trailer":
		w.Header().Set("Trailer", "X-Key")
		defer w.Header().Set("X-Key", key)
	case "upgrade":
		upgrade(w, r)
		return
	}
	fmt.Fprintf(w, "%s %s%s\n", r.Method, r.Host, r.URL.Path)
	if key != "" {
		fmt.Fprintf(w, "with %s, %s\n", key, sum(key))
	}
}

// upgrade takes whatever protocol is asked for, and listens until the other one is done.
func upgrade(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(io.Discard, buf)
}

// sum says of a key which it is.
func sum(key string) string { return fmt.Sprintf("its sum is %x", sha256.Sum256([]byte(key))) }

// networked is a server in an internet.
type networked struct {
	*world
	sb *client.Sandbox
}

func newNetworked(t *testing.T, args ...string) *networked {
	t.Helper()
	return newNetworkedWith(t, nil, args...)
}

// newNetworkedWith is newNetworked with variables of the server.
func newNetworkedWith(t *testing.T, env []string, args ...string) *networked {
	t.Helper()
	return newInternet(t).server(env, args...)
}

// server starts a server there.
func (n *internet) server(env []string, args ...string) *networked {
	n.t.Helper()
	w := newWorld(n.t, args...)
	w.enter, w.env = n.enter, append([]string{"SSL_CERT_FILE=" + n.roots}, env...)
	w.start()
	return &networked{world: w}
}

// with is n in a part of its test.
func (n *networked) with(t *testing.T) *networked {
	w := *n.world
	w.t = t
	return &networked{world: &w, sb: n.sb}
}

// sh runs a command in the sandbox, and says how it ended if that was not well.
func (n *networked) sh(line string) string { n.t.Helper(); return n.as("", line) }

// as is sh for a user.
func (n *networked) as(user, line string) string {
	n.t.Helper()
	r, err := n.sb.RunCommand(n.ctx(), api.RunCommand{Command: line, User: user})
	if err != nil {
		n.t.Fatalf("%s: %v", line, err)
	}
	out := strings.TrimSpace(string(r.Out) + string(r.Err))
	if r.ExitCode != 0 {
		out = fmt.Sprintf("exit %d: %s", r.ExitCode, out)
	}
	return out
}

// says looks what commands say.
func (n *networked) says(what string, want map[string]string) {
	n.t.Helper()
	for line, part := range want {
		if got := n.sh(line); !strings.Contains(got, part) {
			n.t.Errorf("%s: %s says %q, not %q", what, line, got, part)
		}
	}
}

// A real machine, a real server and a real public host: what is allowed gets there, what
// is not is refused with the command that would allow it, and that takes effect at once;
// all of it also after kill -9 of the server, in a fork, and after a stop.
func TestNetwork(t *testing.T) {
	t.Parallel()
	n := newNetworked(t, "--providers", "gvisor")
	n.sb = n.create(api.CreateSandbox{Name: "web", Egress: &api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "api.example.com", Access: "read"}}}})
	const get, post = "curl -sS https://api.example.com/a", "curl -sS -d x https://api.example.com/a"
	allowed := map[string]string{
		get:                                "GET api.example.com/a",
		"curl -sS http://api.example.com/": "GET api.example.com/",
		`python3 -c 'import urllib.request as r; print(r.urlopen("https://api.example.com/p").read())'`: "GET api.example.com/p",
		post:                                    "skete egress allow web api.example.com",
		"curl -sS https://other.example.com/":   "skete egress allow web other.example.com",
		"curl -sS http://" + publicIP + "/":     "refuses it",
		"curl -sS http://169.254.169.254/":      "metadata of clouds",
		"curl -sS http://10.0.0.1/":             "a private address",
		"curl -sS http://[::1]:9/":              "exit 7",
		"curl -sS https://nothing.example.net/": "skete egress allow web nothing.example.net",
	}
	n.says("at first", allowed)
	if _, err := exec.LookPath("java"); err == nil { // the sandbox has the host's programs
		n.says("Java", map[string]string{javaGet: "GET api.example.com/j"})
	}
	p, err := n.sb.Network(n.ctx())
	if err != nil {
		t.Fatal(err)
	}
	p.Allow = append(p.Allow, api.NetworkRule{Host: "other.example.com", Methods: []string{"POST"}})
	if _, err = n.sb.SetNetwork(n.ctx(), p); err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{
		get: "GET api.example.com/a", "curl -sS -d x https://other.example.com/b": "POST other.example.com/b", "curl -sS https://other.example.com/": "refuses it",
	}
	n.says("when a host was allowed", changed)
	list, err := n.sb.NetworkLog(n.ctx(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(d api.NetworkDecision) bool {
		return !d.Allowed && d.Host == "other.example.com" && d.Method == "GET" && strings.Contains(d.Why, "POST")
	}) {
		t.Errorf("the decisions are %+v", list)
	}
	n.kill()
	n.start()
	n.sb = n.c.Sandbox(n.sb.ID)
	n.says("after kill -9 of the server", changed)

	parent := n.sb
	forks, err := n.sb.Fork(n.ctx(), api.ForkSandbox{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.ids[forks[0].ID], n.sb = true, n.c.Sandbox(forks[0].ID)
	n.says("in a fork", changed)
	if _, err := n.sb.SetNetwork(n.ctx(), api.NetworkPolicy{}); err != nil {
		t.Fatal(err)
	}
	n.says("in a fork that may nothing", map[string]string{get: "refuses it"})
	n.sb = parent
	n.says("whose parent may what it did", changed)

	if _, err := n.sb.Stop(n.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.sb.SetNetwork(n.ctx(), api.NetworkPolicy{Profile: "open"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.sb.Start(n.ctx()); err != nil {
		t.Fatal(err)
	}
	n.says("open, after a stop", map[string]string{
		post: "POST api.example.com/a", "curl -sS http://127.0.0.1:1/": "exit 7", "curl -sS http://169.254.169.254/": "metadata of clouds",
	})
}

// javaGet is a program without any setting.
const javaGet = `cat > /tmp/Get.java <<'end'
import java.net.URI;
import java.net.http.*;
class Get {
	public static void main(String[] a) throws Exception {
		var q = HttpRequest.newBuilder(URI.create("https://api.example.com/j")).build();
		System.out.println(HttpClient.newHttpClient().send(q, HttpResponse.BodyHandlers.ofString()).body());
	}
}
end
java -Xmx128m /tmp/Get.java`

// A host that a secret is granted for is sent it, whatever the program in the sandbox sends
// itself; no other host is, nor any without TLS, and no other sandbox sends it. Neither
// answers that repeat it, nor the sandbox's memory and disk, nor what the server keeps
// and logs show it. All of it holds after kill -9 of the server too.
func TestNetwork_secrets(t *testing.T) {
	t.Parallel()
	n := newNetworked(t, "--providers", "gvisor", "--log-level", "debug")
	value, canary := "hunter"+rand.Text(), canaryName+rand.Text()
	basic := base64.StdEncoding.EncodeToString([]byte("git:" + value))
	_, err := n.c.PutSecret(n.ctx(), "forge", api.PutSecret{Value: value, Grants: &[]api.SecretGrant{
		{Host: "api.example.com", As: "bearer", Env: "FORGE_TOKEN", Sandboxes: []string{"web"}},
		{Host: "files.example.com", As: "basic", Key: "git", Sandboxes: []string{"web"}},
	}})
	n.ok(err)
	allowed := &api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "api.example.com"}, {Host: "files.example.com"}, {Host: "other.example.com"}}}
	n.sb = n.create(api.CreateSandbox{Name: "web", Egress: allowed, MemoryMB: 256, DiskMB: 64, Metadata: map[string]string{"note": canary}})
	web := n.sb
	const get = "curl -sS https://api.example.com/a"
	granted := map[string]string{
		get: sum("Bearer " + value),
		"curl -sS -H \"Authorization: Bearer $FORGE_TOKEN\" https://api.example.com/a":                  sum("Bearer " + value),
		"curl -sS -u bob:mine https://files.example.com/a":                                              sum("Basic " + basic),
		`python3 -c 'import urllib.request as r; print(r.urlopen("https://api.example.com/p").read())'`: sum("Bearer " + value),
		"echo $FORGE_TOKEN": "skete-secret-forge",
		get + " | head -2":  strings.Repeat("*", len(value)),
	}
	without := func(when string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if got := n.sh(line); !strings.Contains(got, "example.com/") || strings.Contains(got, "its sum is") {
				t.Errorf("%s: %s says %q", when, line, got)
			}
		}
	}
	n.says("where it is granted", granted)
	without("where it is not", "curl -sS http://api.example.com/a", "curl -sS https://other.example.com/a")
	n.kill()
	n.start()
	n.sb = n.c.Sandbox(web.ID)
	n.says("after kill -9 of the server", granted)
	n.sb = n.create(api.CreateSandbox{Name: "db", Egress: allowed})
	without("in another sandbox", get)

	n.sb = n.c.Sandbox(web.ID)
	_, err = n.sb.StartProcess(n.ctx(), api.StartProcess{Key: "canary", Argv: []string{"sh", "-c", "read x; echo " + canary}})
	n.ok(err)
	n.sh("for i in 1 2 3; do " + get + " >> out.txt; done; env >> out.txt; echo " + canary + " >> out.txt")
	_, err = n.sb.History().Snapshot(n.ctx(), "named")
	n.ok(err)
	snap, err := n.sb.Snapshot(n.ctx(), api.CreateSnapshot{Name: "s"})
	n.ok(err)
	s := &search{t: t, canary: canary, places: map[string]bool{}, needles: map[string]string{"the secret": value, "the secret as basic sends it": basic[8:]}}
	list, err := n.c.Secrets(n.ctx())
	n.ok(err)
	told, err := json.Marshal(list)
	n.ok(err)
	s.bytes("list of secrets", "", told)
	for _, pid := range processesOf(n.sb.ID) {
		s.memory("memory", pid)
	}
	unix.Sync() // its file systems are mounted in the server's namespace alone
	n.stop()
	s.bytes("server's log", "", n.log.Bytes())
	for _, place := range []string{"store", "volumes", "sandboxes", "history"} {
		s.dir(place, filepath.Join(n.home, place))
	}
	s.dir("snapshots", filepath.Join(n.home, "sandboxes", "snapshots"))
	s.history("history", filepath.Join(n.home, "history", n.sb.ID, "store"))
	for _, place := range []string{"memory", "store", "volumes", "snapshots", "history"} {
		if !s.places[place] {
			t.Errorf("the search did not find the canary in %s: it can find nothing there", place)
		}
	}
	n.start()
	n.sb = n.c.Sandbox(web.ID)
	n.ok(n.c.DeleteSnapshot(n.ctx(), snap.ID))
	n.ok(n.c.DeleteSecret(n.ctx(), "forge"))
	without("when it is deleted", get)
}

// A sandbox of which nothing was said reads where packages are: those that the host's
// package managers are configured for, which it is told without their credentials, and
// those of the server's configuration; from the first second of a server on. Nothing else
// leaves it.
func TestNetwork_default(t *testing.T) {
	t.Parallel()
	n := newNetworkedWith(t, []string{"SKETE_HOST_REGISTRIES=true", "GOPROXY=https://bob:hunter2@files.example.com/go", "SKETE_REGISTRIES=http://other.example.com/packages"}, "--providers", "gvisor")
	n.sb = n.create(api.CreateSandbox{Name: "web"})
	want := map[string]string{
		"curl -sS $GOPROXY/x":                                                "GET files.example.com/go/x",
		"curl -sS http://other.example.com/packages/x":                       "GET other.example.com/packages/x",
		"curl -sS -d x $GOPROXY/x":                                           "skete egress allow web files.example.com",
		"curl -sS -T /etc/hosts $GOPROXY/x":                                  "skete egress allow web files.example.com",
		"curl -sS https://api.example.com/":                                  "skete egress allow web api.example.com",
		"curl -sS https://github.com/a/b/info/refs?service=git-receive-pack": "skete egress allow web github.com",
		"curl -sS -d x https://github.com/a/b/git-receive-pack":              "skete egress allow web github.com",
		"curl -sS https://github.com/a/b/info/refs?service=git-upload-pack":  "cannot be re", // it may, but is not there
		"echo $GOPROXY":                         "https://files.example.com/go",
		"env | grep -c hunter2":                 "exit 1",
		"curl -sS http://169.254.169.254/":      "metadata of clouds",
		"curl -sS https://nothing.example.net/": "skete egress allow web nothing.example.net",
	}
	n.says("at first", want)
	n.kill()
	n.start()
	n.sb = n.c.Sandbox(n.sb.ID)
	n.says("after kill -9 of the server", want)
	p, err := n.sb.Network(n.ctx())
	if err != nil || p.Profile != "default" || !slices.ContainsFunc(p.Usual, func(r api.NetworkRule) bool { return r.Host == "files.example.com" && r.Access == "read" }) {
		t.Errorf("%+v, %v", p, err)
	}
	p.Allow = append(p.Allow, api.NetworkRule{Host: "api.example.com"})
	if p, err = n.sb.SetNetwork(n.ctx(), p); err != nil || p.Profile != "default" {
		t.Fatal(p, err)
	}
	want["curl -sS https://api.example.com/"] = "GET api.example.com/"
	n.says("when a host was allowed", want)
}

// brought finds programs that a test has put into the workspace, where a machine has none.
const brought = "export PATH=/workspace/bin:$PATH; "

// registries are what a person does first, with what a machine has for it, and where it
// goes to.
var registries = []struct{ tool, user, has, line string }{
	{"pip", "", "python3 -m pip --version", "python3 -m pip download -q --disable-pip-version-check --no-deps -d /tmp/pip six && ls /tmp/pip/six-*"},
	{"npm", "", brought + "npm --version", brought + "mkdir -p /tmp/npm && cd /tmp/npm && npm install --no-audit --no-fund is-number && ls node_modules/is-number/package.json"},
	{"go", "", brought + "go version", brought + "mkdir -p /tmp/go && cd /tmp/go && export HOME=/tmp/go GOFLAGS=-mod=mod GOTOOLCHAIN=local && go mod init example.com/x && go get golang.org/x/text@v0.14.0 && grep golang.org/x/text go.sum"},
	{"cargo", "", brought + "cargo --version", brought + "mkdir -p /workspace/c/src && cd /workspace/c && touch src/lib.rs && " +
		"printf '[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n' > Cargo.toml && cargo -q add itoa && grep itoa Cargo.toml && cargo -q info itoa && find /tmp ~ -name 'itoa-*.crate' 2>/dev/null | grep itoa"},
	{"apt", "root", "touch /usr/written && apt-get --version", "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends jq && jq --version"},
}

// TestRegistries asks real registries, where this host reaches them.
func TestRegistries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.env = []string{"SKETE_HOST_REGISTRIES=true"}
	w.start()
	n := &networked{world: w}
	n.sb = n.create(api.CreateSandbox{Name: "web", Root: true})
	n.install()
}

// The same in machines with a root file system of their own, in which packages of the
// system are installed too.
func registriesInside(m *machines, provider string) {
	n := &networked{world: m.world}
	n.sb = n.create(api.CreateSandbox{Provider: provider, Template: "python", MemoryMB: 512, DiskMB: 512, Root: true})
	n.bringNode()
	n.bringGo()
	n.install()
	m.cli("vm", "clean", n.sb.ID)
}

// install fetches packages by all tools that the sandbox has.
func (n *networked) install() {
	n.t.Helper()
	set, err := registry.Ask(n.ctx(), "sh")
	if err != nil {
		n.t.Fatal(err)
	}
	n.bringCargo()
	for _, x := range registries {
		n.t.Run(x.tool, func(t *testing.T) {
			i := slices.IndexFunc(set.Sources, func(s registry.Source) bool { return s.Tool == x.tool })
			switch has := n.with(t).as(x.user, x.has); {
			case i < 0:
				t.Skip("skipped: the host has none, and so no registry for it")
			case !reaches(set.Sources[i].URL):
				t.Skip("skipped: its registry is not reached from here")
			case strings.HasPrefix(has, "exit"):
				t.Skipf("skipped: the machine has none: %.200s", has)
			}
			if out := n.with(t).as(x.user, x.line); strings.HasPrefix(out, "exit") {
				t.Errorf("%s: %s", x.line, out)
			}
		})
	}
	for _, r := range set.Sources {
		if out := n.sh("curl -sS -d x " + r.URL); !strings.Contains(out, "skete egress allow") {
			n.t.Errorf("a POST to %s: %s", r.URL, out)
		}
	}
}

// bring puts a file of the host into the sandbox's workspace.
func (n *networked) bring(from, to string) {
	n.t.Helper()
	f, err := os.Open(from)
	n.ok(err)
	defer f.Close()
	_, err = n.sb.Files().WriteFrom(n.ctx(), "/workspace/"+to, f, client.WriteOptions{Mode: 0o755, MakeParents: true})
	n.ok(err)
}

// bringNode puts the host's Node and npm into the sandbox, if npm is all in one place
// there, as it is where Node's own packages have put it.
func (n *networked) bringNode() {
	n.t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		return
	}
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.EvalSymlinks(npm)
	}
	dir := filepath.Dir(filepath.Dir(npm))
	if _, missing := os.Stat(filepath.Join(dir, "node_modules")); err != nil || missing != nil {
		return
	}
	n.bring(node, "bin/node")
	_, err = n.sb.Files().UploadDir(n.ctx(), dir, "/workspace/npm")
	n.ok(err)
	n.sh("ln -s /workspace/npm/bin/npm-cli.js /workspace/bin/npm")
}

// bringGo puts the host's Go into the sandbox, without its standard library: to fetch a
// module it needs none.
func (n *networked) bringGo() {
	n.t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	n.ok(err)
	root := strings.TrimSpace(string(out))
	n.bring(filepath.Join(root, "bin", "go"), "bin/go.real")
	n.bring(filepath.Join(root, "go.env"), "goroot/go.env") // has what is usual
	n.sh(`mkdir -p /workspace/goroot/src && printf '#!/bin/sh\nGOROOT=/workspace/goroot exec /workspace/bin/go.real "$@"\n' > /workspace/bin/go && chmod 755 /workspace/bin/go`)
}

// bringCargo puts the host's cargo into the sandbox, if it has one: it needs no compiler to
// fetch, but one that says which it is.
func (n *networked) bringCargo() {
	n.t.Helper()
	path, err := exec.LookPath("cargo")
	if err != nil {
		return
	}
	if real, err := exec.Command("rustup", "which", "cargo").Output(); err == nil { // else it is what rustup puts in its place
		path = strings.TrimSpace(string(real))
	}
	f, err := os.Open(path)
	n.ok(err)
	defer f.Close()
	version, err := exec.Command("rustc", "-vV").Output()
	n.ok(err)
	for name, content := range map[string]io.Reader{"cargo": f, "rustc": strings.NewReader("#!/bin/sh\ncat <<'end'\n" + string(version) + "end\n")} {
		_, err := n.sb.Files().WriteFrom(n.ctx(), "/workspace/bin/"+name, content, client.WriteOptions{Mode: 0o755, MakeParents: true})
		n.ok(err)
	}
}

// A recipe that asks for it installs from a package registry; nothing of that network is in
// the template.
func templateOfARegistry(m *machines) {
	set, err := registry.Ask(m.ctx(), "sh")
	m.ok(err)
	i := slices.IndexFunc(set.Sources, func(s registry.Source) bool { return s.Tool == "pip" })
	if i < 0 || !reaches(set.Sources[i].URL) {
		m.t.Skip("the registry of Python's packages cannot be reached from here")
	}
	recipe := m.t.TempDir()
	write := func(network string) {
		text := "from: python\n" + network + "run: [pip install --no-cache-dir --disable-pip-version-check --target /opt/lib idna]\nenv: {PYTHONPATH: /opt/lib}\n"
		m.ok(os.WriteFile(filepath.Join(recipe, "skete.template.yaml"), []byte(text), 0o600))
	}
	write("")
	if out, err := m.try("template", "build", recipe, "--name", "idna"); err == nil {
		m.t.Errorf("without a network: %s", out)
	}
	write("network: default\n")
	m.cli("template", "build", recipe, "--name", "idna")
	got := m.cli("vm", "temp", "--provider", "gvisor", "--template", "idna", "--network", "none", "--", "sh", "-c",
		`python3 -c 'import idna; print(idna.__file__)'; ls /etc/ssl/skete.pem /etc/skete 2>&1; grep -c "network of this sandbox" /etc/ssl/certs/ca-certificates.crt; grep -rl "Settings of this sandbox" /etc /.cargo 2>/dev/null; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt`)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) < 4 || lines[0] != "/opt/lib/idna/__init__.py" || !strings.Contains(lines[1], "No such file") || !slices.Contains(lines, "0") || strings.Contains(got, "/.cargo/config.toml") || lines[len(lines)-1] == "0" {
		m.t.Errorf("in the template there is:\n%s", got)
	}
}

// reaches reports whether this host gets an answer.
func reaches(url string) bool {
	c := http.Client{Timeout: 10 * time.Second}
	res, err := c.Get(url)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode < 500
}

// The same in a machine whose kernel is its own, by a server that is started anew in an
// internet, with the templates that it has.
func networkOfItsOwnKernel(m *machines) {
	net := newInternet(m.t)
	m.kill()
	m.enter, m.env = net.enter, []string{"SSL_CERT_FILE=" + net.roots}
	m.start()
	n := &networked{world: m.world}
	n.sb = n.create(api.CreateSandbox{
		Name: "own", Provider: "qemu", Template: "python", MemoryMB: 256, DiskMB: 128,
		Egress: &api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "api.example.com", Access: "read"}}},
	})
	want := map[string]string{
		"curl -sS https://api.example.com/a": "GET api.example.com/a",
		`python3 -c 'import urllib.request as r; print(r.urlopen("https://api.example.com/p").read())'`: "GET api.example.com/p",
		"curl -sS -d x https://api.example.com/a":                                                       "skete egress allow own api.example.com",
		"curl -sS http://169.254.169.254/":                                                              "metadata of clouds",
		"curl -sS http://[::1]:9/":                                                                      "exit 7",
	}
	n.says("with a kernel of its own", want)
	n.kill()
	n.start()
	n.sb = n.c.Sandbox(n.sb.ID)
	n.says("after kill -9 of the server", want)
	parent := n.sb
	forks, err := parent.Fork(n.ctx(), api.ForkSandbox{Count: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	n.ids[forks[0].ID], n.sb = true, n.c.Sandbox(forks[0].ID)
	n.says("in a fork by another server", map[string]string{"curl -sS https://api.example.com/a": "GET api.example.com/a"})
}

// A sandbox that was made without a network has none, and is given none.
func TestNetwork_none(t *testing.T) {
	t.Parallel()
	n := newNetworked(t, "--providers", "gvisor")
	n.sb = n.create(api.CreateSandbox{Network: "none"})
	n.says("without a network", map[string]string{
		"curl -sS http://api.example.com/":     "exit 6",
		"curl -sS http://" + publicIP + "/":    "exit 7",
		"cat /proc/net/dev | grep -c : ; true": "1",
	})
	_, err := n.sb.SetNetwork(n.ctx(), api.NetworkPolicy{Profile: "open"})
	if !errs.Is(err, errs.Unsupported) {
		t.Errorf("it is given one: %v", err)
	}
}

// inFork looks what a fork is like: a program that went on in it holds the key that it had,
// and what it uses is the fork's own.
func (n *networked) inFork(ask, token string) {
	n.t.Helper()
	parent := n.sb
	forks, err := parent.Fork(n.ctx(), api.ForkSandbox{Count: 1})
	n.ok(err)
	n.ids[forks[0].ID], n.sb = true, n.c.Sandbox(forks[0].ID)
	n.says("in a fork", map[string]string{"echo $OPENAI_API_KEY": token, ask: "Hello from the model."})
	if m, err := n.sb.Models(n.ctx()); err != nil || m.Used.Calls != 1 {
		n.t.Errorf("a fork has used %+v, %v", m, err)
	}
	n.sb = parent
}

// So it is in Google's API, whose key may be in the query, and at Google's own host.
func TestNetwork_google(t *testing.T) {
	t.Parallel()
	up := llmtest.NewServer(llmtest.Google{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("Hello from the model.")}, Usage: llm.Usage{Input: 50, Output: 7}, Piece: 100}))
	defer up.Close()
	w := newWorld(t, "--providers", "gvisor")
	w.withModelAt("google", up.URL)
	w.start()
	n := &networked{world: w}
	n.sb = n.create(api.CreateSandbox{Name: "web", Network: "none", Models: &api.ModelGrant{Models: []string{"fast"}, Tokens: 5_000}, MemoryMB: 256, DiskMB: 64})
	const ask = `curl -sS -H "x-goog-api-key: $GEMINI_API_KEY" -H 'Content-Type: application/json' "$GOOGLE_GEMINI_BASE_URL/v1beta/models/default:streamGenerateContent?alt=sse" -d '{"contents":[{"parts":[{"text":"Hi."}]}],"generationConfig":{"maxOutputTokens":50}}'`
	there := strings.ReplaceAll(ask, "$GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")
	n.says("where it is granted", map[string]string{
		ask:   "Hello from the model.",
		there: "Hello from the model.",
		strings.NewReplacer("x-goog-api-key: $GEMINI_API_KEY", "X-A: b", "alt=sse", "alt=sse&key=$GEMINI_API_KEY").Replace(there): "Hello from the model.",
		`curl -sS "$GOOGLE_GEMINI_BASE_URL/v1beta/models?key=$GEMINI_API_KEY"`:                                                    `"name":"models/fast"`,
		strings.Replace(ask, "key: $GEMINI_API_KEY", "key: mine", 1):                                                              "the key is not this sandbox's",
		strings.Replace(ask, "default", "gemini-9", 1):                                                                            "may not use the model",
		strings.Replace(there, `"contents"`, `"tools":[{"googleSearch":{}}],"contents"`, 1):                                       "googleSearch",
	})
	for _, seen := range up.Seen() {
		if seen.Key != vendorKey || seen.Model != "fast-1" {
			t.Errorf("the model's server sees %q, %q", seen.Key, seen.Model)
		}
	}
	if m, err := n.sb.Models(n.ctx()); err != nil || m.Used.Calls != 3 || m.Used.Tokens != 3*57 {
		t.Errorf("it has used %+v, %v", m.Used, err)
	}
	if out := n.sh("env; cat /proc/*/environ"); strings.Contains(out, vendorKey) {
		t.Errorf("the sandbox has the host's key: %s", out)
	}
}

// A program in a machine uses a model of the host by the libraries' own variables: with
// the key of the sandbox, which is worth nothing in another one, and never with the
// host's. Its calls are counted, also over kill -9 of the server.
func TestNetwork_models(t *testing.T) {
	t.Parallel()
	const key = "sk-the-key-of-the-host"
	up := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("Hello from the model.")}, Usage: llm.Usage{Input: 50, Output: 7}}))
	defer up.Close()
	w := newWorld(t, "--providers", "gvisor")
	w.env = []string{"MODEL_KEY=" + key}
	w.ok(os.MkdirAll(w.home, 0o700))
	w.ok(os.WriteFile(filepath.Join(w.home, "skete.yaml"), []byte("models: [{name: fast, vendor: compat, id: fast-1, url: "+up.URL+", key_env: MODEL_KEY, output_tokens_max: 100}]\n"), 0o600))
	w.start()
	n := &networked{world: w}
	n.sb = n.create(api.CreateSandbox{Name: "web", Network: "none", Models: &api.ModelGrant{Models: []string{"fast"}, Tokens: 2_000}, MemoryMB: 256, DiskMB: 64})
	const ask = `curl -sS -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' $OPENAI_BASE_URL/chat/completions -d '{"model":"default","max_tokens":50,"messages":[{"role":"user","content":"Hi."}]}'`
	answers := map[string]string{
		ask: "Hello from the model.",
		`curl -sS -H "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/models`: `"id":"fast"`,
		strings.ReplaceAll(ask, "$OPENAI_BASE_URL", "https://api.openai.com/v1"):      "Hello from the model.",
		strings.Replace(ask, "Bearer $OPENAI_API_KEY", "Bearer mine", 1):              "the key is not this sandbox's",
		strings.Replace(ask, "default", "gpt-9", 1):                                   "may not use the model",
		"curl -sS https://other.example.com/":                                         "skete egress allow",
	}
	n.says("where it is granted", answers)
	n.kill()
	n.start()
	n.sb = n.c.Sandbox(n.sb.ID)
	n.says("after kill -9 of the server", answers)
	for _, seen := range up.Seen() {
		if seen.Key != key || seen.Model != "fast-1" {
			t.Errorf("the model's server sees %q, %q", seen.Key, seen.Model)
		}
	}
	if out := n.sh("env; cat /proc/*/environ"); strings.Contains(out, key) {
		t.Errorf("the sandbox has the host's key: %s", out)
	}
	token := n.sh("echo $OPENAI_API_KEY")
	long := strings.Replace(ask, "Hi.", strings.Repeat("a word ", 1000), 1)
	n.says("at the end of the budget", map[string]string{long: "budget has"})
	n.inFork(ask, token)
	grant := func(g api.SetSandboxModels) api.SandboxModels {
		m, err := n.sb.SetModels(n.ctx(), g)
		w.ok(err)
		return m
	}
	if m := grant(api.SetSandboxModels{Models: []string{"fast"}, Tokens: 100_000}); m.Used.Calls < 2 || m.Used.Tokens < 2*57 || m.Tokens != 100_000 {
		t.Errorf("it has used %+v", m)
	}
	n.says("with a larger budget", map[string]string{long: "Hello from the model."})
	grant(api.SetSandboxModels{Models: []string{}})
	n.says("without a grant", map[string]string{ask: "exit 6"})
	grant(api.SetSandboxModels{Models: []string{"fast"}})
	n.says("with one again", answers)
	n.sb = n.create(api.CreateSandbox{Name: "db", Models: &api.ModelGrant{Models: []string{"fast"}}, MemoryMB: 256, DiskMB: 64})
	n.says("in another sandbox", map[string]string{strings.Replace(ask, "$OPENAI_API_KEY", token, 1): "the key is not this sandbox's"})
	n.sb = n.create(api.CreateSandbox{Name: "no", MemoryMB: 256, DiskMB: 64})
	n.says("where none is granted", map[string]string{
		"curl -sS http://models.skete.internal/openai/v1/models": "exit 6", "curl -sS https://api.openai.com/v1/models": "skete egress allow",
	})
}
