package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// all reads until an error that is the last.
func all(in string, most int) (messages, tooLong int, last error) {
	f := frames{r: bufio.NewReaderSize(strings.NewReader(in), 16), max: most}
	for {
		m, err := f.next()
		switch {
		case err == nil && m != nil:
			messages++
		case errors.Is(err, errTooLong):
			tooLong++
		default:
			return messages, tooLong, err
		}
	}
}

func TestFrames(t *testing.T) {
	const ok = `{"jsonrpc":"2.0","id":1,"result":{}}`
	long := `{"jsonrpc":"2.0","id":1,"result":{"a":"` + strings.Repeat("x", 200) + `"}}`
	for _, c := range []struct {
		name, in          string
		messages, tooLong int
		last              string
	}{
		{"nothing", "", 0, 0, "EOF"},
		{"two", ok + "\n" + ok + "\r\n", 2, 0, "EOF"},
		{"no end", ok + "\n" + ok, 1, 0, "EOF"},
		{"empty lines", "\n\r\n\n" + ok + "\n", 1, 0, "EOF"},
		{"words between", "Starting…\n" + ok + "\n{}\n[1]\nnull\n" + ok + "\n", 2, 0, "EOF"},
		{"a batch is none", "[" + ok + "," + ok + "]\n", 0, 0, "EOF"},
		{"one too long", ok + "\n" + long + "\n" + ok + "\n", 2, 1, "EOF"},
		{"all garbage", strings.Repeat("x\n", garbageMax+1), 0, 0, `it writes what is no message of the protocol: "x"`},
		{"some garbage", strings.Repeat("x\n", garbageMax) + ok + "\n", 1, 0, "EOF"},
	} {
		m, l, err := all(c.in, 100)
		if m != c.messages || l != c.tooLong || err.Error() != c.last {
			t.Errorf("%s: %d messages, %d too long, %v", c.name, m, l, err)
		}
	}
}

// A message without an end is given up, and takes no memory on the way.
func TestFrames_withoutAnEnd(t *testing.T) {
	f := frames{r: bufio.NewReaderSize(&endless{}, lineBufferSize), max: 1 << 20}
	if _, err := f.next(); err == nil || err.Error() != "it writes a message that does not end" {
		t.Error(err)
	}
}

type endless struct{}

func (*endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzFrames(f *testing.F) {
	for _, s := range []string{"", "{}\n", `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a","progress":1e999}}` + "\n", strings.Repeat("x", 300) + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		fr := frames{r: bufio.NewReaderSize(bytes.NewReader(in), 16), max: 200}
		for {
			m, err := fr.next()
			if err != nil && !errors.Is(err, errTooLong) {
				if len(in) == 0 && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				return
			}
			if r, ok := m.(*jsonrpc.Request); ok && !r.IsCall() {
				(&session{}).noted(r)
			}
		}
	})
}

func FuzzSpec(f *testing.F) {
	f.Add("name", `{"type":"object"}`)
	f.Add("a b", `{"$ref":"http://x"}`)
	f.Add(strings.Repeat("x", 100), `[]`)
	f.Fuzz(func(t *testing.T, name, schema string) {
		if got := toolName("server", name); len(got) > toolNameMax || strings.Trim(got, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("name %q", got)
		}
		var v any
		if json.Unmarshal([]byte(schema), &v) != nil {
			return
		}
		if clean, err := cleanSchema(v); err == nil && (len(clean) > 2*schemaBytesMax || clean[0] != '{') {
			t.Errorf("%s", clean)
		}
	})
}
