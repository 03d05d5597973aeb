package server_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
)

// workplace is a directory of a sandbox and the routes on it.
type workplace struct {
	*world
	dir string
	sb  string
}

func newWorkplace(t *testing.T) *workplace {
	w := newWorld(t)
	return &workplace{w, t.TempDir(), "/v1/sandboxes/" + w.sandbox()} // the process provider shows the host's files
}

func (w *workplace) files(name string) string {
	return w.sb + "/files?path=" + url.QueryEscape(w.dir+"/"+name)
}

func (w *workplace) put(t *testing.T, path, content string, header ...string) answer {
	t.Helper()
	return w.send(t, w.admin, http.MethodPut, path, strings.NewReader(content), header...)
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestFileContent(t *testing.T) {
	w := newWorkplace(t)
	content := string(pattern(0, 700_001))
	var f api.FileWritten
	must(t, json.Unmarshal(w.put(t, w.files("f")+"&mode=384", content).body, &f))
	if f.Size != int64(len(content)) || f.SHA256 != hashOf(content) || f.Mode != 0o600 || f.Type != "file" {
		t.Errorf("written %+v", f)
	}
	etag := strconv.Quote(hashOf(content))
	tests := []struct {
		name, method, query string
		header              []string
		status              int
		from, to            int // of the content
		contentRange        string
	}{
		{"whole", "GET", "", nil, 200, 0, len(content), ""},
		{"head", "HEAD", "", nil, 200, 0, 0, ""},
		{"first bytes", "GET", "", []string{"Range", "bytes=0-9"}, 206, 0, 10, "bytes 0-9/700001"},
		{"middle", "GET", "", []string{"Range", "bytes=300000-399999"}, 206, 300000, 400000, "bytes 300000-399999/700001"},
		{"to the end", "GET", "", []string{"Range", "bytes=700000-"}, 206, 700000, 700001, "bytes 700000-700000/700001"},
		{"beyond the end", "GET", "", []string{"Range", "bytes=699999-900000"}, 206, 699999, 700001, "bytes 699999-700000/700001"},
		{"last bytes", "GET", "", []string{"Range", "bytes=-5"}, 206, 699996, 700001, "bytes 699996-700000/700001"},
		{"more last bytes than there are", "GET", "", []string{"Range", "bytes=-9999999"}, 206, 0, 700001, "bytes 0-700000/700001"},
		{"another unit", "GET", "", []string{"Range", "lines=1-2"}, 200, 0, len(content), ""},
		{"hash wanted", "GET", "&hash=true", nil, 200, 0, len(content), ""},
		{"known already", "GET", "", []string{"If-None-Match", etag}, 304, 0, 0, ""},
		{"not that", "GET", "", []string{"If-None-Match", `"x"`}, 200, 0, len(content), ""},
		{"must be that", "GET", "", []string{"If-Match", etag}, 200, 0, len(content), ""},
		{"must be another", "GET", "", []string{"If-Match", `"x"`}, 412, -1, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := w.send(t, w.admin, tt.method, w.files("f")+tt.query, nil, tt.header...)
			if a.status != tt.status || a.header.Get("Content-Range") != tt.contentRange {
				t.Fatalf("status %d, range %q", a.status, a.header.Get("Content-Range"))
			}
			if tt.from >= 0 && !bytes.Equal(a.body, []byte(content[tt.from:tt.to])) {
				t.Errorf("%d bytes, want %d", len(a.body), tt.to-tt.from)
			}
			if tt.method == "HEAD" && a.header.Get("Content-Length") != "700001" {
				t.Errorf("head says %q", a.header.Get("Content-Length"))
			}
			if strings.Contains(tt.query, "hash") && a.header.Get("ETag") != etag {
				t.Errorf("etag %q", a.header.Get("ETag"))
			}
			if a.status/100 == 2 && (a.header.Get("Content-Disposition") != "attachment" || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox")) {
				t.Errorf("a browser could show it as a page: %v", a.header)
			}
		})
	}
}

func TestFileWithoutSize(t *testing.T) {
	w := newWorkplace(t)
	a := w.send(t, w.admin, http.MethodGet, w.sb+"/files?path=/proc/version", nil)
	if a.status != 200 || !strings.HasPrefix(string(a.body), "Linux version") {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := w.put(t, w.files("empty"), ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := w.send(t, w.admin, http.MethodGet, w.files("empty"), nil); a.status != 200 || len(a.body) != 0 {
		t.Errorf("empty file: %d %q", a.status, a.body)
	}
}

func TestConditionalWrites(t *testing.T) {
	w := newWorkplace(t)
	path := w.files("f")
	steps := []struct {
		content string
		header  []string
		query   string
		status  int
		now     string
	}{
		{"one", []string{"If-None-Match", "*"}, "", 200, "one"},
		{"two", []string{"If-None-Match", "*"}, "", 412, "one"},
		{"two", []string{"If-Match", strconv.Quote(hashOf("zero"))}, "", 412, "one"},
		{"two", []string{"If-Match", strconv.Quote(hashOf("one"))}, "", 200, "two"},
		{"XX", nil, "&offset=1", 200, "tXX"},
		{"!", nil, "&append=true", 200, "tXX!"},
		{"new", nil, "", 200, "new"},
	}
	for i, s := range steps {
		if a := w.put(t, path+s.query, s.content, s.header...); a.status != s.status {
			t.Fatalf("step %d: %d %s", i, a.status, a.body)
		}
		if a := w.send(t, w.admin, http.MethodGet, path, nil); string(a.body) != s.now {
			t.Fatalf("step %d: the file is %q, want %q", i, a.body, s.now)
		}
	}
}

func TestNamesThatAreNotText(t *testing.T) {
	w := newWorkplace(t)
	names := []string{"\xff\xfe", "new\nline", strings.Repeat("x", 255), "a b+c&d=e%f", "-rf", "\x1b[31m"}
	for _, name := range names {
		if a := w.put(t, w.files(name), "x"); a.status != 200 {
			t.Errorf("write %q: %d %s", name, a.status, a.body)
		}
		if a := w.send(t, w.admin, http.MethodGet, w.files(name), nil); string(a.body) != "x" {
			t.Errorf("read %q: %d %q", name, a.status, a.body)
		}
	}
	var page api.FilePage
	w.call(t, w.admin, http.MethodGet, w.sb+"/files/list?path="+url.QueryEscape(w.dir), nil, 200, &page)
	got := map[string]bool{}
	for _, f := range page.Items {
		exact := f.Path
		if f.PathBytes != nil {
			exact = string(f.PathBytes)
		}
		got[strings.TrimPrefix(exact, w.dir+"/")] = true
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// In JSON the exact bytes go beside the text.
	var f api.File
	odd := append([]byte(w.dir+"/"), 0xff, 'd')
	w.call(t, w.admin, http.MethodPost, w.sb+"/files/mkdir", api.MakeDir{Path: "lossy", PathBytes: odd}, 200, &f)
	if !bytes.Equal(f.PathBytes, odd) || f.Type != "directory" {
		t.Errorf("made %+v", f)
	}
	f = api.File{}
	w.call(t, w.admin, http.MethodPost, w.sb+"/files/move", api.MoveFile{Source: "lossy", SourceBytes: odd, Destination: w.dir + "/even"}, 200, &f)
	if f.Path != w.dir+"/even" || f.PathBytes != nil {
		t.Errorf("moved to %+v", f)
	}
	for _, bad := range []string{"a\x00b", strings.Repeat("x", 256), strings.Repeat("x/", 3000)} {
		if a := w.put(t, w.files(bad), "x"); a.status != 400 {
			t.Errorf("write %.20q: %d %s", bad, a.status, a.body)
		}
	}
}

func TestListsArePaged(t *testing.T) {
	w := newWorkplace(t)
	for i := range 25 {
		w.put(t, w.files("f"+strconv.Itoa(i)), "x")
	}
	token, seen := "", map[string]bool{}
	for pages := 1; ; pages++ {
		var page api.FilePage
		w.call(t, w.admin, http.MethodGet, w.sb+"/files/list?page_size=10&path="+url.QueryEscape(w.dir)+"&page_token="+url.QueryEscape(token), nil, 200, &page)
		for _, f := range page.Items {
			seen[f.Name] = true
		}
		if token = page.NextPageToken; token == "" {
			if pages != 3 || len(seen) != 25 {
				t.Errorf("%d pages, %d names", pages, len(seen))
			}
			return
		}
	}
}

func TestFileChanges(t *testing.T) {
	w := newWorkplace(t)
	post := func(verb string, body any) api.File {
		t.Helper()
		var f api.File
		w.call(t, w.admin, http.MethodPost, w.sb+"/files/"+verb, body, 200, &f)
		return f
	}
	if f := post("mkdir", api.MakeDir{Path: w.dir + "/a/b", Parents: true}); f.Type != "directory" || f.Path != w.dir+"/a/b" {
		t.Errorf("mkdir: %+v", f)
	}
	w.put(t, w.files("a/b/f"), "needle\nhay\n")
	if f := post("copy", api.CopyFile{Source: w.dir + "/a/b/f", Destination: w.dir + "/a/g"}); f.Size != 11 {
		t.Errorf("copy: %+v", f)
	}
	if f := post("move", api.MoveFile{Source: w.dir + "/a/g", Destination: w.dir + "/h"}); f.Name != "h" {
		t.Errorf("move: %+v", f)
	}
	if f := post("chmod", api.ChmodFile{Path: w.dir + "/h", Mode: 0o400}); f.Mode != 0o400 {
		t.Errorf("chmod: %+v", f)
	}
	if f := post("symlink", api.SymlinkFile{Target: "h", Path: w.dir + "/l"}); f.Type != "symlink" || f.Target != "h" {
		t.Errorf("symlink: %+v", f)
	}
	var f api.File
	w.call(t, w.admin, http.MethodGet, w.sb+"/files/stat?follow=true&hash=true&path="+url.QueryEscape(w.dir+"/l"), nil, 200, &f)
	if f.Type != "file" || f.SHA256 != hashOf("needle\nhay\n") {
		t.Errorf("stat: %+v", f)
	}
	var glob api.GlobResult
	w.call(t, w.admin, http.MethodGet, w.sb+"/files/glob?pattern=**/f&base="+url.QueryEscape(w.dir), nil, 200, &glob)
	if len(glob.Items) != 1 || glob.Items[0].Path != w.dir+"/a/b/f" {
		t.Errorf("glob: %+v", glob)
	}
	var grep api.GrepResult
	w.call(t, w.admin, http.MethodGet, w.sb+"/files/grep?pattern=ne%2Bdle&include=**/f&base="+url.QueryEscape(w.dir), nil, 200, &grep)
	if len(grep.Items) != 1 || grep.Items[0].Line != 1 || grep.Items[0].Text != "needle" {
		t.Errorf("grep: %+v", grep)
	}
	var removed api.Removed
	w.call(t, w.admin, http.MethodDelete, w.files("a")+"&recursive=true", nil, 200, &removed)
	if removed.Removed != 3 {
		t.Errorf("removed %d", removed.Removed)
	}
	w.send(t, w.admin, http.MethodDelete, w.files("a"), nil).problem(t, 404)
	w.call(t, w.admin, http.MethodDelete, w.files("a")+"&missing_ok=true", nil, 200, nil)
}

func TestTrees(t *testing.T) {
	w := newWorkplace(t)
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	want := map[string]string{"dir/one": "1", "dir/two": string(pattern(0, 1<<20))}
	for _, name := range []string{"dir/one", "dir/two"} {
		must(t, tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(want[name]))}))
		_, err := io.WriteString(tw, want[name])
		must(t, err)
	}
	must(t, tw.Close())
	var written api.TreeWritten
	must(t, json.Unmarshal(w.send(t, w.admin, http.MethodPut, w.sb+"/tree?path="+url.QueryEscape(w.dir), &b).body, &written))
	if written.Bytes < 1<<20 || written.Entries < 2 {
		t.Errorf("%+v", written)
	}
	a := w.send(t, w.admin, http.MethodGet, w.sb+"/tree?path="+url.QueryEscape(w.dir), nil)
	if a.status != 200 || a.header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	got := map[string]string{}
	for tr := tar.NewReader(bytes.NewReader(a.body)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(tr)
		must(t, err)
		got[h.Name[strings.Index(h.Name, "dir/"):]] = string(data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w.send(t, w.admin, http.MethodGet, w.sb+"/tree?path=/no/such", nil).problem(t, 404)
}
