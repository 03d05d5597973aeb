package envd

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/server/envd/protocol"
)

// codec is Connect's JSON, but that output of commands, which is most of what SDKs
// are sent, is written without reflection: three times as fast.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "json" }

// Marshal implements connect.Codec.
func (c codec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

// MarshalAppend is Marshal into a buffer, which Connect keeps.
func (codec) MarshalAppend(to []byte, m any) ([]byte, error) {
	var event *protocol.ProcessEvent
	switch m := m.(type) {
	case *protocol.StartResponse:
		event = m.GetEvent()
	case *protocol.ConnectResponse:
		event = m.GetEvent()
	}
	if data := event.GetData(); data != nil {
		return appendData(to, data), nil
	}
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", m)
	}
	return protojson.MarshalOptions{}.MarshalAppend(to, message)
}

// appendData writes an event with output.
func appendData(to []byte, data *protocol.ProcessEvent_DataEvent) []byte {
	name, bytes := "", []byte(nil)
	switch o := data.GetOutput().(type) {
	case *protocol.ProcessEvent_DataEvent_Stdout:
		name, bytes = "stdout", o.Stdout
	case *protocol.ProcessEvent_DataEvent_Stderr:
		name, bytes = "stderr", o.Stderr
	case *protocol.ProcessEvent_DataEvent_Pty:
		name, bytes = "pty", o.Pty
	default:
		return append(to, `{"event":{"data":{}}}`...)
	}
	to = append(to, `{"event":{"data":{"`+name+`":"`...)
	to = appendBase64(to, bytes)
	return append(to, `"}}}`...)
}

// pairs are the two characters of base64 for each twelve bits, the first in the low byte.
var pairs = func() (t [1 << 12]uint16) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for i := range t {
		t[i] = uint16(alphabet[i>>6]) | uint16(alphabet[i&63])<<8
	}
	return t
}()

// appendBase64 is base64.StdEncoding.AppendEncode, twice as fast: six bytes at once. It was
// most of what the server did for the output of a command.
func appendBase64(to, from []byte) []byte {
	begin := len(to)
	to = slices.Grow(to, base64.StdEncoding.EncodedLen(len(from)))[:begin+base64.StdEncoding.EncodedLen(len(from))]
	at := to[begin:]
	for len(from) >= 8 && len(at) >= 8 {
		v := binary.BigEndian.Uint64(from)
		binary.LittleEndian.PutUint64(at, uint64(pairs[v>>52])|uint64(pairs[v>>40&0xfff])<<16|uint64(pairs[v>>28&0xfff])<<32|uint64(pairs[v>>16&0xfff])<<48)
		from, at = from[6:], at[8:]
	}
	base64.StdEncoding.Encode(at, from)
	return to
}

// Unmarshal implements connect.Codec. Fields that are not known are left out, as
// Connect does: a later SDK says more of what it wants, and nothing here restricts.
func (codec) Unmarshal(data []byte, m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", m)
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, message)
}
