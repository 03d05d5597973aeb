package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/internal/sse"
)

type seen struct {
	Name, ID, Data string
	Cut            bool
}

func readAll(r io.Reader, max int) ([]seen, error) {
	var all []seen
	for in := sse.NewReader(r, max); ; {
		e, err := in.Next()
		if err != nil {
			if _, again := in.Next(); !errors.Is(again, err) {
				return all, errors.New("the error did not stay")
			}
			return all, err
		}
		all = append(all, seen{e.Name, e.ID, string(e.Data), e.Cut})
	}
}

func TestReader_readsEveryFormOfEvents(t *testing.T) {
	cases := []struct {
		name, text string
		want       []seen
	}{
		{"plain", "data: a\n\ndata: b\n\n", []seen{{Data: "a"}, {Data: "b"}}},
		{"no space", "data:a\n\ndata:  b\n\n", []seen{{Data: "a"}, {Data: " b"}}},
		{"CRLF", "data: a\r\n\r\nevent: x\r\ndata: b\r\n\r\n", []seen{{Data: "a"}, {Name: "x", Data: "b"}}},
		{"CR", "data: a\r\rdata: b\r\r", []seen{{Data: "a"}, {Data: "b"}}},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\n", []seen{{Data: "a"}, {Data: "b"}}},
		{"several lines", "data: a\ndata:\ndata: c\n\n", []seen{{Data: "a\n\nc"}}},
		{"comments", ": hi\n\n:\n\ndata: a\n: in between\ndata: b\n\n", []seen{{Data: "a\nb"}}},
		{"names and ids", "event: e\nid: 7\nretry: 9\nfoo: bar\nbare\ndata: a\n\ndata: b\n\n", []seen{{Name: "e", ID: "7", Data: "a"}, {Data: "b"}}},
		{"no data, no event", "event: e\n\ndata: a\n\n", []seen{{Data: "a"}}},
		{"empty data is an event", "data\n\ndata:\n\n", []seen{{}, {}}},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\n", []seen{{Data: "a"}}},
		{"half a byte order mark", "\xEF\xBBdata: a\n\ndata: b\n\n", []seen{{Data: "b"}}},
		{"end without blank line", "data: a\n\ndata: [DONE]", []seen{{Data: "a"}, {Data: "[DONE]", Cut: true}}},
		{"end after a line", "data: a\n", []seen{{Data: "a", Cut: true}}},
		{"nothing", "", nil},
		{"error as a field", "data: a\n\nerror: {}\n\n", []seen{{Data: "a"}, {Name: "error", Data: "{}"}}},
		{"id with a zero", "id: a\x00b\ndata: x\n\n", []seen{{Data: "x"}}},
	}
	for _, c := range cases {
		for form, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text)),
			"end with data": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			got, err := readAll(r, 1000)
			if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: %v (-want +got):\n%s", c.name, form, err, diff)
			}
		}
	}
}

func TestReader_stopsAtTheLimit(t *testing.T) {
	for name, text := range map[string]string{
		"a long line":         "data: ok\n\ndata: " + strings.Repeat("x", 5000) + "\n\n",
		"a line without end":  "data: ok\n\n" + strings.Repeat("x", 5000),
		"many lines of data":  "data: ok\n\n" + strings.Repeat("data: xxxxxxxxxxx\n", 500),
		"a long comment line": "data: ok\n\n:" + strings.Repeat("x", 5000) + "\n\n",
	} {
		got, err := readAll(strings.NewReader(text), 1000)
		if len(got) != 1 || !errors.Is(err, sse.ErrTooLong) {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
	}
}

func TestReader_passesOnTheErrorOfTheConnection(t *testing.T) {
	broken := errors.New("broken")
	got, err := readAll(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 1000)
	if diff := cmp.Diff([]seen{{Data: "a"}}, got); diff != "" || !errors.Is(err, broken) {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// An event is there as soon as its last byte is: with CR as line end no byte
// behind it is waited for.
func TestReader_doesNotWaitForTheNextByte(t *testing.T) {
	for _, text := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r\n"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, text) }() // ends when the reader took it or was closed
		if e, err := sse.NewReader(r, 100).Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: %q, %v", text, e.Data, err)
		}
		r.Close()
	}
}

// FuzzReader: cutting the stream anywhere changes nothing, and limits hold.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "\xEF\xBB\xBFdata: a\r\n\r\ndata:b\r\r", ": c\nevent: x\ndata: 1\ndata: 2\n\n", "data: [DONE]", "id: 1\nretry: 5\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		whole, err1 := readAll(strings.NewReader(text), 64)
		bytewise, err2 := readAll(iotest.OneByteReader(strings.NewReader(text)), 64)
		if diff := cmp.Diff(whole, bytewise); diff != "" {
			t.Errorf("cut differently, other events:\n%s", diff)
		}
		if errors.Is(err1, sse.ErrTooLong) != errors.Is(err2, sse.ErrTooLong) {
			t.Errorf("%v, cut differently %v", err1, err2)
		}
		for _, e := range whole {
			if len(e.Data) > 64+1 || strings.ContainsAny(e.Data, "\r") {
				t.Errorf("event %q", e.Data)
			}
		}
	})
}
