package e2e

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
)

// loginHost is a token endpoint, and a host that takes its tokens. A refresh token is good
// once, and the access token beside it as long.
type loginHost struct {
	password string
	begin    string // of all tokens

	mu      sync.Mutex
	access  map[string]bool
	refresh map[string]string // the access token beside it
	given   []string          // all tokens
	forms   []url.Values
	sent    map[string]string // Authorization, by host
}

func newLoginHost(n *internet) *loginHost {
	l := &loginHost{password: "hunter" + rand.Text(), begin: "real" + rand.Text(), access: map[string]bool{}, refresh: map[string]string{}, sent: map[string]string{}}
	n.hosts.Store("login.example.com", http.HandlerFunc(l.token))
	for _, host := range []string{"api.example.com", "other.example.com"} {
		n.hosts.Store(host, http.HandlerFunc(l.call))
	}
	return l
}

// token is the token endpoint.
func (l *loginHost) token(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = r.ParseForm()
	l.forms = append(l.forms, r.PostForm)
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, why string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
	}
	if user, password, _ := r.BasicAuth(); user != "app" || password != l.password {
		refuse(http.StatusUnauthorized, "invalid_client")
		return
	}
	if r.PostForm.Get("grant_type") == "refresh_token" {
		old := r.PostForm.Get("refresh_token")
		if _, ok := l.refresh[old]; !ok {
			refuse(http.StatusBadRequest, "invalid_grant")
			return
		}
		delete(l.access, l.refresh[old])
		delete(l.refresh, old)
	}
	access, refresh := l.begin+"-access-"+rand.Text(), l.begin+"-refresh-"+rand.Text()
	l.access[access], l.refresh[refresh] = true, access
	l.given = append(l.given, access, refresh)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600})
}

// call is a host, which says what it was sent.
func (l *loginHost) call(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := r.Header.Get("Authorization")
	l.sent[r.Host] = said
	if word, _ := strings.CutPrefix(said, "Bearer "); !l.access[word] {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "unknown: %s\n", said)
		return
	}
	fmt.Fprintf(w, "known: %s, %s\n", said, sum(said))
}

// last are the tokens that were given last, and the form for which.
func (l *loginHost) last() (access, refresh string, form url.Values) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[len(l.given)-2], l.given[len(l.given)-1], l.forms[len(l.forms)-1]
}

func (l *loginHost) sentTo(host string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[host]
}

// oauthClient is a program in the sandbox that logs in: with a library that people use, or
// without.
type oauthClient struct {
	name, has, file, port string
	install               func(dir string) []string // the library into a directory; nil = there is none
	access, refresh       string                    // real ones that it has, by its placeholders
}

func oauthClients() []*oauthClient {
	return []*oauthClient{
		{name: "urllib", has: "python3", file: "plain.py", port: "7001"},
		{name: "requests-oauthlib", has: "python3", file: "session.py", port: "7002", install: func(dir string) []string {
			return []string{"python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", dir, "requests-oauthlib"}
		}},
		{name: "openid-client", has: "node", file: "openid.mjs", port: "7003", install: func(dir string) []string {
			return []string{"npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, "openid-client"}
		}},
	}
}

//go:embed testdata/oauth
var oauthPrograms embed.FS

// begin brings a client into the sandbox, with its library from the registry that this host
// is configured for, and starts it there.
func (n *networked) begin(c *oauthClient) {
	n.t.Helper()
	if _, err := exec.LookPath(c.has); err != nil {
		n.t.Skipf("skipped: the host has no %s, and so the sandbox has none", c.has)
	}
	dir := n.t.TempDir()
	if c.install != nil {
		ctx, cancel := patience.Context(context.Background(), 2*time.Minute)
		defer cancel()
		argv := c.install(dir)
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			n.t.Skipf("skipped: %s cannot be installed from here: %v\n%s", c.name, err, out)
		}
	}
	text, err := oauthPrograms.ReadFile("testdata/oauth/" + c.file)
	n.ok(err)
	n.ok(os.WriteFile(filepath.Join(dir, c.file), text, 0o644))
	to := "/workspace/" + c.name
	_, err = n.sb.Files().UploadDir(n.ctx(), dir, to)
	n.ok(err)
	_, err = n.sb.StartProcess(n.ctx(), api.StartProcess{Key: c.name, Argv: []string{c.has, to + "/" + c.file, c.port}, Cwd: to, Background: true})
	n.ok(err)
	n.sh("until curl -s http://127.0.0.1:" + c.port + "/none; do sleep 0.1; done")
}

// tells tells a client what to do.
func (n *networked) tells(c *oauthClient, what string) string {
	n.t.Helper()
	return n.sh("curl -sS 'http://127.0.0.1:" + c.port + "/" + what + "'")
}

const placeholderWord = "skete-token-"

// gets lets a client log in, or renew what it has.
func (n *networked) gets(l *loginHost, c *oauthClient, what string) (word string) {
	n.t.Helper()
	had := c.refresh
	word = n.tells(c, what)
	if !strings.HasPrefix(word, placeholderWord) {
		n.t.Fatalf("%s: %s says %q", c.name, what, word)
	}
	var form url.Values
	c.access, c.refresh, form = l.last()
	if what == "refresh" && form.Get("refresh_token") != had {
		n.t.Errorf("%s: the token endpoint is sent %v", c.name, form)
	}
	return word
}

const callAPI = "call?https://api.example.com/a"

// calls looks that the host is sent a client's real token, and that the client does not see it.
func (n *networked) calls(l *loginHost, c *oauthClient, when string) {
	n.t.Helper()
	got := n.tells(c, callAPI)
	want := "known: Bearer " + strings.Repeat("*", len(c.access)) + ", " + sum("Bearer "+c.access)
	if got != want || l.sentTo("api.example.com") != "Bearer "+c.access {
		n.t.Errorf("%s: %s says %q; the host was sent %q", when, c.name, got, l.sentTo("api.example.com"))
	}
}

// Programs in a sandbox log in by OAuth, call a host with what they got and renew it, with
// libraries that people use. The hosts see real tokens, and the programs words in their
// place, which are good for this sandbox at this host alone, also after kill -9 of the
// server, until the secret is deleted. No token is in the sandbox's memory and disk, nor in
// what the server keeps and logs.
func TestNetwork_oauth(t *testing.T) {
	t.Parallel()
	net := newInternet(t)
	l := newLoginHost(net)
	n := net.server(nil, "--providers", "gvisor", "--log-level", "debug")
	canary := canaryName + rand.Text()
	file := filepath.Join(t.TempDir(), "password")
	n.ok(os.WriteFile(file, []byte(l.password), 0o600))
	(&machines{n.world}).cli("secret", "set", "mail", "--oauth", "login.example.com/oauth/token", "--basic", "app", "--host", "api.example.com", "--from-file", file)
	allowed := &api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "login.example.com"}, {Host: "api.example.com"}, {Host: "other.example.com"}}}
	web := n.create(api.CreateSandbox{Name: "web", Egress: allowed, MemoryMB: 512, DiskMB: 128, Metadata: map[string]string{"note": canary}})
	n.sb = web
	var all []*oauthClient
	words := map[*oauthClient]string{}
	for _, c := range oauthClients() {
		t.Run(c.name, func(t *testing.T) {
			in := n.with(t)
			in.begin(c)
			words[c] = in.gets(l, c, "login")
			all = append(all, c)
		})
	}
	if len(all) == 0 {
		t.FailNow() // each says why
	}

	n.kill()
	n.start()
	n.sb = n.c.Sandbox(web.ID)
	for _, c := range all {
		n.calls(l, c, "after kill -9 of the server")
		words[c] = n.gets(l, c, "refresh")
		n.calls(l, c, "with a new one")
		n.tells(c, "call?https://other.example.com/a")
		if sent := l.sentTo("other.example.com"); sent != "Bearer "+words[c] {
			t.Errorf("%s: another host is sent %q", c.name, sent)
		}
	}
	one := all[0]
	elsewhere := func(where string) {
		t.Helper()
		for _, c := range all {
			n.sh("curl -sS -H 'Authorization: Bearer " + words[c] + "' https://api.example.com/a")
			if sent := l.sentTo("api.example.com"); sent != "" {
				t.Errorf("%s: the host is sent %q", where, sent)
			}
			n.sh("curl -sS -d grant_type=refresh_token -d refresh_token=" + words[c] + " https://login.example.com/oauth/token")
			if _, _, form := l.last(); form.Get("refresh_token") != words[c] {
				t.Errorf("%s: the token endpoint is sent %v", where, form)
			}
		}
	}
	db := n.create(api.CreateSandbox{Name: "db", Egress: allowed})
	n.sb = db
	elsewhere("another sandbox")
	forks, err := n.c.Sandbox(web.ID).Fork(n.ctx(), api.ForkSandbox{Count: 1})
	n.ok(err)
	n.ids[forks[0].ID], n.sb = true, n.c.Sandbox(forks[0].ID)
	elsewhere("a fork")
	n.tells(one, callAPI) // by the program that went on in it
	if sent := l.sentTo("api.example.com"); sent != "" {
		t.Errorf("a fork's program: the host is sent %q", sent)
	}
	fork := n.sb
	inFork := *one
	n.gets(l, &inFork, "login")
	n.calls(l, &inFork, "a fork that has logged in")

	n.sb = n.c.Sandbox(web.ID)
	for _, c := range all {
		n.calls(l, c, "when others had tried")
	}
	n.seekTokens(l, canary, web.ID, fork.ID)

	n.sb = n.c.Sandbox(web.ID)
	n.calls(l, one, "before its end")
	(&machines{n.world}).cli("secret", "rm", "mail")
	for _, c := range all {
		n.tells(c, callAPI)
		if sent := l.sentTo("api.example.com"); sent != "Bearer "+words[c] {
			t.Errorf("without the secret: the host is sent %q", sent)
		}
	}
}

// seekTokens looks for what the hosts know, in all that there is of sandboxes, and starts the
// server anew.
func (n *networked) seekTokens(l *loginHost, canary string, ids ...string) {
	n.t.Helper()
	basic := base64.StdEncoding.EncodeToString([]byte("app:" + l.password))
	s := &search{t: n.t, canary: canary, places: map[string]bool{}, needles: map[string]string{"the secret": l.password, "the secret as it is sent": basic[4:], "a token": l.begin}}
	_, err := n.sb.StartProcess(n.ctx(), api.StartProcess{Key: "canary", Argv: []string{"sh", "-c", "read x; echo " + canary}})
	n.ok(err)
	n.sh("env > out.txt; curl -sS 'http://127.0.0.1:7001/" + callAPI + "' >> out.txt; echo " + canary + " >> out.txt")
	_, err = n.sb.History().Snapshot(n.ctx(), "named")
	n.ok(err)
	snap, err := n.sb.Snapshot(n.ctx(), api.CreateSnapshot{Name: "s"})
	n.ok(err)
	for _, id := range ids {
		for _, pid := range processesOf(id) {
			s.memory("memory", pid)
		}
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
			n.t.Errorf("the search did not find the canary in %s: it can find nothing there", place)
		}
	}
	n.start()
	n.ok(n.c.DeleteSnapshot(n.ctx(), snap.ID))
}
