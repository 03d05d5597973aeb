package envd

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server/envd/protocol"
)

func TestParseID(t *testing.T) {
	const id = "k3j5k3j5k3j5k3j5k3j5"
	for text, want := range map[string]sandbox.ID{
		id: "sbx_" + id, "sbx_" + id: "sbx_" + id, id + "-6532622b": "sbx_" + id,
		"": "", id[1:]: "", id + "a": "", strings.ToUpper(id): "", "../" + id: "", "sbx_sbx_" + id: "",
	} {
		got, err := parseID(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if want != "" && "sbx_"+clientID(got) != string(want) {
			t.Errorf("%q is shown as %q", got, clientID(got))
		}
	}
}

// The signature is the one that the SDK of JavaScript, 2.51.0, makes of the same.
func TestSignature(t *testing.T) {
	for _, x := range []struct{ path, operation, user, token, expires, want string }{
		{"dir/a.txt", "read", "", "secret", "", "v1_oPK+D0uQ/XLuwB3cVeAtzsr6HoPBHJdhAiU7hI2HpAc"},
		{"dir/a.txt", "write", "root", "secret", "1795779910", "v1_V3J7Yr2q3mUGo1MC+m+IuypmmAdQzEDOw+7sKQvPUBI"},
	} {
		if got := signature(x.path, x.operation, x.user, x.token, x.expires); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

// An address that was signed is good for its path, its operation, its user, its
// sandbox, and until its end.
func TestWithSignature(t *testing.T) {
	b := New(Config{Records: kvtest.NewMemory()})
	rec := record{Tenant: "default", Sandbox: "sbx_k3j5k3j5k3j5k3j5k3j5"}
	token, err := b.records.token(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	later := "9999999999"
	good := url.Values{"path": {"a"}, "signature_expiration": {later}, "signature": {signature("a", readOperation, "", token, later)}}
	for name, x := range map[string]struct {
		change func(q url.Values)
		ok     bool
	}{
		"as it was signed": {func(url.Values) {}, true},
		"another path":     {func(q url.Values) { q.Set("path", "b") }, false},
		"another user":     {func(q url.Values) { q.Set("username", "root") }, false},
		"another end":      {func(q url.Values) { q.Set("signature_expiration", "9999999998") }, false},
		"no end":           {func(q url.Values) { q.Del("signature_expiration") }, false},
		"nothing":          {func(q url.Values) { q.Del("signature") }, false},
		"of a write":       {func(q url.Values) { q.Set("signature", signature("a", writeOperation, "", token, later)) }, false},
		"of yesterday": {func(q url.Values) {
			q.Set("signature_expiration", "1")
			q.Set("signature", signature("a", readOperation, "", token, "1"))
		}, false},
		"of no time": {func(q url.Values) {
			q.Set("signature_expiration", "soon")
			q.Set("signature", signature("a", readOperation, "", token, "soon"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := maps.Clone(good)
			x.change(q)
			r := httptest.NewRequest(http.MethodGet, "/files?"+q.Encode(), nil)
			if err := b.withSignature(r, rec, readOperation); (err == nil) != x.ok {
				t.Error(err)
			}
		})
	}
	other := rec
	other.Tenant = "other"
	if err := b.withSignature(httptest.NewRequest(http.MethodGet, "/files?"+good.Encode(), nil), other, readOperation); err == nil {
		t.Error("it is good for another tenant's")
	}
}

// A record keeps who asked, the newest last, and survives other servers.
func TestRecords(t *testing.T) {
	kv := kvtest.NewMemory()
	one, two := newRecords(kv), newRecords(kv)
	fresh := record{Tenant: "default", Sandbox: "sbx_k3j5k3j5k3j5k3j5k3j5", Template: "base"}
	for i, by := range []string{"a", "b", "a", "c", "d", "e", "f", "g", "h", "i"} {
		r := one
		if i%2 == 1 {
			r = two
		}
		if _, err := r.note(t.Context(), fresh, owner{ID: by}); err != nil {
			t.Fatal(err)
		}
		fresh.Template = "not this one"
	}
	rec, err := newRecords(kv).get(t.Context(), fresh.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	var ids string
	for _, o := range rec.Owners {
		ids += o.ID
	}
	if ids != "acdefghi" || rec.Template != "base" {
		t.Errorf("%+v", rec)
	}
	first, err := one.token(t.Context(), rec)
	second, err2 := two.token(t.Context(), rec)
	if err != nil || err2 != nil || first != second || len(first) != 64 {
		t.Errorf("%q and %q: %v, %v", first, second, err, err2)
	}
	if err := one.sweep(t.Context(), func(string, sandbox.ID) bool { return false }, func(record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := one.sweep(t.Context(), func(tenant string, id sandbox.ID) bool { return tenant == "default" && id == fresh.Sandbox }, func(record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := newRecords(kv).get(t.Context(), fresh.Sandbox); !errs.Is(err, errs.NotFound) {
		t.Errorf("after the sweep: %v", err)
	}
}

func TestMetadataOf(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"": nil, "a=b": {"a": "b"}, "a=b%2520c&d=": {"a": "b c", "d": ""}, "a%253Db=c": {"a=b": "c"},
		"a=b&a=c": nil, "%zz=1": nil, "a=%25zz": nil,
	} {
		got, err := metadataOf(text)
		if d := cmp.Diff(want, got); d != "" || (err != nil) != (want == nil && text != "") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestPolicy(t *testing.T) {
	no := false
	for name, x := range map[string]struct {
		in   network
		want egress.Policy
	}{
		"nothing said":    {network{}, egress.Policy{Profile: "default"}},
		"no internet":     {network{AllowInternet: &no}, egress.Policy{Profile: "none"}},
		"nothing":         {network{DenyOut: []string{allTraffic}}, egress.Policy{Profile: "none"}},
		"everything":      {network{AllowOut: []string{allTraffic}}, egress.Policy{Profile: "open"}},
		"allowed wins":    {network{AllowOut: []string{allTraffic}, DenyOut: []string{allTraffic}}, egress.Policy{Profile: "open"}},
		"one host alone":  {network{AllowOut: []string{"API.example.com"}, DenyOut: []string{allTraffic}}, egress.Policy{Profile: "none", Allow: []egress.Rule{{Host: "api.example.com"}}}},
		"one more":        {network{AllowOut: []string{"*.example.com"}}, egress.Policy{Profile: "default", Allow: []egress.Rule{{Host: "*.example.com"}}}},
		"an address less": {network{DenyOut: []string{"198.51.100.7/32"}}, egress.Policy{Profile: "default", Deny: []egress.Rule{{Host: "198.51.100.7"}}}},
		"both":            {network{AllowOut: []string{"198.51.100.7"}, DenyOut: []string{"198.51.100.7"}}, egress.Policy{Profile: "default", Allow: []egress.Rule{{Host: "198.51.100.7"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := x.in.policy()
			if d := cmp.Diff(x.want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
		})
	}
	for _, bad := range []network{
		{DenyOut: []string{"198.51.100.0/24"}},
		{AllowOut: []string{"10.0.0.1"}},
		{AllowOut: []string{"a b"}},
		{AllowOut: []string{""}},
		{EgressProxy: json.RawMessage(`{"address":"x"}`)},
		{MaskRequestHost: "x"},
		{HTTPSPorts: []int{1}},
	} {
		if p, err := bad.policy(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v became %+v, %v", bad, p, err)
		}
	}
}

// A grant that loses its last sandbox goes: without any it would be for all of the tenant.
func TestWithout(t *testing.T) {
	g := granted{"a", secret.Grant{Where: egress.Rule{Host: "a.example"}, As: secret.Bearer}}
	of := func(sandboxes ...string) secret.Grant {
		one := g.grant
		one.Sandboxes = sandboxes
		return one
	}
	other := secret.Grant{Where: egress.Rule{Host: "b.example"}, As: secret.Bearer, Sandboxes: []string{"sbx_a"}}
	for name, x := range map[string]struct{ from, want []secret.Grant }{
		"one of two":      {[]secret.Grant{of("sbx_a", "sbx_b")}, []secret.Grant{of("sbx_b")}},
		"the last":        {[]secret.Grant{of("sbx_a")}, []secret.Grant{}},
		"of another rule": {[]secret.Grant{other}, []secret.Grant{other}},
		"for all":         {[]secret.Grant{of()}, []secret.Grant{of()}},
		"not its":         {[]secret.Grant{of("sbx_b")}, []secret.Grant{of("sbx_b")}},
	} {
		if d := cmp.Diff(x.want, without(x.from, "sbx_a", g.is)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestTags(t *testing.T) {
	for _, tag := range []string{"a", "with spaces and ü", strings.Repeat("x", tagBytesMax)} {
		k, err := keyOf(tag)
		if err != nil || len(k) > 128 {
			t.Errorf("%q: %q, %v", tag, k, err)
		}
		if got, ok := tagOf(k); !ok || got != tag {
			t.Errorf("%q came back as %q", tag, got)
		}
	}
	if a, _ := keyOf("a"); a == func() string { b, _ := keyOf("a"); return b }() {
		t.Error("one tag gives one key")
	}
	k, err := keyOf("")
	if _, ok := tagOf(k); ok || err != nil || !wire.MadeUp(k) {
		t.Errorf("%q, %v", k, err)
	}
	if _, err := keyOf(strings.Repeat("x", tagBytesMax+1)); err == nil {
		t.Error("a long tag has a key")
	}
}

// Output is written as Connect's own JSON has it.
func TestCodec(t *testing.T) {
	whole := make([]byte, 256)
	for i := range whole {
		whole[i] = byte(i)
	}
	for _, e := range []*protocol.ProcessEvent_DataEvent{
		{Output: &protocol.ProcessEvent_DataEvent_Stdout{Stdout: whole}},
		{Output: &protocol.ProcessEvent_DataEvent_Stderr{Stderr: whole[:1]}},
		{Output: &protocol.ProcessEvent_DataEvent_Pty{Pty: whole[:2]}},
		{Output: &protocol.ProcessEvent_DataEvent_Pty{}},
		{},
	} {
		event := &protocol.ProcessEvent{Event: &protocol.ProcessEvent_Data{Data: e}}
		for _, m := range []proto.Message{&protocol.StartResponse{Event: event}, &protocol.ConnectResponse{Event: event}, &protocol.StartResponse{}, &protocol.ListResponse{}} {
			got, err := codec{}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			want, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !cmp.Equal(a, b) {
				t.Errorf("%s, want %s", got, want)
			}
			back := m.ProtoReflect().New().Interface()
			if err := (codec{}).Unmarshal(got, back); err != nil || !proto.Equal(back, m) {
				t.Errorf("%v came back as %v, %v", m, back, err)
			}
		}
	}
	if _, err := (codec{}).Marshal("x"); err == nil {
		t.Error("what is no message was written")
	}
}

func TestTimeouts(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "0": 0, "60000": 60000, "9999999999": 9999999999, "-1": -1, "1.5": -1, "99999999999": -1, "x": -1} {
		got, err := timeoutOfHeader(http.Header{"Connect-Timeout-Ms": {text}})
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	n := 90
	if d, err := timeoutOf(&n, 1); d != 90*time.Second || err != nil {
		t.Error(d, err)
	}
}

func TestPermissions(t *testing.T) {
	for want, e := range map[string]*wire.Entry{
		"-rw-r--r--": {Mode: 0o644, Type: wire.FileType_FILE_TYPE_REGULAR}, "drwxr-xr-x": {Mode: 0o755, Type: wire.FileType_FILE_TYPE_DIRECTORY},
		"Lrwxrwxrwx": {Mode: 0o777, Type: wire.FileType_FILE_TYPE_SYMLINK}, "dtrwxrwxrwx": {Mode: 0o1777, Type: wire.FileType_FILE_TYPE_DIRECTORY},
		"urwxr-xr-x": {Mode: 0o4755, Type: wire.FileType_FILE_TYPE_REGULAR},
	} {
		if got := permissions(e); got != want {
			t.Errorf("%v: %s, want %s", e, got, want)
		}
	}
}

// Whatever a body says, it is an error for the client or a spec with bounds.
func FuzzNewSandbox(f *testing.F) {
	f.Add([]byte(`{"templateID":"base","timeout":5,"network":{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"]},"autoResume":{"enabled":true}}`))
	f.Add([]byte(`{"templateID":"snp_aaaaaaaaaaaaaaaaaaaa:default"}`))
	f.Add([]byte(`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.secrets.a}"}}}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n newSandbox
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(data))
		if decode(httptest.NewRecorder(), r, &n) != nil {
			return
		}
		s, err := n.spec(timeoutDefault, sandbox.Limits{IdleTimeoutMax: time.Hour})
		if err != nil {
			if c := errs.Of(err); c != errs.Invalid {
				t.Fatalf("%s: %v", c, err)
			}
			return
		}
		if s.TTL < time.Second || s.Root || s.IdleTimeout != time.Hour || s.Persist == s.Ephemeral {
			t.Fatalf("%+v", s)
		}
		if s.Egress != nil && len(egress.Problems(*s.Egress)) > 0 {
			t.Fatalf("%+v", s.Egress)
		}
		rules, err := n.Network.grants()
		if err != nil && !errs.Is(err, errs.Invalid) || len(rules) > ruleHostsMax*ruleHeadersMax {
			t.Fatalf("%d rules, %v", len(rules), err)
		}
		for _, g := range rules {
			if g.name == "" || g.grant.Where.Host != strings.ToLower(g.grant.Where.Host) || len(g.grant.Sandboxes) > 0 {
				t.Fatalf("%+v", g)
			}
		}
	})
}

// What a client says of a part of an upload gives a name, or an error.
func FuzzPartName(f *testing.F) {
	f.Add(`form-data; name="file"; filename="dir/a.txt"`)
	f.Add(`form-data; name="file"; filename*=UTF-8''a%20b`)
	f.Fuzz(func(t *testing.T, disposition string) {
		part := &multipart.Part{Header: map[string][]string{"Content-Disposition": {disposition}}}
		if name, err := partName(part); err == nil && name == "" {
			t.Fatal("a name that is empty")
		}
	})
}

// Names that are no text are shown as text.
func FuzzRelative(f *testing.F) {
	f.Add("/workspace", []byte("/workspace/a"))
	f.Fuzz(func(t *testing.T, top string, name []byte) {
		if got := relative(top, text(name)); utf8.ValidString(top) && !utf8.ValidString(got) {
			t.Fatalf("%q", got)
		}
	})
}
