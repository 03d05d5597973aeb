package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	sdk "github.com/coder/acp-go-sdk"
)

// lineBytesMax bounds a message of the client: a little less than where the SDK closes
// the connection.
const lineBytesMax = 10<<20 - 4096

// pass copies the messages of a client that are whole. To what is no message it answers
// by refuse, and the connection goes on: the SDK would leave its sender without an answer.
func pass(in io.Reader, to io.Writer, refuse func(*sdk.RequestError)) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, long, err := readLine(r)
		switch {
		case long:
			refuse(sdk.NewInvalidRequest(map[string]any{"error": fmt.Sprintf("a message has more than %d bytes", lineBytesMax)}))
		case len(bytes.TrimSpace(line)) > 0:
			if why := faultOf(line); why != nil {
				refuse(why)
			} else if _, werr := to.Write(append(line, '\n')); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns the next line without its end. Of one that is too long nothing is kept.
func readLine(r *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > lineBytesMax; !long {
			line = append(line, part...)
		} else {
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), long, err
		}
	}
}

// faultOf says why a line is no message of JSON-RPC; nil: it is one.
func faultOf(line []byte) *sdk.RequestError {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
	}
	if !json.Valid(line) {
		return sdk.NewParseError(map[string]any{"error": "a line is no JSON"})
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Method == nil && m.ID == nil {
		return sdk.NewInvalidRequest(map[string]any{"error": "a line is no request, no notification and no response"})
	}
	return nil
}

// output writes messages, one at a time.
type output struct {
	mu sync.Mutex
	w  io.Writer
	// told is called with the id of a session that is to be announced, once an answer
	// that names it is written.
	told     func(id string)
	announce []string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.w.Write(p)
	if len(o.announce) == 0 || bytes.Contains(p[:min(len(p), 200)], []byte(`,"method":`)) {
		return n, err
	}
	left := o.announce[:0]
	for _, id := range o.announce {
		if strings.Contains(string(p), `"`+id+`"`) {
			o.told(id)
			continue
		}
		left = append(left, id)
	}
	o.announce = left
	return n, err
}

// announced asks for told: a client does not know a session before its answer is there.
func (o *output) announced(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announce = append(o.announce, id)
}

// refuse answers a line that is no message.
func (o *output) refuse(why *sdk.RequestError) {
	line, err := json.Marshal(struct {
		JSONRPC string            `json:"jsonrpc"`
		ID      *string           `json:"id"`
		Error   *sdk.RequestError `json:"error"`
	}{JSONRPC: "2.0", Error: why})
	if err == nil {
		_, _ = o.Write(append(line, '\n'))
	}
}
