package mcp

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const good = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_read","arguments":{"path":"a"}}}`

// What is not exactly a call of a tool is left to the SDK, which says what is wrong with it.
func TestBrief(t *testing.T) {
	for name, body := range map[string]string{
		"plain": good, "no arguments": `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"file_read"}}`,
		"space": " {\n\"id\" : -7, \"jsonrpc\":\"2.0\",\"method\":\"tools\\/call\",\"params\":{\"name\":\"file_read\"} }\n",
	} {
		if c, ok := brief([]byte(body)); !ok || c.name != "file_read" {
			t.Errorf("%s: %+v, %v", name, c, ok)
		}
	}
	change := func(old, now string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in it", old)
		}
		return strings.Replace(good, old, now, 1)
	}
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "a list": "[" + good + "]", "two": good + good, "half": good[:40], "no UTF-8": change(`"a"`, "\"\xff\""),
		"a name of another case": change(`"method"`, `"Method"`), "a parameter of another case": change(`"name"`, `"NAME"`),
		"another version": change("2.0", "1.0"), "no version": change(`"jsonrpc":"2.0",`, ""), "a version that is a number": change(`"2.0"`, `2.0`),
		"another method": change("tools/call", "tools/list"), "no id": change(`"id":1,`, ""), "null as id": change(`"id":1`, `"id":null`),
		"true as id": change(`"id":1`, `"id":true`), "a list as id": change(`"id":1`, `"id":[1]`), "an object as id": change(`"id":1`, `"id":{}`),
		"half a number as id": change(`"id":1`, `"id":1.5`), "a large number as id": change(`"id":1`, `"id":9223372036854775808`),
		"an answer": change(`"params"`, `"result"`), "more": change(`"id":1`, `"id":1,"x":1`), "progress": change(`"arguments"`, `"_meta":{"progressToken":1},"arguments"`),
		"a task": change(`"arguments"`, `"task":{},"arguments"`), "parameters that are a list": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["file_read"]}`,
		"deep": change(`{"path":"a"}`, strings.Repeat("[", 20000)),
	} {
		if c, ok := brief([]byte(body)); ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for name, body := range map[string]string{
		"no parameters": `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "a number as name": change(`"file_read"`, "7"), "null as name": change(`"file_read"`, "null"),
	} {
		if c, ok := brief([]byte(body)); ok && c.name != "" { // there is no such tool
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// What is answered without the SDK is what the SDK would have read, and the answer's id is
// the call's.
func FuzzBrief(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"a\u0000","id":-0,"method":"tools/call","params":{"name":"a","name":"b","arguments":null}}`))
	f.Add([]byte(strings.Replace(good, `"id"`, `"ID":2,"id"`, 1)))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, ok := brief(body)
		if !ok {
			return
		}
		msg, err := jsonrpc.DecodeMessage(body)
		if err != nil {
			t.Fatalf("the SDK refuses it: %v", err)
		}
		req, is := msg.(*jsonrpc.Request)
		if !is || req.Method != "tools/call" || !req.IsCall() {
			t.Fatalf("the SDK reads %+v", msg)
		}
		var params struct {
			Name any `json:"name"`
		}
		if len(req.Params) > 0 && json.Unmarshal(req.Params, &params) != nil {
			t.Fatalf("parameters: %s", req.Params)
		}
		if name, is := params.Name.(string); is && name != c.name {
			t.Errorf("the tool is %q, not %q", name, c.name)
		}
		data, err := json.Marshal(answered{"2.0", c.id, struct{}{}})
		if err != nil || !utf8.Valid(data) {
			t.Fatalf("%q, %v", data, err)
		}
		answer, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			t.Fatal(err)
		}
		if res, is := answer.(*jsonrpc.Response); !is || res.ID != req.ID {
			t.Errorf("the answer's id is %v, the call's %v", answer, req.ID)
		}
	})
}
