package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// E2B says where a service is that speaks E2B's API, another skete included.
type E2B struct {
	// URL of the REST API.
	URL *url.URL
	// SandboxURL is one address for what goes to machines, told apart by headers; nil:
	// each machine has a name of its own beneath Domain.
	SandboxURL *url.URL
	// Domain is that of machines whose service names none.
	Domain   string
	Key      string
	Template string
}

// e2b is a Service.
type e2b struct {
	E2B
	api     caller
	machine caller
}

// NewE2B returns a service that speaks E2B's API.
func NewE2B(c E2B) Service {
	return &e2b{
		E2B: c, api: newCaller(func(h http.Header) { h.Set("X-Api-Key", c.Key) }),
		machine: newCaller(func(http.Header) {}), // the key is for the API alone
	}
}

const (
	envdPort = 49983
	// guestTag is the name of the guest among a machine's programs.
	guestTag = "skete-guest"
)

// Close implements Service.
func (s *e2b) Close() {
	s.api.close()
	s.machine.close()
}

// CanPause implements Service.
func (s *e2b) CanPause() bool { return true }

func (s *e2b) rest(method, first string, parts ...string) call {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u := s.URL.JoinPath(append([]string{first}, parts...)...)
	return call{method: method, name: method + " /" + strings.Join(append([]string{first}, parts...), "/"), url: u}
}

// Notes implements Service.
func (s *e2b) Notes() []string { return nil }

// Create implements Service. Nothing leaves the machine: what may is for the server to
// say, and it cannot there.
func (s *e2b) Create(ctx context.Context, labels map[string]string, keep time.Duration) (Place, error) {
	var made struct {
		SandboxID          string `json:"sandboxID"`
		EnvdAccessToken    string `json:"envdAccessToken"`
		TrafficAccessToken string `json:"trafficAccessToken"`
		Domain             string `json:"domain"`
	}
	err := s.api.json(ctx, s.rest(http.MethodPost, "sandboxes"), map[string]any{
		"templateID": s.Template, "timeout": seconds(keep), "metadata": labels, "secure": true, "allow_internet_access": false,
	}, &made)
	if err != nil {
		return Place{}, err
	}
	p := Place{ID: made.SandboxID, Access: made.EnvdAccessToken, Traffic: made.TrafficAccessToken, Domain: made.Domain}
	return p, p.check()
}

// findPages bounds how many pages of a list are read.
const findPages = 100

// Find implements Service.
func (s *e2b) Find(ctx context.Context, labels map[string]string) (ids []string, err error) {
	q := url.Values{}
	for name, value := range labels {
		q.Set(url.QueryEscape(name), url.QueryEscape(value))
	}
	for token, page := "", 0; page < findPages; page++ {
		r := s.rest(http.MethodGet, "v2/sandboxes")
		r.url.RawQuery = url.Values{"metadata": {q.Encode()}, "state": {"running,paused"}, "limit": {"100"}, "nextToken": {token}}.Encode()
		if token == "" {
			r.url.RawQuery = url.Values{"metadata": {q.Encode()}, "state": {"running,paused"}, "limit": {"100"}}.Encode()
		}
		var list []struct {
			SandboxID string            `json:"sandboxID"`
			Metadata  map[string]string `json:"metadata"`
		}
		if token, err = s.page(ctx, r, &list); err != nil {
			return nil, err
		}
		for _, one := range list {
			if has(one.Metadata, labels) && plain(one.SandboxID, idBytesMax) { // a service that ignores the filter lists those of others
				ids = append(ids, one.SandboxID)
			}
		}
		if token == "" {
			return ids, nil
		}
	}
	return nil, errs.New(errs.Limit, "the service's list of machines does not end")
}

func has(all, some map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}

func (s *e2b) page(ctx context.Context, r call, out any) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := s.api.send(ctx, r)
	if err != nil {
		return "", late(r, err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, answerBytesMax)).Decode(out); err != nil {
		return "", errs.Wrap(errs.Unavailable, err, "the service's answer cannot be read (%s)", r.name)
	}
	return res.Header.Get("X-Next-Token"), nil
}

// Look implements Service.
func (s *e2b) Look(ctx context.Context, p Place) (paused bool, err error) {
	var d struct {
		State string `json:"state"`
	}
	err = s.api.json(ctx, s.rest(http.MethodGet, "sandboxes", p.ID), nil, &d)
	return d.State == "paused", err
}

// Keep implements Service.
func (s *e2b) Keep(ctx context.Context, p Place, keep time.Duration) error {
	return s.api.json(ctx, s.rest(http.MethodPost, "sandboxes", p.ID, "timeout"), map[string]any{"timeout": seconds(keep)}, nil)
}

// Kill implements Service.
func (s *e2b) Kill(ctx context.Context, id string) error {
	err := s.api.json(ctx, s.rest(http.MethodDelete, "sandboxes", id), nil, nil)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// Pause implements Service.
func (s *e2b) Pause(ctx context.Context, p Place) error {
	err := s.api.json(ctx, s.rest(http.MethodPost, "sandboxes", p.ID, "pause"), map[string]any{}, nil)
	if errs.Is(err, errs.Conflict) { // it is paused
		return nil
	}
	return err
}

// Resume implements Service.
func (s *e2b) Resume(ctx context.Context, p Place, keep time.Duration) error {
	return s.api.json(ctx, s.rest(http.MethodPost, "sandboxes", p.ID, "connect"), map[string]any{"timeout": seconds(keep)}, nil)
}

// at is where a port of a machine is, and what a request for it says.
func (s *e2b) at(p Place, port int) (*url.URL, http.Header, error) {
	h := http.Header{}
	h.Set("E2b-Traffic-Access-Token", p.Traffic)
	if p.Traffic == "" {
		h.Del("E2b-Traffic-Access-Token")
	}
	if s.SandboxURL != nil {
		h.Set("E2b-Sandbox-Id", p.ID)
		h.Set("E2b-Sandbox-Port", strconv.Itoa(port))
		return s.SandboxURL, h, nil
	}
	domain := p.Domain
	if domain == "" {
		domain = s.Domain
	}
	if domain == "" {
		return nil, nil, errs.New(errs.Invalid, "the service does not say under which name its machines are").
			WithHint("set remote.domain or remote.sandbox_url")
	}
	return &url.URL{Scheme: "https", Host: strconv.Itoa(port) + "-" + p.ID + "." + domain, Path: "/"}, h, nil
}

// Address implements Service.
func (s *e2b) Address(_ context.Context, p Place, port int) (*url.URL, http.Header, error) {
	return s.at(p, port)
}

func (s *e2b) envd(method string, p Place, name string) (call, error) {
	u, h, err := s.at(p, envdPort)
	if err != nil {
		return call{}, err
	}
	h.Set("X-Access-Token", p.Access)
	return call{method: method, name: method + " /" + name + " in the machine", url: u.JoinPath(name), header: h}, nil
}

// Put implements Service.
func (s *e2b) Put(ctx context.Context, p Place, home, name string, data []byte) error {
	r, err := s.envd(http.MethodPost, p, "files")
	if err != nil {
		return err
	}
	r.url.RawQuery = url.Values{"path": {path.Join(home, name)}}.Encode()
	r.body, r.kind = bytes.NewReader(data), "application/octet-stream"
	res, err := s.machine.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, answerBytesMax))
	return err
}

// event is one of a program's.
type event struct {
	Start *struct {
		PID uint32 `json:"pid"`
	} `json:"start"`
	Data *struct {
		Stdout []byte `json:"stdout"`
		Stderr []byte `json:"stderr"`
	} `json:"data"`
	End *struct {
		ExitCode int    `json:"exitCode"`
		Exited   bool   `json:"exited"`
		Status   string `json:"status"`
	} `json:"end"`
}

// follow calls a method of envd whose answer is a stream of events, and each with them
// until it returns true.
func (s *e2b) follow(ctx context.Context, p Place, method string, in any, each func(event) (done bool)) error {
	r, err := s.envd(http.MethodPost, p, "process.Process/"+method)
	if err != nil {
		return err
	}
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r.body, r.kind = bytes.NewReader(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)), "application/connect+json"
	r.header.Set("Connect-Protocol-Version", "1")
	r.header.Set("Keepalive-Ping-Interval", "20")
	ctx, cancel := context.WithCancel(ctx) // the program outlives its stream
	defer cancel()
	res, err := s.machine.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return readEvents(r.name, res.Body, each)
}

// endFlag marks the last message of a stream.
const endFlag = 2

// readEvents reads the messages of a stream: a byte of flags, four of the length, JSON.
func readEvents(name string, in io.Reader, each func(event) (done bool)) error {
	broke := func(err error) error {
		return errs.Wrap(errs.Unavailable, err, "the service of the sandbox's machine does not answer any more (%s: %s)", name, cause(err))
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return broke(err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > answerBytesMax {
			return errs.New(errs.Unavailable, "the service sends a message of %d bytes (%s)", size, name)
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(in, data); err != nil {
			return broke(err)
		}
		if head[0]&endFlag != 0 {
			return ended(name, data)
		}
		var m struct {
			Event event `json:"event"`
		}
		if head[0] != 0 || json.Unmarshal(data, &m) != nil {
			return errs.New(errs.Unavailable, "the service's stream cannot be read (%s)", name)
		}
		if each(m.Event) {
			return nil
		}
	}
}

// ended reads the last message of a stream.
func ended(name string, data []byte) error {
	var last struct {
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &last); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the service's stream cannot be read (%s)", name)
	}
	if last.Error == nil {
		return errs.New(errs.Unavailable, "the service ended a stream early (%s)", name)
	}
	class := map[string]errs.Class{
		"not_found": errs.NotFound, "invalid_argument": errs.Invalid, "unauthenticated": errs.Denied, "permission_denied": errs.Denied,
		"resource_exhausted": errs.Limit,
	}[last.Error.Code]
	if class == "" {
		class = errs.Unavailable
	}
	return errs.New(class, "the service refuses (%s: %.40s, %.200q)", name, last.Error.Code, last.Error.Message)
}

// shell is what Start is asked for.
func shell(script, tag string) map[string]any {
	in := map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false}
	if tag != "" {
		in["tag"] = tag
	}
	return in
}

// Run implements Service.
func (s *e2b) Run(ctx context.Context, p Place, script string) (string, error) {
	var out, said bytes.Buffer
	var code *int
	err := s.follow(ctx, p, "Start", shell(script, ""), func(e event) bool {
		if d := e.Data; d != nil && out.Len()+said.Len()+len(d.Stdout)+len(d.Stderr) <= outputBytesMax {
			out.Write(d.Stdout)
			said.Write(d.Stderr)
		}
		if e.End != nil {
			code = &e.End.ExitCode
		}
		return e.End != nil
	})
	if err == nil && *code != 0 {
		err = errs.New(errs.Unavailable, "a command in the service's machine ended with %d: %.200q", *code, said.String())
	}
	return out.String(), err
}

// Start implements Service.
func (s *e2b) Start(ctx context.Context, p Place, script string) (string, error) {
	return guestTag, s.follow(ctx, p, "Start", shell(script, guestTag), func(e event) bool { return e.Start != nil })
}

// Await implements Service.
func (s *e2b) Await(ctx context.Context, p Place, program string) (how string, err error) {
	in := map[string]any{"process": map[string]any{"tag": program}}
	err = s.follow(ctx, p, "Connect", in, func(e event) bool {
		if e.End != nil {
			how = "status " + strconv.Itoa(e.End.ExitCode)
			if e.End.Status != "" {
				how += ", " + clip(e.End.Status)
			}
		}
		return e.End != nil
	})
	if errs.Is(err, errs.NotFound) { // one that has ended is forgotten after a moment
		return "the service does not tell how", nil
	}
	return how, err
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "?") }
