package server_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/route"
)

// endless is a body of a size, without holding it.
func endless(n int64) io.Reader { return io.LimitReader(zeros{}, n) }

// tarOf is a tar with one file of n bytes.
func tarOf(t *testing.T, n int) io.Reader {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	must(t, tw.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: int64(n)}))
	_, err := tw.Write(make([]byte, n))
	must(t, err)
	must(t, tw.Close())
	return &b
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t, func(c *server.Config) { c.Limits.UploadBytesMax, c.Limits.TemplateBytesMax = 1<<20, 1<<20 })
	sb := "/v1/sandboxes/" + w.sandbox()
	octets := []string{"Content-Type", "application/octet-stream"}
	const noRun = "/v1/runs/run_aaaaaaaaaaaaaaaaaaaa"
	tests := []struct {
		name, method, path string
		body               any
		header             []string
		status             int
		detail             string // is in the answer
	}{
		{"no such route", "GET", "/v1/nothing", nil, nil, 404, "/docs"},
		{"no such method", "PUT", "/v1/sandboxes", nil, nil, 405, "GET, POST"},
		{"no such method of a sandbox", "PUT", sb, nil, nil, 405, "DELETE"},
		{"unknown query", "GET", "/v1/sandboxes?nonsense=1", nil, nil, 400, "nonsense"},
		{"repeated query", "GET", "/v1/sandboxes?page_size=1&page_size=2", nil, nil, 400, "2 times"},
		{"broken escape", "GET", "/v1/sandboxes?page_token=%zz", nil, nil, 400, "escape"},
		{"semicolon", "GET", "/v1/sandboxes?page_size=1;state=x", nil, nil, 400, "semicolon"},
		{"page size no number", "GET", "/v1/sandboxes?page_size=x", nil, nil, 400, "integer"},
		{"page size negative", "GET", "/v1/sandboxes?page_size=-1", nil, nil, 400, "page_size"},
		{"page size absurd", "GET", "/v1/sandboxes?page_size=99999999999999999999", nil, nil, 400, "integer"},
		{"page token garbage", "GET", "/v1/sandboxes?page_token=garbage", nil, nil, 400, "token"},
		{"unknown state", "GET", "/v1/sandboxes?state=happy", nil, nil, 400, "happy"},
		{"metadata without value", "GET", "/v1/sandboxes?metadata=x", nil, nil, 400, "name=value"},
		{"last event id garbage of events", "GET", "/v1/events", nil, []string{"Last-Event-ID", "x"}, 400, "Last-Event-ID"},
		{"events of no kind", "GET", "/v1/events?kind=weather", nil, nil, 400, "kind"},
		{"events from garbage", "GET", "/v1/events?from=-1", nil, nil, 400, "from"},
		{"last event id garbage", "GET", "/v1/sandboxes/events", nil, []string{"Last-Event-ID", "x"}, 400, "Last-Event-ID"},

		{"create with no body", "POST", "/v1/sandboxes", nil, nil, 400, "body"},
		{"create with an array", "POST", "/v1/sandboxes", "[]", nil, 400, "object"},
		{"create with half an object", "POST", "/v1/sandboxes", `{"name":`, nil, 400, "JSON"},
		{"create with two objects", "POST", "/v1/sandboxes", `{}{}`, nil, 400, "invalid character"},
		{"create with an unknown key", "POST", "/v1/sandboxes", `{"nonsense":1}`, nil, 400, "nonsense"},
		{"create with a key in other case", "POST", "/v1/sandboxes", `{"NAME":"x"}`, nil, 400, "NAME"},
		{"create with a wrong type", "POST", "/v1/sandboxes", `{"cpus":"two"}`, nil, 400, "cpus"},
		{"create with broken UTF-8", "POST", "/v1/sandboxes", "{\"name\":\"\xff\"}", nil, 400, "UTF-8"},
		{"create in another language", "POST", "/v1/sandboxes", strings.NewReader("name: x"), []string{"Content-Type", "application/yaml"}, 415, ""},
		{"create with a form", "POST", "/v1/sandboxes", strings.NewReader("name=x"), []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, ""},
		{"create with a huge body", "POST", "/v1/sandboxes", endless(2 << 20), []string{"Content-Type", "application/json"}, 413, "large"},
		{"create with an absurd name", "POST", "/v1/sandboxes", `{"name":"` + strings.Repeat("x", 65) + `"}`, nil, 400, "name"},
		{"create with negative cpus", "POST", "/v1/sandboxes", `{"cpus":-1}`, nil, 400, "cpus"},
		{"create with a negative ttl", "POST", "/v1/sandboxes", `{"ttl_ms":-1}`, nil, 400, "ttl_ms"},
		{"create with an absurd ttl", "POST", "/v1/sandboxes", `{"ttl_ms":9223372036854775807}`, nil, 400, "ttl"},
		{"create with an unknown isolation", "POST", "/v1/sandboxes", `{"require":"steel"}`, nil, 400, "require"},
		{"create with an unknown network", "POST", "/v1/sandboxes", `{"network":"all"}`, nil, 400, "network"},
		{"create from an unknown template", "POST", "/v1/sandboxes", `{"template":"gone","provider":"process"}`, nil, 404, "known: host"},
		{"create with an empty metadata name", "POST", "/v1/sandboxes", `{"metadata":{"":"x"}}`, nil, 400, "metadata"},
		{"create with huge env", "POST", "/v1/sandboxes", map[string]any{"env": map[string]string{"A": strings.Repeat("x", 5000)}}, nil, 400, "env"},
		{"create with a strange idempotency key", "POST", "/v1/sandboxes", `{}`, []string{"Idempotency-Key", "a b"}, 400, "idempotency"},
		{"create with a long idempotency key", "POST", "/v1/sandboxes", `{}`, []string{"Idempotency-Key", strings.Repeat("x", 129)}, 400, "idempotency"},
		{"create what nobody here can isolate", "POST", "/v1/sandboxes", `{"require":"microvm"}`, nil, 501, "microvm"},
		{"update with an unknown key", "PATCH", sb, `{"cpus":2}`, nil, 400, "cpus"},
		{"update with a negative ttl", "PATCH", sb, `{"ttl_ms":-5}`, nil, 400, "ttl"},
		{"bad sandbox id", "GET", "/v1/sandboxes/sbx_1", nil, nil, 400, "sandbox id"},
		{"id with an escape", "GET", "/v1/sandboxes/sbx_%2e%2e%2f", nil, nil, 400, "sandbox id"},
		{"unknown sandbox", "GET", "/v1/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaa", nil, nil, 404, "sbx_aaaa"},

		{"run nothing", "POST", sb + "/exec:run", `{}`, nil, 400, "exactly one"},
		{"start nothing", "POST", sb + "/processes", `{}`, nil, 400, "exactly one"},
		{"start too much", "POST", sb + "/processes", `{"argv":["a"],"code":"b"}`, nil, 400, "exactly one"},
		{"start with an absurd signal", "POST", sb + "/processes/x/signal", `{"signal":99}`, nil, 400, "signal"},
		{"start with a huge argument", "POST", sb + "/processes", map[string]any{"argv": []string{strings.Repeat("x", 200_000)}}, nil, 400, "longer"},
		{"unknown command", "GET", sb + "/processes/nothing", nil, nil, 404, "nothing"},
		{"bad command key", "GET", sb + "/processes/a%20b", nil, nil, 400, "key"},
		{"output of an unknown command", "GET", sb + "/processes/nothing/output", nil, nil, 404, "nothing"},
		{"output with a strange place", "GET", sb + "/processes/nothing/output", nil, []string{"Last-Event-ID", "1:-1"}, 400, "Last-Event-ID"},
		{"output from before the beginning", "GET", sb + "/processes/nothing/output?stdout_from=-2", nil, nil, 400, "stdout_from"},
		{"attach without an upgrade", "GET", sb + "/processes/nothing/attach", nil, nil, 426, "WebSocket"},
		{"exec without an upgrade", "GET", sb + "/exec", nil, nil, 426, "WebSocket"},
		{"exec by POST", "POST", sb + "/exec", `{}`, nil, 405, "GET"},
		{"stdin without an offset", "POST", sb + "/processes/x/stdin", strings.NewReader("x"), octets, 400, "offset"},
		{"stdin too large", "POST", sb + "/processes/x/stdin?offset=0", endless(2 << 20), octets, 413, "larger"},
		{"wait too long", "GET", sb + "/processes/x/wait?wait_ms=600001", nil, nil, 400, "wait_ms"},

		{"no path", "GET", sb + "/files", nil, nil, 400, "path"},
		{"path with a NUL", "GET", sb + "/files?path=a%00b", nil, nil, 400, ""},
		{"file that is not there", "GET", sb + "/files?path=/no/such", nil, nil, 404, ""},
		{"directory as a file", "GET", sb + "/files?path=/", nil, nil, 400, "directory"},
		{"two ranges", "GET", sb + "/files?path=/etc/passwd", nil, []string{"Range", "bytes=0-1,3-4"}, 416, "range"},
		{"backward range", "GET", sb + "/files?path=/etc/passwd", nil, []string{"Range", "bytes=5-2"}, 416, "range"},
		{"range behind the end", "GET", sb + "/files?path=/etc/passwd", nil, []string{"Range", "bytes=99999999-"}, 416, "bytes"},
		{"signed range", "GET", sb + "/files?path=/etc/passwd", nil, []string{"Range", "bytes=+1-+2"}, 416, "range"},
		{"write both ways", "PUT", sb + "/files?path=x&offset=1&append=true", strings.NewReader("x"), octets, 400, "exclude"},
		{"write in place on a condition", "PUT", sb + "/files?path=x&offset=1", strings.NewReader("x"), append([]string{"If-None-Match", "*"}, octets...), 400, "exclude"},
		{"write on no hash", "PUT", sb + "/files?path=x", strings.NewReader("x"), append([]string{"If-Match", `"abc"`}, octets...), 400, "SHA-256"},
		{"write with strange bits", "PUT", sb + "/files?path=x&mode=9999", strings.NewReader("x"), octets, 400, "mode"},
		{"write too much", "PUT", sb + "/files?path=x", endless(2 << 20), octets, 413, "larger"},
		{"unpack too much", "PUT", sb + "/tree?path=/tmp", tarOf(t, 2<<20), []string{"Content-Type", "application/x-tar"}, 413, "larger"},
		{"unpack no tar", "PUT", sb + "/tree?path=/tmp", strings.NewReader(strings.Repeat("not a tar ", 200)), []string{"Content-Type", "application/x-tar"}, 400, ""},
		{"stat without a path", "GET", sb + "/files/stat", nil, nil, 400, "path"},
		{"stat with a strange switch", "GET", sb + "/files/stat?path=/&follow=maybe", nil, nil, 400, "follow"},
		{"remove what is not there", "DELETE", sb + "/files?path=/no/such", nil, nil, 404, ""},
		{"list a file", "GET", sb + "/files/list?path=/etc/passwd", nil, nil, 400, ""},
		{"list with a token of nobody", "GET", sb + "/files/list?path=/&page_token=zz", nil, nil, 400, "token"},
		{"list too deep", "GET", sb + "/files/list?path=/&depth=65", nil, nil, 400, "depth"},
		{"mkdir without a path", "POST", sb + "/files/mkdir", `{}`, nil, 400, "path"},
		{"mkdir with an unknown key", "POST", sb + "/files/mkdir", `{"path":"x","p":1}`, nil, 400, "p"},
		{"move without a destination", "POST", sb + "/files/move", `{"source":"x"}`, nil, 400, "destination"},
		{"copy nothing", "POST", sb + "/files/copy", `{"source":"/no/such","destination":"x"}`, nil, 404, ""},
		{"chmod with a negative mode", "POST", sb + "/files/chmod", `{"path":"x","mode":-1}`, nil, 400, "mode"},
		{"symlink with a wrong type", "POST", sb + "/files/symlink", `{"path":1,"target":"x"}`, nil, 400, "path"},
		{"glob without a pattern", "GET", sb + "/files/glob", nil, nil, 400, "pattern"},
		{"glob with a broken pattern", "GET", sb + "/files/glob?pattern=%5B", nil, nil, 400, ""},
		{"grep with a broken pattern", "GET", sb + "/files/grep?pattern=%28", nil, nil, 400, ""},
		{"grep with much context", "GET", sb + "/files/grep?pattern=x&context=21", nil, nil, 400, "context"},
		{"watch what is not there", "GET", sb + "/files/watch?path=/no/such", nil, nil, 404, ""},
		{"watch from a strange place", "GET", sb + "/files/watch?path=/tmp", nil, []string{"Last-Event-ID", "::"}, 400, "Last-Event-ID"},
		{"create with a service of two commands", "POST", "/v1/sandboxes", `{"services":[{"name":"a","command":"b","argv":["c"]}]}`, nil, 400, "services"},
		{"service without a command", "POST", sb + "/services", `{"name":"web"}`, nil, 400, "argv or a command"},
		{"service with an absurd name", "POST", sb + "/services", `{"name":"../x","command":"true"}`, nil, 400, "name"},
		{"service that restarts often", "POST", sb + "/services", `{"name":"web","command":"true","restart":"often"}`, nil, 400, "restart"},
		{"service ready in two ways", "POST", sb + "/services", `{"name":"web","command":"true","ready_tcp":1,"ready_http":2}`, nil, 400, "several"},
		{"service with no port", "POST", sb + "/services", `{"name":"web","command":"true","ports":[-1]}`, nil, 400, "port"},
		{"unknown service", "GET", sb + "/services/nothing", nil, nil, 404, "nothing"},
		{"remove an unknown service", "DELETE", sb + "/services/nothing", nil, nil, 404, "nothing"},
		{"start an unknown service", "POST", sb + "/services/nothing/start", nil, nil, 404, "nothing"},
		{"restart and wait too long", "POST", sb + "/services/nothing/restart?wait_ms=600001", nil, nil, 400, "wait_ms"},
		{"log of an unknown service", "GET", sb + "/services/nothing/logs", nil, nil, 404, "nothing"},
		{"log with a strange place", "GET", sb + "/services/nothing/logs", nil, []string{"Last-Event-ID", "-3"}, 400, "Last-Event-ID"},
		{"port zero", "GET", sb + "/ports/0/connect", nil, nil, 400, "port"},
		{"port of the guest's control", "GET", sb + "/ports/65536/connect", nil, nil, 400, "port"},
		{"port no number", "GET", sb + "/ports/http/connect", nil, nil, 400, "port"},

		{"history of a strange page", "GET", sb + "/history?page_token=x", nil, nil, 400, "page token"},
		{"revision with more than a label", "POST", sb + "/history", `{"colour":"red"}`, nil, 400, "colour"},
		{"revision zero", "GET", sb + "/history/0", nil, nil, 400, "n"},
		{"file of a revision outside", "GET", sb + "/history/1/file?path=../etc/passwd", nil, nil, 400, "not in the workspace"},
		{"directory of a revision outside", "GET", sb + "/history/1/list?path=/etc", nil, nil, 400, "not in the workspace"},
		{"directory of a revision at a strange page", "GET", sb + "/history/1/list?page_token=%25", nil, nil, 400, "page token"},
		{"directory of too much", "GET", sb + "/history/1/list?page_size=1001", nil, nil, 400, "page_size"},
		{"diff from a word", "GET", sb + "/history/diff?from=x", nil, nil, 400, "from"},
		{"diff of too much", "GET", sb + "/history/diff?files=1001", nil, nil, 400, "files"},
		{"history of everything as a path", "GET", sb + "/history/path?path=.", nil, nil, 400, "every revision"},
		{"export of a kind", "GET", sb + "/history/export?kind=svn", nil, nil, 400, "kind"},
		{"plan of nothing", "POST", sb + "/history/plan", `{}`, nil, 400, "do"},
		{"restore of no revision", "POST", sb + "/history/plan", `{"do":"restore"}`, nil, 400, "needs n"},
		{"undo of a number", "POST", sb + "/history/plan", `{"do":"undo","n":3}`, nil, 400, "n is of"},
		{"redo of a run", "POST", sb + "/history/plan", `{"do":"redo","run":"r"}`, nil, 400, "are of an undo"},
		{"undo of a path", "POST", sb + "/history/plan", `{"do":"undo","path":"a"}`, nil, 400, "path is of"},
		{"undo with choices", "POST", sb + "/history/plan", `{"do":"undo","choices":[{"path":"a","choice":"keep"}]}`, nil, 400, "choices"},
		{"revert with two choices for a path", "POST", sb + "/history/plan", `{"do":"revert","n":1,"choices":[{"path":"a","choice":"keep"},{"path":"./a","choice":"take"}]}`, nil, 400, "two choices"},
		{"restore outside", "POST", sb + "/history/plan", `{"do":"restore","n":1,"path":"/etc"}`, nil, 400, "not in the workspace"},
		{"archive outside", "GET", sb + "/history/1/archive?path=/etc", nil, nil, 400, "not in the workspace"},
		{"move of no sandbox's history", "POST", sb + "/history/move", `{"from":"x"}`, nil, 404, "no sandbox"},
		{"move of what is no id", "POST", sb + "/history/move", `{"from":"sbx_X"}`, nil, 400, "id"},
		{"deletion of the history of what is there", "DELETE", sb + "/history", nil, nil, 409, "not destroyed"},
		{"deletion of the history of what is no id", "DELETE", "/v1/sandboxes/sbx_X/history", nil, nil, 400, "id"},
		{"apply of no plan", "POST", sb + "/history/apply", `{"plan":"x"}`, nil, 400, "no plan"},
		{"template with an endless name", "POST", "/v1/templates?name=" + strings.Repeat("a", 65), strings.NewReader("x"), nil, 400, "name"},
		{"template that nobody made", "GET", "/v1/templates/nothing", nil, nil, 404, "nothing"},
		{"bundle of nothing", "GET", "/v1/templates/nothing/bundle", nil, nil, 404, "nothing"},
		{"pull of nothing", "POST", "/v1/templates/pull", `{"reference":""}`, nil, 400, "reference"},
		{"tidying of a word", "POST", "/v1/templates/gc?all=perhaps", nil, nil, 400, "all"},
		{"too much to prepare", "POST", "/v1/templates/prepare", `{"names":[` + strings.Repeat(`"a",`, 16) + `"a"]}`, nil, 400, "names"},
		{"build without a name", "POST", "/v1/templates/build", strings.NewReader("x"), nil, 400, "name"},
		{"snapshot with more", "POST", sb + "/snapshots", `{"colour":"red"}`, nil, 400, "colour"},
		{"snapshot with a key of two words", "POST", sb + "/snapshots", `{}`, []string{"Idempotency-Key", "a b"}, 400, "idempotency"},
		{"fork with a long key", "POST", sb + "/fork", `{}`, []string{"Idempotency-Key", strings.Repeat("x", 129)}, 400, "idempotency"},
		{"fork into less than one", "POST", sb + "/fork", `{"count":-1}`, nil, 400, "count"},
		{"snapshots of a kind", "GET", "/v1/snapshots?kind=x", nil, nil, 400, "kind"},
		{"plug-ins of a kind", "GET", "/v1/plugins?kind=x", nil, nil, 400, "kind"},
		{"MCP servers of a tenant", "GET", "/v1/mcp/servers?tenant=x", nil, nil, 400, "tenant"},
		{"pool of a kind", "GET", "/v1/pool?kind=x", nil, nil, 400, "kind"},
		{"template too large", "POST", "/v1/templates?name=big", endless(2 << 20), nil, 413, "larger"},
		{"template that is not there", "DELETE", "/v1/templates/nothing", nil, nil, 404, "nothing"},
		{"key without a name", "POST", "/v1/keys", `{"name":""}`, nil, 400, "name"},
		{"key with an unknown scope", "POST", "/v1/keys", `{"name":"x","scopes":["root"]}`, nil, 400, "scope"},
		{"key of a strange tenant", "POST", "/v1/keys", `{"name":"x","tenant":"A/b"}`, nil, 400, "tenant"},
		{"key id malformed", "DELETE", "/v1/keys/x", nil, nil, 400, "key id"},
		{"key that is not there", "DELETE", "/v1/keys/key_00000000000000000000", nil, nil, 404, "key_0"},
		{"check of a strange tenant", "GET", "/v1/fsck?tenant=A_b", nil, nil, 400, "tenant"},
		{"erasure of a strange tenant", "DELETE", "/v1/tenants/A_b", nil, nil, 400, "tenant"},
		{"erasure of a path", "DELETE", "/v1/tenants/..%2Fb", nil, nil, 400, "tenant"},
		{"preview of no port", "POST", sb + "/previews", `{"port":0}`, nil, 400, "port"},
		{"public preview of nothing", "DELETE", sb + "/previews/lnk_x", nil, nil, 501, "previews"},
		{"previews of a kind", "GET", sb + "/previews?kind=x", nil, nil, 400, "kind"},
		{"preview key of a kind", "GET", "/v1/previews/key?kind=x", nil, nil, 400, "kind"},
		{"login of a kind", "GET", "/v1/login?kind=x", nil, nil, 400, "kind"},
		{"run without a task", "POST", "/v1/runs", `{}`, nil, 400, "task"},
		{"run with a key of two words", "POST", "/v1/runs", `{"task":"x"}`, []string{"Idempotency-Key", "a b"}, 400, "ASCII"},
		{"runs in no state", "GET", "/v1/runs?state=asleep", nil, nil, 400, "asleep"},
		{"send nothing", "POST", noRun + "/send", `{"text":""}`, nil, 400, "text"},
		{"cancel for a number", "POST", noRun + "/cancel", `{"reason":1}`, nil, 400, "reason"},
		{"fork nowhere", "POST", noRun + "/fork", `{"at":0}`, nil, 400, "at"},
		{"rewind to a word", "POST", noRun + "/rewind", `{"to":"x"}`, nil, 400, "to"},
		{"compare with nothing", "GET", noRun + "/compare", nil, nil, 400, "with"},
		{"decide nothing", "POST", noRun + "/decisions", `{"decisions":[]}`, nil, 400, "decisions"},
		{"transcript of too much", "GET", noRun + "/transcript?last=1001", nil, nil, 400, "last"},
		{"usage by what is not known", "GET", "/v1/usage?by=week", nil, nil, 400, "by"},
		{"usage of no time", "GET", "/v1/usage?from=2026-03-02T00:00:00Z&to=2026-03-02T00:00:00Z", nil, nil, 400, "not before"},
		{"outline of too much", "GET", noRun + "/outline?last=20001", nil, nil, 400, "last"},
		{"outline before nothing", "GET", noRun + "/outline?before=-1", nil, nil, 400, "before"},
		{"call of a run that is not there", "GET", noRun + "/calls/c1", nil, nil, 404, ""},
		{"output from before its beginning", "GET", noRun + "/calls/c1/output?offset=-1", nil, nil, 400, "offset"},
		{"events from a word", "GET", noRun + "/events?from=x", nil, nil, 400, "from"},
		{"blob of no hash", "GET", "/v1/blobs/x", nil, nil, 400, "hash"},
		{"follow without a WebSocket", "GET", "/v1/follow", nil, nil, 426, "WebSocket"},
		{"compact a run that is not there", "POST", noRun + "/compact", `{"focus":"x"}`, nil, 404, ""},
		{"compact with a key that there is not", "POST", noRun + "/compact", `{"foc":"x"}`, nil, 400, "foc"},
		{"commands by another method", "POST", "/v1/commands", `{}`, nil, 405, ""},
		{"tool on a server without agents", "POST", "/v1/tools/scan/run", `{"args":{}}`, nil, 501, "no agents"},
		{"tool with a key that there is not", "POST", "/v1/tools/scan/run", `{"argz":{}}`, nil, 400, "argz"},
		{"schedule without a time", "POST", "/v1/schedules", `{"name":"a","run":{"task":"x"}}`, nil, 400, "cron or every"},
		{"schedule with an image", "POST", "/v1/schedules", `{"name":"a","cron":"@daily","run":{"task":"x","images":[{"data":"R0lG"}]}}`, nil, 400, "a schedule keeps none"},
		{"schedule of an hour that there is not", "POST", "/v1/schedules", `{"name":"a","cron":"0 24 * * *","run":{"task":"x"}}`, nil, 400, "the hour is"},
		{"schedule with a key of two words", "POST", "/v1/schedules", `{"name":"a","cron":"@daily","run":{"task":"x"}}`, []string{"Idempotency-Key", "a b"}, 400, "ASCII"},
		{"schedules of a token that is none", "GET", "/v1/schedules?page_token=!", nil, nil, 400, "token"},
		{"network of an unknown profile", "PUT", sb + "/network", `{"profile":"some"}`, nil, 400, "profile"},
		{"network of a rule without a host", "PUT", sb + "/network", `{"allow":[{"ports":[1]}]}`, nil, 400, "host"},
		{"network of a sandbox without one", "PUT", sb + "/network", `{"allow":[{"host":"a.example"}]}`, nil, 501, "without a network"},
		{"create with models without a name", "POST", "/v1/sandboxes", `{"models":{"models":[""]}}`, nil, 400, "no name of a model"},
		{"create with models that are none", "POST", "/v1/sandboxes", `{"models":{"models":[]}}`, nil, 400, "models"},
		{"create with models and a budget below 0", "POST", "/v1/sandboxes", `{"models":{"models":["a"],"tokens":-1}}`, nil, 400, "tokens"},
		{"models with a budget below 0", "PUT", sb + "/models", `{"models":["a"],"cost_usd":-1}`, nil, 400, "cost_usd"},
		{"models without a list", "PUT", sb + "/models", `{"tokens":5}`, nil, 400, "models"},
		{"models that are too many", "PUT", sb + "/models", `{"models":["a"` + strings.Repeat(`,"a"`, 20) + `]}`, nil, 400, "models"},
		{"models of a sandbox without a network", "PUT", sb + "/models", `{"models":["a"]}`, nil, 501, "without a network"},
		{"audit since no time", "GET", "/v1/audit?since=yesterday", nil, nil, 400, "since"},
		{"audit before no number", "GET", "/v1/audit?before=-1", nil, nil, 400, "before"},
		{"audit of too many", "GET", "/v1/audit?page_size=1001", nil, nil, 400, "page_size"},
		{"audit verified with a wish", "GET", "/v1/audit/verify?quick=1", nil, nil, 400, "quick"},
		{"audit exported with a wish", "GET", "/v1/audit/export?since=1", nil, nil, 400, "since"},
		{"network log from no number", "GET", sb + "/network/log?from=x", nil, nil, 400, "from"},
		{"skills of a kind", "GET", "/v1/skills?kind=x", nil, nil, 400, "kind"},
		{"skill that is not there", "GET", "/v1/skills/forms", nil, nil, 404, "forms"},
		{"skill with a long name", "GET", "/v1/skills/" + strings.Repeat("a", 65), nil, nil, 400, "name"},
		{"skill without an archive", "POST", "/v1/skills", `{}`, nil, 400, "archive"},
		{"skill of bytes that are no archive", "POST", "/v1/skills", `{"archive":"aGVsbG8="}`, nil, 400, "no zip, tar"},
		{"skill of an empty archive", "POST", "/v1/skills", `{"archive":""}`, nil, 400, "archive"},
		{"change of nothing of a skill", "PATCH", "/v1/skills/forms", `{}`, nil, 400, "nothing is to be changed"},
		{"trust of a skill that is not there", "PATCH", "/v1/skills/forms", `{"trust":"0123456789"}`, nil, 404, "forms"},
		{"change of a skill that is not there", "PATCH", "/v1/skills/forms", `{"version":"0123456789"}`, nil, 404, "forms"},
		{"remove a skill that is not there", "DELETE", "/v1/skills/forms", nil, nil, 404, "forms"},
		{"secrets of a kind", "GET", "/v1/secrets?kind=x", nil, nil, 400, "kind"},
		{"secret that is not there", "GET", "/v1/secrets/forge", nil, nil, 404, "forge"},
		{"secret with a long name", "GET", "/v1/secrets/" + strings.Repeat("a", 64), nil, nil, 400, "name"},
		{"secret without a value", "PUT", "/v1/secrets/forge", `{"value":""}`, nil, 400, "value"},
		{"secret with a name of two words", "PUT", "/v1/secrets/a%20b", `{"value":"x"}`, nil, 400, "name"},
		{"secret sent in an unknown way", "PUT", "/v1/secrets/forge", `{"value":"x","grants":[{"host":"a.example","as":"cookie"}]}`, nil, 400, "none of bearer"},
		{"change of nothing of a secret", "PATCH", "/v1/secrets/forge", `{}`, nil, 400, "nothing is to be changed"},
		{"change of a secret that is not there", "PATCH", "/v1/secrets/forge", `{"version":1}`, nil, 404, "forge"},
		{"delete a secret that is not there", "DELETE", "/v1/secrets/forge", nil, nil, 404, "forge"},
		{"delete a secret of no name", "DELETE", "/v1/secrets/a%20b", nil, nil, 404, "a b"},
		{"schedule that is not there", "GET", "/v1/schedules/nightly", nil, nil, 404, "nightly"},
		{"pause a schedule without a word", "PATCH", "/v1/schedules/nightly", `{}`, nil, 400, "paused"},
		{"delete a schedule that is not there", "DELETE", "/v1/schedules/nightly", nil, nil, 404, "nightly"},
		{"run a schedule with a key of two words", "POST", "/v1/schedules/nightly/run", nil, []string{"Idempotency-Key", "a b"}, 400, "ASCII"},
		{"workflow that is no YAML", "POST", "/v1/workflows", `{"text":"["}`, nil, 400, "workflow.yaml:1"},
		{"workflow without a text", "POST", "/v1/workflows", `{"text":""}`, nil, 400, "text"},
		{"workflows of a kind", "GET", "/v1/workflows?kind=x", nil, nil, 400, "kind"},
		{"workflow that is not there", "GET", "/v1/workflows/audit", nil, nil, 404, "audit"},
		{"workflow with a name that leads out", "GET", "/v1/workflows/..%2Fkeys", nil, nil, 404, ""},
		{"remove a workflow that is not there", "DELETE", "/v1/workflows/audit", nil, nil, 404, "audit"},
		{"plan of a workflow and of a text", "POST", "/v1/workflow-plans", `{"workflow":"a","text":"b"}`, nil, 400, "one of workflow and text"},
		{"plan of a text with a mistake", "POST", "/v1/workflow-plans", `{"text":"name: a\ntopology: sequential\nnodes: [{name: b, agent: default}]\nnonsense: 1"}`, nil, 400, `"location":"4:1 nonsense"`},
		{"text with a mistake that is to be kept", "POST", "/v1/workflows", `{"text":"name: a\ntopology: sequential\nnodes:\n  - {name: b, agent: default, task: x}\nloops: [{from: b, to: c, when: {node: b, status: failed}, max: 1}]"}`, nil, 400, `"location":"5:`},
		{"start of nothing", "POST", "/v1/workflow-runs", `{}`, nil, 400, "one of workflow and text"},
		{"start of a workflow that is not there", "POST", "/v1/workflow-runs", `{"workflow":"audit"}`, nil, 404, "audit"},
		{"start with an input that is none", "POST", "/v1/workflow-runs", `{"text":"name: a\ntopology: sequential\nnodes: [{name: b, agent: default, task: c}]","input":[1]}`, nil, 400, "object"},
		{"start of a workflow with a key of two words", "POST", "/v1/workflow-runs", `{"workflow":"audit"}`, []string{"Idempotency-Key", "a b"}, 400, "ASCII"},
		{"runs of workflows of a token that is none", "GET", "/v1/workflow-runs?page_token=!", nil, nil, 400, "token"},
		{"share of a run that is not there", "POST", noRun + "/shares", `{}`, nil, 404, "run_"},
		{"share of a run of no form", "POST", "/v1/runs/x/shares", `{}`, nil, 400, "run_"},
		{"share for less than nothing", "POST", noRun + "/shares", `{"ttl_ms":-1}`, nil, 400, "ttl_ms"},
		{"share with a field too many", "POST", noRun + "/shares", `{"key":"x"}`, nil, 400, "key"},
		{"shares of a run of no form", "GET", "/v1/runs/x/shares", nil, nil, 400, "run_"},
		{"shares of a run that is not there", "GET", noRun + "/shares", nil, nil, 404, "run_"},
		{"end of a share of no run", "DELETE", "/v1/runs/x/shares/shr_1", nil, nil, 400, "run_"},
		{"end of a share of no form", "DELETE", noRun + "/shares/..%2Fx", nil, nil, 404, "share"},
		{"run of a workflow of no form", "GET", "/v1/workflow-runs/wfr_x", nil, nil, 400, "wfr_"},
		{"run of a workflow that waits for long", "GET", "/v1/workflow-runs/wfr_aaaaaaaaaaaaaaaaaaaa?wait_ms=30001", nil, nil, 400, "wait_ms"},
		{"run of a workflow that is not there", "GET", "/v1/workflow-runs/wfr_aaaaaaaaaaaaaaaaaaaa", nil, nil, 404, "wfr_"},
		{"cancel a workflow that is not there", "POST", "/v1/workflow-runs/wfr_aaaaaaaaaaaaaaaaaaaa/cancel", `{}`, nil, 404, "wfr_"},
		{"answer of nothing", "POST", "/v1/workflow-runs/wfr_aaaaaaaaaaaaaaaaaaaa/answer", `{"node":"a","choice":""}`, nil, 400, "choice"},
		{"agent that is not there", "GET", "/v1/agents/nobody", nil, nil, 404, "nobody"},
		{"agent file of an unknown key", "POST", "/v1/agents/validate", `{"path":"a.yaml","text":""}`, nil, 400, "text"},
		{"trace", "TRACE", "/v1/sandboxes", nil, nil, 405, ""},
	}
	covered := map[string]bool{}
	for _, tt := range tests {
		for _, r := range w.server.Routes() {
			if matches(r, tt.method, tt.path) {
				covered[r.Method+" "+r.Path] = true
			}
		}
		t.Run(tt.name, func(t *testing.T) {
			a := w.send(t, w.admin, tt.method, tt.path, tt.body, tt.header...)
			a.problem(t, tt.status)
			if !strings.Contains(string(a.body), tt.detail) {
				t.Errorf("no word of %q in %s", tt.detail, a.body)
			}
		})
	}
	// These take nothing that could be wrong but an id, which one case has tried.
	idOnly := []string{
		"/start", "/stop", "/pause", "/resume", "/metrics", "/network", "/ports", "/ports/watch", "/info", "/resize", "/processes", "/services", "/services/load", "/{key}", "/tree", "/{id}", "/templates", "/keys",
		"/replay", "/approvals", "/todos", "/agents", "/commands", "/models", "/histories",
	}
	for _, r := range w.server.Routes() {
		name := r.Method + " " + r.Path
		if covered[name] || !strings.HasPrefix(r.Path, "/v1/") {
			continue
		}
		known := false
		for _, suffix := range idOnly {
			known = known || strings.HasSuffix(r.Path, suffix)
		}
		if !known {
			t.Errorf("no bad request is tried on %s", name)
		}
		if strings.Contains(r.Path, "/sandboxes/{id}") {
			w.try(t, r, pathOf(r, "sbx_1")+needed(r), w.admin).problem(t, http.StatusBadRequest)
		}
		if strings.Contains(r.Path, "/runs/{id}") {
			w.try(t, r, pathOf(r, "run_1"), w.admin).problem(t, http.StatusBadRequest)
		}
	}
}

// matches reports whether a request is one of the route.
func matches(r route.Route, method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	want, have := strings.Split(r.Path, "/"), strings.Split(path, "/")
	if r.Method != method || len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

func TestNothingRunsInAStoppedSandbox(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, api.CreateSandbox{})
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+sb.ID+"/stop", nil, http.StatusOK, nil)
	p := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes/"+sb.ID+"/processes", api.StartProcess{Argv: []string{"true"}}).problem(t, http.StatusConflict)
	if p.Class != "conflict" || p.Hint == "" {
		t.Errorf("%+v", p)
	}
}

// An upload that breaks off must not become a file.
func TestBrokenUploadWritesNothing(t *testing.T) {
	w := newWorld(t)
	path := "/v1/sandboxes/" + w.sandbox() + "/files?path=/tmp/half-" + w.sandbox()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
	must(t, err)
	_, err = io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+w.admin+"\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 500_000))
	must(t, err)
	conn.Close()
	deadline := time.Now().Add(patience.Of(20 * time.Second))
	for !strings.Contains(w.log.String(), `"route":"PUT /v1/sandboxes/{id}/files"`) {
		if time.Now().After(deadline) {
			t.Fatal("the request does not end")
		}
		w.call(t, w.admin, http.MethodGet, "/healthz", nil, http.StatusOK, nil)
	}
	w.send(t, w.admin, http.MethodGet, path, nil).problem(t, http.StatusNotFound)
}

func TestIdempotentCreate(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for range 2 {
		a := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", `{"provider":"process"}`, "Idempotency-Key", "k1")
		var sb api.Sandbox
		must(t, json.Unmarshal(a.body, &sb))
		ids = append(ids, sb.ID)
	}
	if ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("two sandboxes for one key: %v", ids)
	}
	other := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", `{"provider":"process","name":"different"}`, "Idempotency-Key", "k1")
	if other.status == http.StatusCreated && strings.Contains(string(other.body), `"different"`) {
		t.Errorf("the same key made another sandbox: %s", other.body)
	}
}
