package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/workspace/object"
)

// search looks for what must be found nowhere, and for a canary that must be.
type search struct {
	t       *testing.T
	needles map[string]string // by what they are
	canary  string
	console string          // a canary that was written to a machine's console alone
	places  map[string]bool // where the canary was, and the "console"
}

const canaryName = "canary"

func (s *search) longest() int {
	n := len(s.canary)
	for _, v := range s.needles {
		n = max(n, len(v))
	}
	return n
}

func (s *search) bytes(place, detail string, data []byte) {
	s.t.Helper()
	if bytes.Contains(data, []byte(s.canary)) {
		s.places[place] = true
	}
	if s.console != "" && strings.HasPrefix(place, "monitor") && bytes.Contains(data, []byte(s.console)) {
		s.places["console"] = true
	}
	for name, v := range s.needles {
		if i := bytes.Index(data, []byte(v)); i >= 0 {
			s.t.Errorf("%s is in %s (%s): …%q…", name, place, detail, data[max(i-40, 0):min(i+20, len(data))])
		}
	}
}

// stream is bytes for what is too long for the memory.
func (s *search) stream(place, detail string, r io.Reader) {
	s.t.Helper()
	buf, kept := make([]byte, 4<<20), 0
	for {
		n, err := r.Read(buf[kept:])
		s.bytes(place, detail, buf[:kept+n])
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.t.Errorf("%s (%s): %v", place, detail, err)
			}
			return
		}
		tail := min(s.longest(), kept+n)
		copy(buf, buf[kept+n-tail:kept+n])
		kept = tail
	}
}

// file searches a file without its holes, which may be larger than the disk.
func (s *search) file(place, path string) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	defer f.Close()
	const seekData, seekHole = 3, 4
	for at := int64(0); ; {
		begin, err := f.Seek(at, seekData)
		if err != nil {
			return // no more data
		}
		if at, err = f.Seek(begin, seekHole); err != nil {
			s.t.Error(err)
			return
		}
		s.stream(place, path, io.NewSectionReader(f, begin, at-begin))
	}
}

// memory searches what a process has in memory now: in files without a name
// that it has open, which gVisor and QEMU keep the guest's memory in, and apart
// from that its own, QEMU's ring with the console for one.
func (s *search) memory(place string, pid int) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		name := filepath.Join(proc, "fd", fd.Name())
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "/memfd:") {
			s.file(place, name)
		}
	}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	mem, merr := os.Open(filepath.Join(proc, "mem"))
	pages, perr := os.Open(filepath.Join(proc, "pagemap"))
	if err := errors.Join(err, merr, perr); err != nil {
		s.t.Errorf("process %d: %v", pid, err)
		return
	}
	defer mem.Close()
	defer pages.Close()
	for line := range strings.Lines(string(maps)) {
		var begin, end uint64
		var perms string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &begin, &end, &perms); err != nil || perms[0] != 'r' ||
			strings.Contains(line, "memfd:") || strings.Contains(line, "[v") {
			continue
		}
		s.region("monitor's "+place, pid, mem, pages, begin, end)
	}
	env, _ := os.ReadFile(filepath.Join(proc, "environ"))
	line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
	s.bytes("environment", proc, append(env, line...))
}

// region searches the pages of a mapping that are there.
func (s *search) region(place string, pid int, mem, pages *os.File, begin, end uint64) {
	const page, step = 4096, 4 << 20
	entries, data, tail := make([]byte, step/page*8), make([]byte, step), []byte(nil)
	for at := begin; at < end; at += step {
		size := min(step, end-at)
		n, _ := pages.ReadAt(entries[:size/page*8], int64(at/page*8))
		there := false
		for i := 0; i+8 <= n; i += 8 {
			there = there || binary.LittleEndian.Uint64(entries[i:])>>62 != 0 // present or swapped
		}
		if !there {
			tail = nil
			continue
		}
		if n, _ = mem.ReadAt(data[:size], int64(at)); n == 0 {
			continue
		}
		whole := append(tail, data[:n]...)
		s.bytes(place, fmt.Sprintf("process %d at %x", pid, at), whole)
		tail = bytes.Clone(whole[max(0, len(whole)-s.longest()):])
	}
}

// dir searches all files beneath a directory.
func (s *search) dir(place, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			s.file(place, path)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// history searches the contents of all revisions, which are compressed.
func (s *search) history(place, store string) {
	_, err := object.Inspect(filepath.Join(store, "objects"),
		func(f object.Found) { s.bytes(place, f.Hash.String(), f.Content) },
		func(d object.Damage) {
			if !d.Torn {
				s.t.Errorf("the history is damaged: %+v", d)
			}
		})
	if err != nil {
		s.t.Error(err)
	}
	s.file(place+"'s list", filepath.Join(store, "revisions"))
}

// disk searches what a machine keeps of the past on its disk: of a copy, as
// the next boot would find it.
func (s *search) disk(place, image string) {
	dir := s.t.TempDir()
	copied, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.Mkdir(at, 0o700); err != nil {
		s.t.Fatal(err)
	}
	for _, line := range [][]string{{"cp", "--sparse=always", image, copied}, {"mount", "-o", "loop", copied, at}} {
		if out, err := exec.CommandContext(s.t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	defer func() {
		if err := syscall.Unmount(at, 0); err != nil {
			s.t.Error(err)
		}
	}()
	s.history(place, filepath.Join(at, layout.History))
}

// processesOf are those of a sandbox's machine and what they started.
func processesOf(id string) (pids []int) {
	mine := map[int]bool{}
	parents := map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		mine[pid] = strings.Contains(string(line), id)
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			var state string
			var parent int
			if _, err := fmt.Sscan(rest, &state, &parent); err == nil {
				parents[pid] = parent
			}
		}
	}
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if mine[p] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// visitor is a browser without a screen: what it has is cookies, by host.
type visitor struct {
	w       *world
	http    *http.Client
	cookies map[string]map[string]string
}

func newVisitor(w *world, address string) *visitor {
	tr := &http.Transport{}
	w.t.Cleanup(tr.CloseIdleConnections)
	v := &visitor{w: w, cookies: map[string]map[string]string{}}
	v.http = &http.Client{
		Transport:     rewritten{tr, address},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return v
}

// rewritten goes to one address, whatever name is asked for.
type rewritten struct {
	*http.Transport
	address string
}

func (r rewritten) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.Host, out.URL.Host = req.URL.Host, r.address
	return r.Transport.RoundTrip(out)
}

// do sends a request with the host's cookies and keeps what it is given.
func (v *visitor) do(method, address string, form url.Values, header http.Header) (status int, body string, h http.Header) {
	v.w.t.Helper()
	req, err := http.NewRequestWithContext(v.w.ctx(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		v.w.t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	if method != http.MethodGet {
		req.Header.Set("Origin", "http://"+req.URL.Host)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range v.cookies[req.URL.Host] {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	res, err := v.http.Do(req)
	if err != nil {
		v.w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		v.w.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		if v.cookies[req.URL.Host] == nil {
			v.cookies[req.URL.Host] = map[string]string{}
		}
		v.cookies[req.URL.Host][c.Name] = c.Value
	}
	return res.StatusCode, string(text), res.Header
}

// onlyCookie is the one that a host has set.
func (v *visitor) onlyCookie(host string) (name, value string) {
	v.w.t.Helper()
	if len(v.cookies[host]) != 1 {
		v.w.t.Fatalf("%s set %d cookies", host, len(v.cookies[host]))
	}
	for name, value = range v.cookies[host] {
	}
	return name, value
}

const echo = `
import http.server, os
seen = []
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = self.requestline + "\n" + str(self.headers)
        seen.append(text)
        with open("/workspace/requests.log", "a") as f:
            f.write(text)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
http.server.ThreadingHTTPServer(("127.0.0.1", 5173), H).serve_forever()
`

const looking = `
replies:
  - calls:
      - name: execute
        args: {command: 'TOOLS; env > env.txt; cat /proc/[0-9]*/environ >> env.txt; echo CANARY; echo done > agent.txt'}
else: {text: Done.}
`

// applets are what a template with busybox alone needs to be used as any other.
const applets = `for i in env cat tr; do eval "$i() { busybox $i \"\$@\"; }"; done`

// smallEcho is echo for a template that has busybox alone.
const smallEcho = `#!/bin/busybox sh
while read -r l; do
	l=${l%$(printf "\r")}
	[ -z "$l" ] && break
	echo "$l" >> /workspace/requests.log
done
printf "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
`

// searched is a kind of sandbox whose every place is searched.
type searched struct {
	spec  api.CreateSandbox
	echo  string   // a server that notes what it is asked
	serve []string // starts it
	tools string   // a line of shell, so that the others are understood
	// machine: it has a kernel of its own, which keeps its history on its disk.
	machine bool
	places  []string // where the canary must be found
}

var goOn = regexp.MustCompile(`<a href="([^"]+)"`)

// What lets a person in stays on the host: a browser logs in with a key, works
// by a preview, lets an agent work, and no part of the sandbox, nothing that it
// leaves behind and no file of the server has the key, the login or the
// visit, nor a code that let it in.
func TestSecretsStayOutOfTheSandbox(t *testing.T) {
	secretsStayOut(t, "gvisor", searched{
		spec: api.CreateSandbox{Language: "python", MemoryMB: 256, DiskMB: 64}, echo: echo, serve: []string{"python3", "/workspace/echo"},
		tools: ":", places: []string{"memory", "snapshots"},
	})
}

// The same of a machine with a kernel of its own: its memory is a file of
// QEMU's, its console a ring in QEMU's own memory, its history is twice there.
func TestSecretsStayOutOfTheSandbox_machineOfQEMU(t *testing.T) {
	needEmulator(t)
	secretsStayOut(t, "gvisor,qemu", searched{
		spec: api.CreateSandbox{Provider: "qemu", Template: "small", MemoryMB: 256, DiskMB: 64, Root: true}, echo: smallEcho,
		serve: []string{"/bin/busybox", "nc", "-ll", "-p", "5173", "-e", "/workspace/echo"},
		tools: applets, machine: true, places: []string{"memory", "monitor's memory", "console", "snapshots", "machine's history"},
	})
}

func secretsStayOut(t *testing.T, providers string, kind searched) {
	canary := canaryName + rand.Text()
	address := listenAddress(t)
	w := newWorld(t, "--providers", providers, "--log-level", "debug", "--listen", address)
	if kind.machine {
		(&machines{w}).kernel()
	}
	script := strings.NewReplacer("CANARY", canary, "TOOLS", kind.tools).Replace(looking)
	b := newBrainOn(w, map[string]string{"look": script}, nil, "")
	if kind.machine {
		(&machines{w}).pull()
	}
	_, port, _ := net.SplitHostPort(address)
	app := "localhost:" + port

	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "person"})
	b.ok(err)
	v := newVisitor(b.world, address)
	if status, body, _ := v.do("POST", "http://"+app+"/login", url.Values{"key": {made.Secret}, "next": {"/"}}, nil); status != http.StatusSeeOther {
		t.Fatalf("login: %d %s", status, body)
	}
	loginName, login := v.onlyCookie(app)
	status, body, _ := v.do("GET", "http://"+app+"/v1/login", nil, http.Header{"Sec-Fetch-Site": {"same-origin"}})
	var who api.Login
	if err := json.Unmarshal([]byte(body), &who); err != nil || status != http.StatusOK || who.By != "login" {
		t.Fatalf("who is asking: %d %s", status, body)
	}

	keyed, err := client.New(client.Config{URL: "http://" + address, Key: made.Secret})
	b.ok(err)
	defer keyed.Close()
	made2, err := keyed.CreateSandbox(b.ctx(), kind.spec)
	b.ok(err)
	id := made2.ID
	b.ids[id] = true
	sb := keyed.Sandbox(id)
	_, err = sb.Files().Write(b.ctx(), "/workspace/echo", []byte(kind.echo), client.WriteOptions{Mode: 0o755})
	b.ok(err)
	_, err = sb.StartProcess(b.ctx(), api.StartProcess{Key: "echo", Argv: kind.serve})
	b.ok(err)

	// The way of a browser into a preview; then requests as hostile or careless
	// pages would make them, with everything that the person has.
	status, body, _ = v.do("GET", "http://"+app+"/preview/5173-"+strings.TrimPrefix(id, "sbx_")+"?to=/", nil, http.Header{"Sec-Fetch-Site": {"same-origin"}})
	m := goOn.FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("the way to a preview: %d %s", status, body)
	}
	enter, err := url.Parse(html.UnescapeString(m[1]))
	b.ok(err)
	if status, body, _ = v.do("GET", enter.String(), nil, nil); status != http.StatusSeeOther {
		t.Fatalf("enter: %d %s", status, body)
	}
	visitName, visit := v.onlyCookie(enter.Host)
	preview := "http://" + enter.Host + "/"
	b.until("the app answers", func() error {
		if status, body, _ := v.do("GET", preview, nil, http.Header{"Accept": {"*/*"}}); status != http.StatusOK || body != "ok" {
			return fmt.Errorf("%d %.200s", status, body)
		}
		return nil
	})
	v.cookies[enter.Host][loginName] = login
	v.cookies[enter.Host]["theirs"] = canary
	for _, h := range []http.Header{
		{"Authorization": {"Bearer " + made.Secret}}, {"X-Api-Key": {made.Secret}}, {"Referer": {enter.String()}},
	} {
		if status, body, _ := v.do("GET", preview+"page", nil, h); status != http.StatusOK {
			t.Fatalf("with %v: %d %s", h, status, body)
		}
	}

	// Commands, an agent, revisions and a snapshot, all asked for with the key.
	out, err := sb.Command("sh", "-c", kind.tools+"; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; cat /workspace/requests.log").Output(b.ctx())
	b.ok(err)
	run, err := keyed.StartRun(b.ctx(), api.StartRun{Task: "Look around: " + canary, Model: "look", Sandbox: id})
	b.ok(err)
	b.wait(run.ID, "succeeded")
	_, err = sb.History().Snapshot(b.ctx(), "named")
	b.ok(err)
	snap, err := sb.Snapshot(b.ctx(), api.CreateSnapshot{Name: "s"})
	b.ok(err)

	console := ""
	if kind.machine {
		console = "console" + rand.Text()
		speak := sb.Command("sh", "-c", "echo "+console+" > /dev/console")
		speak.Spec.User = "root"
		b.ok(speak.Run(b.ctx()))
		// What went through the monitor before has been overwritten by what came after.
		b.ok(sb.Command("sh", "-c", "yes "+canary+" | head -c 262144").Run(b.ctx()))
	}

	s := &search{t: t, canary: canary, console: console, places: map[string]bool{}, needles: map[string]string{
		"the key": made.Secret, "the key without its beginning": made.Secret[len(made.Secret)-32:], "the login": login,
		"the login's cookie": loginName + "=", "the visit": visit, "the visit's cookie": visitName + "=", "the code": enter.Query().Get("code"),
	}}
	for name, x := range s.needles {
		if len(x) < 8 {
			t.Fatalf("%s is %q: too short to be looked for", name, x)
		}
	}
	s.bytes("requests and environment", "as the sandbox sees them", out)
	log, err := json.Marshal(b.events(run.ID))
	b.ok(err)
	s.bytes("thread", run.ID, log)
	pids := processesOf(id)
	if len(pids) == 0 {
		t.Fatal("the sandbox has no process")
	}
	for _, pid := range pids {
		s.memory("memory", pid)
	}
	if kind.machine { // its disk stands still
		_, err := sb.Pause(b.ctx())
		b.ok(err)
	}
	syncHome(t, b.home) // what the kernel has of the disk goes into its image
	b.stop()
	s.bytes("server's log", "", b.log.Bytes())
	if !strings.Contains(b.log.String(), `route="POST /v1/sandboxes"`) {
		t.Error("the server's log does not even have the requests: it is no log")
	}
	for _, place := range []string{"store", "volumes", "sandboxes", "history"} {
		s.dir(place, filepath.Join(b.home, place))
	}
	s.dir("snapshots", filepath.Join(b.home, "sandboxes", "snapshots"))
	s.history("history", filepath.Join(b.home, "history", id, "store"))
	if kind.machine {
		s.disk("machine's history", filepath.Join(b.home, "volumes", id, "image"))
	}
	for _, place := range append(kind.places, "requests and environment", "thread", "store", "volumes", "history") {
		if !s.places[place] {
			t.Errorf("the search did not find the canary in %s: it can find nothing there", place)
		}
	}
	t.Logf("%d processes; the canary was in %v", len(pids), s.places)
	b.start()
	b.ok(b.c.DeleteSnapshot(b.ctx(), snap.ID))
}

// listenAddress is one that a server can have again.
func listenAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
