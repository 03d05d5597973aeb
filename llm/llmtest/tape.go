package llmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

// This file plays recorded answers of real servers to the drivers of models.
// A tape is a txtar file, one for each oddity of a server:
//
//	What is odd here, and which server does it.
//	-- options.json --     what New gets; may be missing
//	-- request.json --     an llm.Request; beside its fields, "user": "text" adds
//	                       a message and "offer": ["name"] plain tools; may be
//	                       missing, then it is {"user": "hi", "offer": ["read", "write"]}
//	-- sent.json --        what the body of the request must hold: objects are
//	                       compared by the keys given, a null stands for a key
//	                       that must not be there; may be missing
//	-- head --             the status, then headers; may be missing: 200, and
//	                       the type that the name of the reply means
//	-- reply.sse --        the bytes; or reply.json, reply.html, reply.txt
//	-- want.json --        the llm.Response; or
//	-- error.json --       {"trouble", "status", "retry_after_ms", "text": a part of the text}
//
// Lines of head that begin with ! are how the bytes are played: !crlf changes
// the line ends, !chomp leaves the last one out, !drop breaks the connection at
// the end, !hang keeps it open. Each tape is played in one piece, byte by byte
// and in pieces of 13 bytes. If the test has a flag -update, want.json and
// error.json are written anew.

// RunTape plays every tape of a directory, and compares what the model made of it.
func RunTape(t *testing.T, dir string, open func(url string, options json.RawMessage) llm.Model) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tapes in %s: %v", dir, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			tape := readTape(t, name)
			if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
				tape.update(t, open)
			}
			for _, piece := range []int{1 << 30, 1, 13} {
				tape.play(t, open, piece)
			}
		})
	}
}

type tape struct {
	name     string
	archive  *txtar.Archive
	options  json.RawMessage
	request  *llm.Request
	sent     any
	status   int
	header   http.Header
	marks    map[string]bool
	reply    []byte
	response *llm.Response
	failure  *tapeFailure
}

type tapeFailure struct {
	Trouble      llm.Trouble `json:"trouble"`
	Status       int         `json:"status,omitempty"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	Text         string      `json:"text,omitempty"`
}

var replyTypes = map[string]string{
	"reply.sse": "text/event-stream", "reply.json": "application/json", "reply.html": "text/html", "reply.txt": "text/plain",
}

func readTape(t *testing.T, name string) *tape {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &tape{name: name, archive: archive, status: http.StatusOK, header: http.Header{}, marks: map[string]bool{}}
	p.request = tapeRequest(t, []byte(`{"user": "hi", "offer": ["read", "write"]}`))
	head := ""
	for _, f := range archive.Files {
		switch f.Name {
		case "options.json":
			p.options = f.Data
		case "request.json":
			p.request = tapeRequest(t, f.Data)
		case "sent.json":
			strict(t, f.Data, &p.sent)
		case "head":
			head = string(f.Data)
		case "want.json":
			p.response = &llm.Response{}
			strict(t, f.Data, p.response)
		case "error.json":
			p.failure = &tapeFailure{}
			strict(t, f.Data, p.failure)
		default:
			if replyTypes[f.Name] == "" {
				t.Fatalf("%s: what is %s?", name, f.Name)
			}
			p.reply = f.Data
			p.header.Set("Content-Type", replyTypes[f.Name])
		}
	}
	p.head(t, head)
	return p
}

func (p *tape) head(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, ":")
		switch status, err := strconv.Atoi(line); {
		case err == nil:
			p.status = status
		case strings.HasPrefix(line, "!"):
			p.marks[line[1:]] = true
		case ok:
			p.header.Set(key, strings.TrimSpace(value))
		case line != "":
			t.Fatalf("%s: what is %q?", p.name, line)
		}
	}
	if p.marks["chomp"] {
		p.reply = bytes.TrimRight(p.reply, "\n")
	}
	if p.marks["crlf"] {
		p.reply = bytes.ReplaceAll(p.reply, []byte("\n"), []byte("\r\n"))
	}
}

func strict(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

func tapeRequest(t *testing.T, data []byte) *llm.Request {
	t.Helper()
	var r struct {
		llm.Request
		User  string   `json:"user"`
		Offer []string `json:"offer"`
	}
	strict(t, data, &r)
	if r.User != "" {
		r.Messages = append(r.Messages, llm.User(r.User))
	}
	r.Tools = append(r.Tools, Tools(r.Offer...)...)
	return &r.Request
}

// serve plays the tape once, in pieces.
func (p *tape) serve(piece int) (s *httptest.Server, body func() []byte) {
	got := make(chan []byte, 1)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		select {
		case got <- text:
		default:
			text = nil // a second request: the body that is asked for shows none
			<-got
			got <- text
		}
		p.answer(w, piece)
		if p.marks["hang"] {
			<-r.Context().Done()
		}
		if p.marks["drop"] {
			panic(http.ErrAbortHandler)
		}
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // broken connections are the point
	s.Start()
	return s, func() []byte {
		select {
		case b := <-got:
			return b
		default:
			return nil
		}
	}
}

func (p *tape) answer(w http.ResponseWriter, piece int) {
	maps.Copy(w.Header(), p.header)
	w.WriteHeader(p.status)
	for rest := p.reply; len(rest) > 0; {
		n := min(piece, len(rest))
		_, err := w.Write(rest[:n])
		if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
			return // the client has left
		}
		rest = rest[n:]
	}
}

func (p *tape) play(t *testing.T, open func(string, json.RawMessage) llm.Model, piece int) {
	t.Helper()
	s, body := p.serve(piece)
	defer s.Close()
	defer s.CloseClientConnections()
	resp, _, err := Ask(t.Context(), open(s.URL, p.options), p.request)
	text := body()
	if text == nil {
		t.Errorf("no request arrived, or more than one")
	}
	var sent any
	if p.sent != nil && json.Unmarshal(text, &sent) == nil {
		if missing := holds(sent, p.sent, ""); missing != "" {
			t.Errorf("the request %s\nsent was %s", missing, text)
		}
	}
	switch {
	case p.failure != nil:
		p.compareFailure(t, err)
	case err != nil:
		t.Errorf("pieces of %d: %v", piece, err)
	case p.response == nil:
		t.Errorf("the tape has neither want.json nor error.json")
	default:
		if diff := cmp.Diff(shape(p.response), shape(resp)); diff != "" {
			t.Errorf("pieces of %d (-want +got):\n%s", piece, diff)
		}
	}
}

func (p *tape) compareFailure(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		t.Errorf("no failure, but %v", err)
		return
	}
	got := tapeFailure{e.Trouble, e.Status, e.RetryAfter.Milliseconds(), p.failure.Text}
	if got != *p.failure || !strings.Contains(e.Error(), p.failure.Text) {
		t.Errorf("failure %+v (%v), want %+v", got, err, *p.failure)
	}
	if errs.Public(err) == "" {
		t.Error("no text for users")
	}
}

// shape makes a response comparable: JSON texts as values.
func shape(r *llm.Response) any {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var v any
	_ = json.Unmarshal(text, &v) // just encoded
	return v
}

// holds says what of want got lacks, "" if nothing.
func holds(got, want any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("has no object at %s", path)
		}
		for k, v := range want {
			has, there := object[k]
			switch {
			case v == nil && there:
				return fmt.Sprintf("has %s.%s", path, k)
			case v != nil:
				if missing := holds(has, v, path+"."+k); missing != "" {
					return missing
				}
			}
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Sprintf("has no list of %d at %s", len(want), path)
		}
		for i := range want {
			if missing := holds(list[i], want[i], fmt.Sprintf("%s[%d]", path, i)); missing != "" {
				return missing
			}
		}
	default:
		if !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("has %v at %s, not %v", got, path, want)
		}
	}
	return ""
}

// update writes what the model makes of the tape now. Read the diff.
func (p *tape) update(t *testing.T, open func(string, json.RawMessage) llm.Model) {
	t.Helper()
	s, _ := p.serve(1 << 30)
	defer s.Close()
	defer s.CloseClientConnections()
	resp, _, err := Ask(t.Context(), open(s.URL, p.options), p.request)
	name, v := "want.json", any(resp)
	p.response, p.failure = resp, nil
	if e, ok := errors.AsType[*llm.Error](err); ok {
		p.failure = &tapeFailure{e.Trouble, e.Status, int64(e.RetryAfter / time.Millisecond), ""}
		if e.Cause != nil {
			p.failure.Text = e.Cause.Error()
		}
		if strings.Contains(p.failure.Text, "127.0.0.1") {
			p.failure.Text = "" // another port each time
		}
		name, v, p.response = "error.json", p.failure, nil
	} else if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	files := p.archive.Files[:0]
	for _, f := range p.archive.Files {
		if f.Name != "want.json" && f.Name != "error.json" {
			files = append(files, f)
		}
	}
	p.archive.Files = append(files, txtar.File{Name: name, Data: append(text, '\n')})
	if err := os.WriteFile(p.name, txtar.Format(p.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
