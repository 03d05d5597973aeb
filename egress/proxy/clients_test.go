package proxy_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
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
	"github.com/skete-dev/skete/secret"
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
		"SSL_CERT_FILE="+bundle, "CURL_CA_BUNDLE="+bundle, "GIT_SSL_CAINFO="+bundle, "REQUESTS_CA_BUNDLE="+bundle, "NODE_EXTRA_CA_CERTS="+bundle,
		"PIP_CERT="+bundle, "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore", "NPM_CONFIG_UPDATE_NOTIFIER=false")
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

// Programs work unmodified where a secret is sent for them: they get what is for its holder
// alone, and see stars where the host says it again.
func TestClients_secrets(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "vault.example"}, {Host: "packages.example"}, {Host: "store.example"}}})
	where := func(host string) egress.Rule { return egress.Rule{Host: host} }
	w.keep("forge", secret.Grant{Where: where("vault.example"), As: secret.Bearer}, secret.Grant{Where: where("packages.example"), As: secret.Basic, Key: "me"})
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(rw, "%s for %s", r.Method, canary)
	}, "vault.example")
	wheel, tarball := pythonPackage(t), nodePackage(t)
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != canary {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/simple/greets/":
			rw.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(rw, `<a href="/greets-1.0-py3-none-any.whl">greets-1.0-py3-none-any.whl</a>`)
		case "/greets-1.0-py3-none-any.whl":
			_, _ = rw.Write(wheel)
		case "/greets":
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"name":"greets","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"greets","version":"1.0.0","dist":{"tarball":"https://packages.example/greets.tgz","shasum":"%x"}}}}`, sha1.Sum(tarball))
		case "/greets.tgz":
			_, _ = rw.Write(tarball)
		default:
			http.NotFound(rw, r)
		}
	}, "packages.example")
	stars := "GET for " + strings.Repeat("*", len(canary))
	need(t)
	goGet := goProgram(t)
	for name, c := range map[string]struct{ needs, script, want string }{
		"curl":             {"curl", "curl -sS https://vault.example/", stars},
		"curl, a POST":     {"curl", "curl -sS -d x https://vault.example/", "POST" + stars[3:]},
		"wget":             {"wget", "wget -q -O - https://vault.example/", stars},
		"Python, urllib":   {"python3", `python3 -c 'import urllib.request as u; print(u.urlopen("https://vault.example/").read().decode(), end="")'`, stars},
		"Python, requests": {"pip3", `python3 -c 'import pip._vendor.requests as r; print(r.get("https://vault.example/").text, end="")'`, stars},
		"Node, fetch":      {"node", `node -e 'fetch("https://vault.example/").then(r => r.text()).then(t => process.stdout.write(t))'`, stars},
		"Node, https":      {"node", `node -e 'require("https").get("https://vault.example/", r => r.pipe(process.stdout))'`, stars},
		"Go":               {"go", goGet + " https://vault.example/", stars},
		"Go, the system's": {"go", "unset SSL_CERT_FILE; " + goGet + " https://vault.example/", stars},
		"Java":             {"javac", "cat > Get.java <<'end'\n" + javaSource + "end\njava Get.java https://vault.example/", stars},
		"pip":              {"pip3", `pip3 install -q --target lib --disable-pip-version-check --no-input --index-url https://packages.example/simple greets && PYTHONPATH=lib python3 -c 'import greets; print(greets.text, end="")'`, "hello"},
		"npm":              {"npm", `npm install --silent --no-audit --no-fund --cache ./cache --registry https://packages.example/ greets >/dev/null && node -e 'process.stdout.write(require("greets"))'`, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			need(t, c.needs)
			if got, err := w.program(c.script); got != c.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// goSource reads a page as Go does by itself.
const goSource = `package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	io.Copy(os.Stdout, answer.Body)
}
`

// goProgram is goSource as a static program: the toolchain is not asked in the namespace,
// where its cache would be empty.
func goProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, out := filepath.Join(dir, "get.go"), filepath.Join(dir, "get")
	must(t, os.WriteFile(source, []byte(goSource), 0o600))
	cmd := exec.Command("go", "build", "-o", out, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}

// javaSource reads a page. Java has a store of certificates of its own and has to be given
// the file that others find.
const javaSource = `import java.io.FileInputStream;
import java.net.URI;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;

class Get {
	public static void main(String[] args) throws Exception {
		var store = KeyStore.getInstance(KeyStore.getDefaultType());
		store.load(null, null);
		try (var in = new FileInputStream(System.getenv("SSL_CERT_FILE"))) {
			for (var c : CertificateFactory.getInstance("X.509").generateCertificates(in))
				store.setCertificateEntry("c" + store.size(), c);
		}
		var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
		trust.init(store);
		var tls = SSLContext.getInstance("TLS");
		tls.init(null, trust.getTrustManagers(), null);
		var client = HttpClient.newBuilder().sslContext(tls).build();
		System.out.print(client.send(HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
	}
}
`

// A program signs with words that stand for keys, and the host's requests are signed with
// those: curl's own signature, checked as the service does.
func TestClients_aws(t *testing.T) {
	need(t, "curl")
	const keys = "AKIDREAL:the/real+key"
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "store.example"}}})
	w.hold("cloud", keys, secret.Grant{Where: egress.Rule{Host: "store.example"}, As: secret.AWS})
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization")
		again := r.Clone(r.Context())
		if err := w.secrets.Load().Held("default", secret.User{}, egress.Request{Host: "store.example", Port: 443, Method: r.Method, Path: r.URL.Path})[0].Sign(again); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		switch {
		case said == "":
			_, _ = io.WriteString(rw, "public")
		case said != again.Header.Get("Authorization") || !strings.Contains(said, "Credential=AKIDREAL/"):
			http.Error(rw, "the signature does not match", http.StatusForbidden)
		default:
			fmt.Fprintf(rw, "%s %s by AKIDREAL", r.Method, r.URL.Path)
		}
	}, "store.example")
	const sign = "curl -sS --aws-sigv4 aws:amz:eu-west-1:s3 -u skete-secret-cloud:skete-secret-cloud "
	for name, c := range map[string]struct{ script, want string }{
		"get":        {sign + "'https://store.example/bucket/a%20b?list-type=2&prefix=x%2Fy'", "GET /bucket/a b by AKIDREAL"},
		"put":        {sign + "-X PUT -d body https://store.example/bucket/key", "PUT /bucket/key by AKIDREAL"},
		"not signed": {"curl -sS https://store.example/bucket/key", "public"},
		"a link":     {"curl -sS 'https://store.example/?X-Amz-Algorithm=AWS4-HMAC-SHA256'", "skete: for store.example: links that are signed cannot be signed anew: let the program sign its requests by a header\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := w.program(c.script); got != c.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// pythonPackage is a wheel of a module that greets.
func pythonPackage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{"greets.py", "text = 'hello'\n"},
		{"greets-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greets\nVersion: 1.0\n"},
		{"greets-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greets-1.0.dist-info/RECORD", "greets.py,,\ngreets-1.0.dist-info/METADATA,,\ngreets-1.0.dist-info/WHEEL,,\ngreets-1.0.dist-info/RECORD,,\n"},
	} {
		e, err := z.Create(f[0])
		must(t, err)
		_, err = io.WriteString(e, f[1])
		must(t, err)
	}
	must(t, z.Close())
	return b.Bytes()
}

// nodePackage is the tar of one.
func nodePackage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	a := tar.NewWriter(g)
	for _, f := range [][2]string{{"package/package.json", `{"name":"greets","version":"1.0.0","main":"index.js"}`}, {"package/index.js", "module.exports = 'hello'\n"}} {
		must(t, a.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := io.WriteString(a, f[1])
		must(t, err)
	}
	must(t, a.Close())
	must(t, g.Close())
	return b.Bytes()
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
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "git" || password != canary {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(rw, r)
	}, "private.example")
	out, err := w.program(`git clone -q https://git.example/repo.git c && cat c/f && cd c && git config user.email a@b && git config user.name a && echo more >> f && git commit -qam two && git push 2>&1 | grep -o "error: 403"`)
	if out != "content\nerror: 403\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	w.policy(egress.Policy{Allow: []egress.Rule{{Host: "git.example"}, {Host: "private.example"}}})
	out, err = w.program(`git clone -q https://git.example/repo.git c && cd c && git config user.email a@b && git config user.name a && echo more >> f && git commit -qam two && git push -q && echo pushed`)
	if out != "pushed\n" || err != nil {
		t.Errorf("with all allowed: %q, %v", out, err)
	}
	w.keep("forge", secret.Grant{Where: egress.Rule{Host: "private.example"}, As: secret.Basic, Key: "git"})
	out, err = w.program(`git clone -q https://private.example/repo.git p && cd p && git config user.email a@b && git config user.name a && echo most >> f && git commit -qam three && git push -q && echo pushed; cat .git/config | grep -c canary`)
	if !strings.HasPrefix(out, "pushed\n0\n") {
		t.Errorf("with a secret: %q, %v", out, err)
	}
}
