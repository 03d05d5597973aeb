package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/guest/capture"
)

// This file runs programs as they are, with no setting of a proxy, in a network
// namespace that is captured as a machine is.

const (
	programEnv = "PROXY_TEST_PROGRAM" // what the namespace runs
	socketEnv  = "PROXY_TEST_SOCKET"  // where its streams go
	resolvEnv  = "PROXY_TEST_RESOLV"  // shown in place of /etc/resolv.conf
)

// runCaptured is the namespace's side: it captures, and runs the program.
func runCaptured() int {
	c, err := capture.Start(capture.Config{
		Open: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", os.Getenv(socketEnv))
		},
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 100
	}
	defer c.Close()
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mounts:", err)
		return 100
	}
	for from, to := range map[string]string{os.Getenv(resolvEnv): "/etc/resolv.conf", os.Getenv("SSL_CERT_FILE"): "/etc/ssl/certs/ca-certificates.crt"} {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			fmt.Fprintln(os.Stderr, to, err)
			return 100
		}
	}
	cmd := exec.Command("/bin/sh", "-c", os.Getenv(programEnv))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// program runs a shell script in a captured namespace and returns what it printed.
func (w *world) program(script string) (out string, err error) {
	w.t.Helper()
	dir := w.t.TempDir()
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	must(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go w.proxy.Stream(ctx, conn)
		}
	}()
	defer func() {
		cancel()
		ln.Close()
		<-done
	}()
	resolv := filepath.Join(dir, "resolv.conf")
	must(w.t, os.WriteFile(resolv, []byte("nameserver "+capture.Resolver+"\noptions timeout:5\n"), 0o644))
	bundle := filepath.Join(dir, "ca.pem")
	must(w.t, os.WriteFile(bundle, w.ca.PEM(), 0o644))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), programEnv+"="+script, socketEnv+"="+socket, resolvEnv+"="+resolv, "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"SSL_CERT_FILE="+bundle, "CURL_CA_BUNDLE="+bundle, "GIT_SSL_CAINFO="+bundle, "REQUESTS_CA_BUNDLE="+bundle, "NODE_EXTRA_CA_CERTS="+bundle)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func need(t *testing.T, names ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("namespaces with files of their own need root")
	}
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("%s is not installed: %v", n, err)
		}
	}
}

func TestClients(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "ok.example"}, {Host: "read.example", Access: egress.Read}}})
	page := func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "%s %s", r.Method, r.Host) }
	w.serve(443, page, "ok.example", "read.example", "other.example")
	w.serve(80, page, "plain.example")
	for name, c := range map[string]struct{ needs, script, want string }{
		"curl":                  {"curl", "curl -sS https://ok.example/", "GET ok.example"},
		"curl, HTTP/1.1":        {"curl", "curl -sS --http1.1 https://ok.example/", "GET ok.example"},
		"curl, refused":         {"curl", "curl -sS -o out -w '%{http_code} ' https://other.example/; cat out", "403 skete: the network policy of this sandbox refuses it: no rule allows other.example, port 443.\nA person can allow it with: skete egress allow web other.example\n"},
		"curl, a POST":          {"curl", "curl -sS -d x https://read.example/ | head -1", "skete: the network policy of this sandbox refuses it: of read.example only this is allowed: read.example read.\n"},
		"curl, another port":    {"curl", "curl -sS -m 5 http://ok.example:81/ | head -1", "skete: the network policy of this sandbox refuses it: no rule allows ok.example, port 81.\n"},
		"curl, metadata":        {"curl", "curl -sS -m 5 http://169.254.169.254/latest/meta-data/ | head -1", "skete: the network policy of this sandbox refuses it: 169.254.169.254 is a link-local address, where metadata of clouds is, which is always refused.\n"},
		"curl, an unknown name": {"curl", "curl -sS http://db/ || true", "curl: (6) Could not resolve host: db\n"},
		"wget":                  {"wget", "wget -q -O - https://ok.example/", "GET ok.example"},
		"Python":                {"python3", `python3 -c 'import urllib.request as u; print(u.urlopen("https://ok.example/").read().decode(), end="")'`, "GET ok.example"},
		"Node":                  {"node", `node -e 'fetch("https://ok.example/").then(r => r.text()).then(t => process.stdout.write(t))'`, "GET ok.example"},
		"Node, https":           {"node", `node -e 'require("https").get("https://ok.example/", r => r.pipe(process.stdout))'`, "GET ok.example"},
	} {
		t.Run(name, func(t *testing.T) {
			need(t, c.needs)
			if got, err := w.program(c.script); got != c.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// Git reads over HTTPS where a rule allows reading, and cannot push.
func TestClients_git(t *testing.T) {
	need(t, "git")
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "work")
	must(t, os.WriteFile(filepath.Join(dir, "work/f"), []byte("content\n"), 0o644))
	git("-C", "work", "add", "f")
	git("-C", "work", "commit", "-qm", "one")
	git("clone", "-q", "--bare", "work", "repo.git")
	git("-C", "repo.git", "config", "http.receivepack", "true")
	path, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"}, Stderr: io.Discard}
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "git.example", Access: egress.Read}}})
	w.serve(443, backend.ServeHTTP, "git.example")
	out, err := w.program(`git clone -q https://git.example/repo.git c && cat c/f && cd c && git config user.email a@b && git config user.name a && echo more >> f && git commit -qam two && git push 2>&1 | grep -o "error: 403"`)
	if out != "content\nerror: 403\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	w.policy(egress.Policy{Allow: []egress.Rule{{Host: "git.example"}}})
	out, err = w.program(`git clone -q https://git.example/repo.git c && cd c && git config user.email a@b && git config user.name a && echo more >> f && git commit -qam two && git push -q && echo pushed`)
	if out != "pushed\n" || err != nil {
		t.Errorf("with all allowed: %q, %v", out, err)
	}
}
