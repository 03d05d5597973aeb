package vercel

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/problem"
)

// Their working directory is that of the sandbox, however it is written; nothing else
// moves.
func TestPlace(t *testing.T) {
	for _, x := range []struct{ dir, name, want string }{
		{"", "", "."},
		{"", "a/b", "a/b"},
		{"/vercel/sandbox", "a", "a"},
		{"/vercel/sandbox/d", "a", "d/a"},
		{"d", "a", "d/a"},
		{"/tmp", "/vercel/sandbox", "."},
		{"/tmp", "/vercel//sandbox/./a", "a"},
		{"/tmp", "/vercel/sandbox/../x", "/vercel/sandbox/../x"},
		{"/tmp", "/vercel/sandboxes", "/vercel/sandboxes"},
		{"/", "workspace/a", "a"},
		{"/", "vercel/sandbox/a", "a"},
		{"/", "/workspaces", "/workspaces"},
		{"", "/tmp/a", "/tmp/a"},
		{"/tmp/d", "../a", "/tmp/a"},
	} {
		if got := place("/workspace", x.dir, x.name); got != x.want {
			t.Errorf("%q in %q: %q, want %q", x.name, x.dir, got, x.want)
		}
	}
	if got := place("/", "", "/vercel/sandbox/a"); got != "a" {
		t.Error(got)
	}
}

func TestPolicy(t *testing.T) {
	host := func(names ...string) (rules []egress.Rule) {
		for _, n := range names {
			rules = append(rules, egress.Rule{Host: n})
		}
		return rules
	}
	for text, want := range map[string]egress.Policy{
		`{"mode":"allow-all"}`: {Profile: egress.Open},
		`{"mode":"deny-all"}`:  {Profile: egress.None},
		`{}`:                   {Profile: egress.None},
		`{"allow":[]}`:         {Profile: egress.None},
		`{"allow":["API.example.com","*.a.example"]}`:            {Profile: egress.None, Allow: host("api.example.com", "*.a.example")},
		`{"allow":{"b.example":[],"a.example":[]}}`:              {Profile: egress.None, Allow: host("a.example", "b.example")},
		`{"allow":["*"],"subnets":{"deny":["198.51.100.7/32"]}}`: {Profile: egress.Open, Deny: host("198.51.100.7")},
		`{"subnets":{"allow":["198.51.100.7/32"]}}`:              {Profile: egress.None, Allow: host("198.51.100.7")},
	} {
		var n networkPolicy
		if err := unmarshal([]byte(text), &n); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := n.policy()
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, d)
		}
	}
	for _, bad := range []string{
		`{"mode":"custom"}`, `{"mode":"deny-all","allow":["a.example"]}`, `{"allow":["a b"]}`, `{"allow":[""]}`, `{"allow":7}`, `{"deny":["a.example"]}`,
		`{"subnets":{"allow":["10.0.0.0/8"]}}`, `{"subnets":{"deny":["a.example"]}}`, `{"subnets":{"only":[]}}`, `{"allow":["10.0.0.1"]}`,
		`{"allow":{"a.example":[{"transform":[{"headers":{"a":"b"}}]}]}}`, `{"allow":{"a.example":[{"response":{"statusCode":403}}]}}`,
	} {
		var n networkPolicy
		err := unmarshal([]byte(bad), &n)
		if err == nil {
			_, err = n.policy()
		}
		if !errs.Is(err, errs.Invalid) {
			t.Errorf("%s became %+v, %v", bad, n, err)
		}
	}
}

// A policy is shown as it was asked for; the server's profile has no words there.
func TestPolicyOf(t *testing.T) {
	for name, x := range map[string]struct {
		spec sandbox.Spec
		want *policyView
	}{
		"the default": {sandbox.Spec{Network: egress.Default}, nil},
		"everything":  {sandbox.Spec{Network: egress.Open}, &policyView{Mode: allowAll}},
		"nothing":     {sandbox.Spec{Network: egress.None}, &policyView{Mode: denyAll}},
		"some": {
			sandbox.Spec{Network: egress.None, Egress: &egress.Policy{Allow: []egress.Rule{{Host: "a.example"}, {Host: "198.51.100.7"}}, Deny: []egress.Rule{{Host: "2001:db8::1"}}}},
			&policyView{Mode: custom, AllowedDomains: []string{"a.example"}, AllowedCIDRs: []string{"198.51.100.7/32"}, DeniedCIDRs: []string{"2001:db8::1/128"}},
		},
	} {
		if d := cmp.Diff(x.want, policyOf(x.spec)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// What a client asks for is what the manager is asked for.
func TestRequest(t *testing.T) {
	var n newSandbox
	err := unmarshal([]byte(`{"projectId":"p","name":"a","ports":[3000,80],"timeout":60000,"resources":{"vcpus":2},"runtime":"node22","persistent":false,
		"networkPolicy":{"mode":"deny-all"},"env":{"A":"b"},"tags":{"x":"y"},"snapshotExpiration":0,"mounts":{}}`), &n)
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.request(sandbox.Limits{IdleTimeoutMax: time.Hour})
	want := sandbox.CreateRequest{Spec: sandbox.Spec{
		Name: "a", Env: map[string]string{"A": "b"}, TTL: time.Minute, IdleTimeout: time.Hour, Template: "node22", CPUs: 2, MemoryMB: 4096, Workdir: "/workspace", Network: "none",
		Metadata: map[string]string{"x": "y", metaPorts: "3000 80", metaTimeout: "60000", metaRuntime: "node22"},
	}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	n = newSandbox{}
	if got, err = n.request(sandbox.Limits{}); err != nil || !got.Spec.Persist || got.Spec.TTL != 5*time.Minute || got.Spec.Network != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, persistent := range []bool{true, false} {
		n = newSandbox{Source: &source{Type: "snapshot", SnapshotID: "snp_aaaaaaaaaaaaaaaaaaaa"}, settings: settings{Persistent: &persistent}}
		got, err = n.request(sandbox.Limits{})
		if err != nil || got.From == "" || got.Spec.Persist != persistent || got.Spec.Ephemeral == persistent {
			t.Errorf("%+v, %v", got, err)
		}
		got.Spec.IdleTimeout = 0
		changes := sandbox.Changes{Metadata: got.Spec.Metadata, TTL: got.Spec.TTL, Persist: got.Spec.Persist, Ephemeral: got.Spec.Ephemeral}
		if !changes.Covers(got.Spec) {
			t.Errorf("a snapshot cannot be made with %+v", got.Spec)
		}
	}
}

// Tags are replaced whole, and nothing but tags.
func TestNote(t *testing.T) {
	meta := map[string]string{"old": "1", metaPorts: "80", metaRuntime: "node22"}
	settings{Tags: map[string]string{"new": "2"}, Ports: []int{}}.note(meta)
	if d := cmp.Diff(map[string]string{"new": "2", metaRuntime: "node22"}, meta); d != "" {
		t.Error(d)
	}
}

// Pieces of a stream give the text that the whole gives, and never a broken character
// that was whole.
func TestText(t *testing.T) {
	whole := []byte("aüb€c😀d\xff\xfee\xc3")
	for size := 1; size <= len(whole); size++ {
		var parts text
		var got strings.Builder
		for piece := range slices.Chunk(whole, size) {
			got.WriteString(parts.take(piece))
		}
		got.WriteString(parts.end())
		// How many bad bytes become one mark depends on the pieces.
		if s := strings.ReplaceAll(got.String(), "\uFFFD\uFFFD", "\uFFFD"); s != "aüb€c😀d\uFFFDe\uFFFD" {
			t.Errorf("in pieces of %d: %q", size, s)
		}
	}
}

// packed is a tar of headers; files have their name as content.
func packed(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, h.Name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	var got []string
	err := unpack(bytes.NewReader(packed(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "vercel/sandbox/d/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "vercel/sandbox/d/a", Mode: 0o4755},
		tar.Header{Typeflag: tar.TypeReg, Name: "tmp/./" + strings.Repeat("x", 200), Mode: 0o600},
	)), "/workspace", "/", func(n int, e entry) error {
		content, err := io.ReadAll(e.content)
		got = append(got, fmt.Sprintf("%d %s %v %o %d", n, e.name, e.dir, e.mode, len(content)))
		return err
	})
	want := []string{"0 d true 755 0", "1 d/a false 755 18", "2 /tmp/" + strings.Repeat("x", 200) + " false 600 206"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// What is no plain file or directory beneath the directory is refused before anything
// of it is written, and so is more than an upload may have.
func TestUnpack_bad(t *testing.T) {
	for name, data := range map[string][]byte{
		"..":         packed(t, tar.Header{Typeflag: tar.TypeReg, Name: "a/../../etc/passwd"}),
		"absolute":   packed(t, tar.Header{Typeflag: tar.TypeReg, Name: "/etc/passwd"}),
		"a link":     packed(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc"}),
		"a hardlink": packed(t, tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "b"}),
		"a device":   packed(t, tar.Header{Typeflag: tar.TypeChar, Name: "a", Devmajor: 1, Devminor: 5}),
		"a block":    packed(t, tar.Header{Typeflag: tar.TypeBlock, Name: "a"}),
		"a pipe":     packed(t, tar.Header{Typeflag: tar.TypeFifo, Name: "a"}),
		"no tar":     bytes.Repeat([]byte("x"), 1024),
		"half a tar": packed(t, tar.Header{Typeflag: tar.TypeReg, Name: "a"})[:512],
	} {
		t.Run(name, func(t *testing.T) {
			err := unpack(bytes.NewReader(data), "/workspace", "/", func(_ int, e entry) error {
				_, err := io.ReadAll(e.content)
				return err
			})
			if !errs.Is(err, errs.Invalid) {
				t.Error(err)
			}
		})
	}
	count := 0
	many := slices.Repeat([]tar.Header{{Typeflag: tar.TypeDir, Name: "d/"}}, entriesMax+1)
	err := unpack(bytes.NewReader(packed(t, many...)), "/workspace", "/", func(int, entry) error { count++; return nil })
	if !errs.Is(err, errs.Invalid) || count != entriesMax {
		t.Errorf("%d entries, %v", count, err)
	}
	w := httptest.NewRecorder()
	large := packed(t, tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("x", 90)})
	err = unpack(http.MaxBytesReader(w, io.NopCloser(bytes.NewReader(large)), 520), "/workspace", "/", func(_ int, e entry) error { _, err := io.ReadAll(e.content); return err })
	if problem.Of(err).Status != http.StatusRequestEntityTooLarge {
		t.Error(err)
	}
}

// The SDK tries again what has a status of 500 or more, so nothing has that would fail
// again.
func TestRefusals(t *testing.T) {
	for class, want := range map[errs.Class]string{
		errs.Invalid: "400 bad_request", errs.NotFound: "404 not_found", errs.Exists: "409 conflict", errs.Conflict: "409 conflict", errs.Denied: "403 forbidden",
		errs.Unsupported: "400 bad_request", errs.Limit: "429 rate_limited", errs.Unavailable: "503 unavailable", errs.Internal: "500 internal_server_error",
	} {
		status, text, _ := refusalOf(errs.New(class, "x"))
		if got := fmt.Sprint(status, " ", text.Code); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
	if status, text, _ := refusalOf(notRunning(sandbox.Info{ID: "sbx_a", State: sandbox.Stopped})); status != http.StatusGone || text.Code != "sandbox_stopped" {
		t.Error(status, text)
	}
}

func TestPages(t *testing.T) {
	all := []int{1, 2, 3, 4, 5}
	var got []int
	q := map[string][]string{"limit": {"2"}}
	for {
		page, p, err := pageOf(all, q)
		if err != nil || p.Count != len(page) {
			t.Fatal(page, p, err)
		}
		got = append(got, page...)
		if p.Next == nil {
			break
		}
		q["cursor"] = []string{*p.Next}
	}
	if !slices.Equal(got, all) {
		t.Error(got)
	}
	for _, q := range []map[string][]string{{"limit": {"0"}}, {"limit": {"101"}}, {"limit": {"x"}}, {"cursor": {"-1"}}, {"cursor": {"x"}}} {
		if _, _, err := pageOf(all, q); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", q, err)
		}
	}
	if page, _, err := pageOf(all, map[string][]string{"cursor": {"99"}}); len(page) != 0 || err != nil {
		t.Error(page, err)
	}
}

// Whatever a body says, it is an error for the client or a request with bounds.
func FuzzNewSandbox(f *testing.F) {
	f.Add([]byte(`{"name":"a","ports":[1],"timeout":5000,"networkPolicy":{"allow":{"a.example":[]}},"resources":{"vcpus":1},"tags":{"a":"b"}}`))
	f.Add([]byte(`{"source":{"type":"snapshot","snapshotId":"snp_aaaaaaaaaaaaaaaaaaaa"},"persistent":false}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n newSandbox
		if err := unmarshal(data, &n); err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		r, err := n.request(sandbox.Limits{IdleTimeoutMax: time.Hour})
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		if r.Spec.TTL < time.Second || r.Spec.Root || r.Spec.IdleTimeout != time.Hour || r.Spec.Egress != nil && len(egress.Problems(*r.Spec.Egress)) > 0 {
			t.Fatalf("%+v", r.Spec)
		}
	})
}

// A command that is taken has a program, and runs as root only by its own word.
func FuzzNewCommand(f *testing.F) {
	f.Add([]byte(`{"command":"a","args":["b"],"cwd":"/vercel/sandbox","env":{"A":"b"},"sudo":true,"wait":true,"logs":true,"timeout":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n newCommand
		if unmarshal(data, &n) != nil {
			return
		}
		s, err := n.start(sandbox.Info{})
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		if len(s.GetArgv()) != 1+len(n.Args) || (s.GetUser() != "") != n.Sudo || s.GetTimeoutMs() < 0 || len(s.GetCwd()) == 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// An upload never names a place outside of its directory.
func FuzzUnpack(f *testing.F) {
	f.Add(packed(f, tar.Header{Typeflag: tar.TypeReg, Name: "a/b"}, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}))
	f.Add(packed(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../.."}))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := unpack(bytes.NewReader(data), "/workspace", "/base/dir", func(_ int, e entry) error {
			if e.name != "/base/dir" && !strings.HasPrefix(e.name, "/base/dir/") || e.mode > 0o777 {
				t.Fatalf("%+v", e)
			}
			_, err := io.Copy(io.Discard, e.content)
			return err
		})
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Fatal(err)
		}
	})
}

// Pieces are text, in which nothing that was whole is lost.
func FuzzText(f *testing.F) {
	f.Add([]byte("a\xc3"), []byte("\xbcb"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var parts text
		got := parts.take(bytes.Clone(one)) + parts.take(bytes.Clone(two)) + parts.end()
		whole := append(bytes.Clone(one), two...)
		if !utf8.ValidString(got) || utf8.Valid(whole) && got != string(whole) {
			t.Fatalf("%q and %q: %q", one, two, got)
		}
	})
}

// An error of a field says its own words, not those of the parser.
func TestBodyError(t *testing.T) {
	var n newSandbox
	for text, says := range map[string]string{
		`{"networkPolicy":{"allow":{"a.example":[{}]}}}`: "a rule for requests to a.example is not supported",
		`{"__private":1}`:  "not known here",
		`{"timeout":"x"}`:  "wrong kind",
		`{} {}`:            "behind the JSON",
		`[`:                "no JSON object",
		`{"timeout":1e99}`: "wrong kind",
	} {
		err := unmarshal([]byte(text), &n)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
