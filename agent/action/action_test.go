package action_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/llm"
)

var specs = []llm.ToolSpec{
	{Name: "write_file", Description: "Writes a file.", Schema: json.RawMessage(`{"type":"object","properties":{"file_path":{"type":"string"},"content":{"type":"string"}},"required":["file_path","content"]}`)},
	{Name: "list_files", Description: "Lists files.", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
}

const good = `{"action": "write_file", "args": {"file_path": "/a", "content": "x"}}`

func TestParse_forgives(t *testing.T) {
	const args = `{"file_path":"/a","content":"x"}`
	cases := []struct{ name, text, args string }{
		{"as asked", good, args},
		{"spaces", "\n\n  " + good + "  \n", args},
		{"a fence", "```json\n" + good + "\n```", args},
		{"a bare fence", "```\n" + good + "\n```", args},
		{"a sentence before", "I will write the file now.\n" + good, args},
		{"a sentence after", good + "\nThen I will look at it.", args},
		{"braces in prose before", "The set {a, b} matters. " + good, args},
		{"an object that is no action before", `The config is {"x": 1}. ` + good, args},
		{"thoughts with drafts", "<think>maybe " + good + " or {\"action\": \"list_files\"}</think>\n" + good, args},
		{"a thought", `{"thought": "write it", "action": "write_file", "args": {"file_path": "/a", "content": "x"}}`, args},
		{"done is false", `{"done": false, "action": "write_file", "args": {"file_path": "/a", "content": "x"}}`, args},
		{"line breaks in texts", "{\"action\": \"write_file\", \"args\": {\"file_path\": \"/a\", \"content\": \"1\n\t2\"}}", `{"file_path":"/a","content":"1\n\t2"}`},
		{"braces in texts", `{"action": "write_file", "args": {"file_path": "/a", "content": "}{\" {"}}`, `{"file_path":"/a","content":"}{\" {"}`},
		{"an action in a text", `{"action": "write_file", "args": {"file_path": "/a", "content": "{\"action\": \"x\"}"}}`, `{"file_path":"/a","content":"{\"action\": \"x\"}"}`},
		{"args as a text", `{"action": "write_file", "args": "{\"file_path\": \"/a\", \"content\": \"x\"}"}`, args},
	}
	for _, c := range cases {
		a, p := action.Parse(c.text, specs)
		if p != "" || a.Name != "write_file" || string(a.Args) != c.args || a.Done || a.Raw != c.text {
			t.Errorf("%s: %q, %+v", c.name, p, a)
		}
	}
	for _, text := range []string{`{"action": "list_files"}`, `{"action": "list_files", "args": null}`, `{"action": "list_files", "args": {}}`} {
		if a, p := action.Parse(text, specs); p != "" || string(a.Args) != "{}" {
			t.Errorf("%s: %q, %+v", text, p, a)
		}
	}
}

func TestParse_done(t *testing.T) {
	cases := []struct{ text, want string }{
		{`{"done": true, "result": "all well"}`, "all well"},
		{`{"done": true, "result": {"ok": true}}`, `{"ok": true}`},
		{`{"done": true, "result": null}`, ""},
		{`{"done": true}`, ""},
		{"```json\n{\"done\": true, \"result\": \"two\nlines\"}\n```", "two\nlines"},
	}
	for _, c := range cases {
		a, p := action.Parse(c.text, specs)
		if p != "" || !a.Done || a.Text() != c.want {
			t.Errorf("%s: %q, %+v", c.text, p, a)
		}
	}
}

func TestParse_saysExactlyWhatIsWrong(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"nothing", "", "Your reply is empty."},
		{"only thoughts", "<think>hm</think>  ", "Your reply is empty."},
		{"prose", "I am done.", `There is no JSON object with "action" or "done"`},
		{"a list", `[1]`, `There is no JSON object`},
		{"another object", `{"x": 1}`, `There is no JSON object with "action" or "done"`},
		{"two actions", good + "\n" + good, "There are 2 JSON objects in your reply; one action at a time."},
		{"two fences", "```\n" + good + "\n```\n```\n" + good + "\n```", "There are 2 JSON objects"},
		{"an action and the end", good + `{"done": true}`, "There are 2 JSON objects"},
		{"an invented result", good + "\nResult: {\"exit\": 0}", `There is something behind the JSON object: "Result: {\"exit\": 0}".`},
		{"a brace too many", good + "}", `There is something behind the JSON object: "}".`},
		{"cut off", good[:40], "is cut off: it is never closed"},
		{"cut off in a text", `{"action": "write_file", "args": {"file_path": "/a", "content": "xxxx`, "is cut off"},
		{"cut off behind a good one", good + ` {"action": "li`, "is cut off"},
		{"single quotes", `{'action': 'list_files'}`, `The JSON in your reply is wrong: invalid character '\'' looking for`},
		{"a missing comma", `{"action": "list_files" "args": {}}`, "The JSON in your reply is wrong: invalid character '\"' after object key:value pair, near"},
		{"a trailing comma", `{"action": "list_files", "args": {},}`, "The JSON in your reply is wrong:"},
		{"a bad escape", `{"action": "list_files", "args": {"path": "\d"}}`, "The JSON in your reply is wrong: invalid character 'd' in string escape code"},
		{"a broken one beside a good one", `{"action": "list_files", } ` + good, "The JSON in your reply is wrong"},
		{"both", `{"action": "list_files", "done": true}`, `There is both an action and "done"`},
		{"neither", `{"done": false}`, `There is neither an action nor "done": true.`},
		{"done as a text", `{"done": "yes"}`, `"done" should be true or false.`},
		{"an action that is no text", `{"action": 1}`, `"action" should be the name of a tool`},
		{"an unknown tool", `{"action": "write_fiel", "args": {}}`, `There is no tool "write_fiel"; did you mean "write_file"? The tools are: write_file, list_files.`},
		{"args missing", `{"action": "write_file"}`, `The args of write_file lack "file_path" and "content".`},
		{"an arg missing", `{"action": "write_file", "args": {"content": ""}}`, `The args of write_file lack "file_path".`},
		{"args as a list", `{"action": "list_files", "args": []}`, `"args" of list_files should be a JSON object.`},
		{"args as a text that is no JSON", `{"action": "list_files", "args": "x"}`, `"args" of list_files should be a JSON object.`},
		{"args outside", `{"action": "list_files", "path": "/", "mode": 1}`, `The keys "mode", "path" do not belong beside "action"; arguments stand inside of "args".`},
		{"a key twice", `{"action": "list_files", "action": "write_file"}`, `The key "action" is there twice.`},
		{"too deep", `{"action": "list_files", "args": {"path": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, "nested deeper than 48"},
		{"too deep in a text", `{"action": "list_files", "args": "` + strings.Repeat("[", 100) + `"}`, "nested deeper than 48"},
		{"enormous", strings.Repeat("x", 1<<20+1), "larger than 1024 KiB"},
		{"many braces", strings.Repeat("{", 10000), "nested deeper than 48"},
	}
	for _, c := range cases {
		a, p := action.Parse(c.text, specs)
		if !strings.Contains(string(p), c.want) || !strings.HasSuffix(string(p), `{"done": true, "result": …}.`) {
			t.Errorf("%s: %q\nwant %s", c.name, p, c.want)
		}
		if a.Name != "" || a.Done {
			t.Errorf("%s: acts all the same: %+v", c.name, a)
		}
	}
}

func TestEncode_makesTextOfCallsAndResults(t *testing.T) {
	a, p := action.Parse("```json\n"+good+"\n```", specs)
	if p != "" {
		t.Fatal(p)
	}
	blocks := a.Blocks()
	blocks[0].Call.ID = "call_1"
	image := llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Hash: "x"}}
	messages := []llm.Message{
		llm.User("Write it."),
		{Role: llm.RoleAssistant, Blocks: blocks},
		llm.Results(llm.Result{CallID: "call_1", Name: "write_file", Blocks: []llm.Block{llm.Text("Written.")}}),
		llm.Assistant(llm.Text("First look."), llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "2", Name: "list_files", Args: json.RawMessage(`{"path": "/"}`)}}),
		{Role: llm.RoleUser, Cache: true, Blocks: append(llm.Results(
			llm.Result{CallID: "2", Name: "list_files", Failed: true, Blocks: []llm.Block{llm.Text("no"), image}},
			llm.Result{CallID: "3", Name: "list_files"}).Blocks, llm.Text("Hurry."))},
		llm.Assistant(llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "4", Name: "x", Args: json.RawMessage(`"{broken"`), Raw: true}}),
	}
	want := []llm.Message{
		llm.User("Write it."),
		llm.Assistant(llm.Text("```json\n" + good + "\n```")),
		llm.User("<result of=\"write_file\">\nWritten.\n</result>"),
		llm.Assistant(llm.Text("First look.\n\n{\"action\": \"list_files\", \"args\": {\"path\":\"/\"}}")),
		{Role: llm.RoleUser, Cache: true, Blocks: []llm.Block{llm.Text("<failure of=\"list_files\">\nno\n</failure>"), image, llm.Text("<result of=\"list_files\">\n(nothing)\n</result>\n\nHurry.")}},
		llm.Assistant(llm.Text(`{"action": "x", "args": "{broken"}`)),
	}
	before, _ := json.Marshal(messages)
	got := action.New(specs).Encode(messages)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if after, _ := json.Marshal(messages); string(before) != string(after) {
		t.Error("Encode changed the messages that it was given")
	}
	for _, m := range got {
		if len(m.Calls()) > 0 {
			t.Errorf("a call is left in %+v", m)
		}
	}
	// What is shown for a call is what Parse takes.
	again, p := action.Parse(got[3].String(), specs)
	if p != "" || again.Name != "list_files" {
		t.Errorf("%q, %+v", p, again)
	}
}

func TestSystem_showsEveryTool(t *testing.T) {
	text := action.New(specs).System(specs)
	for _, want := range []string{"## write_file\nWrites a file.\nargs: {", `"required":["file_path","content"]`, "## list_files\n", `{"done": true, "result":`} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if text != action.New(specs).System(specs) {
		t.Error("twice is not the same")
	}
	if !strings.Contains(action.New(nil).System(nil), "There are none.") {
		t.Error("no tools")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{good, "```json\n" + good + "\n```", `{"done": true}`, `{"action":"list_files","args":"{}"}`, "<think>{", `{"a\u0063tion":"list_files"}`, "{\"action\": \"list_files\",\n\"args\": {\"path\": \"a\nb\"}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, p := action.Parse(text, specs)
		if p != "" {
			return
		}
		if a.Done {
			a.Text()
			return
		}
		var args map[string]json.RawMessage
		if err := json.Unmarshal(a.Args, &args); err != nil || args == nil {
			t.Fatalf("%s is no object", a.Args)
		}
		// Its own encoding is the same action again.
		m := llm.Assistant(llm.Block{Kind: llm.KindCall, Call: &llm.Call{Name: a.Name, Args: a.Args}})
		b, p := action.Parse(action.New(specs).Encode([]llm.Message{m})[0].String(), specs)
		if p != "" || b.Name != a.Name || string(b.Args) != string(a.Args) {
			t.Fatalf("%+v became %+v (%s)", a, b, p)
		}
	})
}

func TestWritten_isWhatParseTakes(t *testing.T) {
	for _, text := range []string{"all well", "two\n\"lines\"", "", `{"ok": true}`, "{not json"} {
		a, p := action.Parse(action.Written(llm.Assistant(llm.Text(text))).String(), specs)
		want := text
		if json.Valid([]byte(text)) {
			want = strings.ReplaceAll(text, " ", "")
		}
		if p != "" || !a.Done || a.Text() != want {
			t.Errorf("%q: %q, %+v", text, p, a)
		}
	}
	call := llm.Assistant(llm.Block{Kind: llm.KindCall, Call: &llm.Call{Name: "list_files", Args: json.RawMessage(`{}`)}})
	if a, p := action.Parse(action.Written(call).String(), specs); p != "" || a.Name != "list_files" {
		t.Errorf("%q, %+v", p, a)
	}
	req := &llm.Request{System: []llm.Block{llm.Text("x\n\n" + action.New(specs).System(specs))}}
	if !action.Wanted(req) || action.Wanted(&llm.Request{System: []llm.Block{llm.Text("x")}}) {
		t.Error("Wanted is wrong")
	}
}

// The form of replies is one that a server can hold a model to: each good reply fits,
// and nothing that this package refuses as a whole.
func TestSchema(t *testing.T) {
	schema := action.New(specs).Schema(specs)
	c := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("reply.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("reply.json")
	if err != nil {
		t.Fatal(err)
	}
	for reply, want := range map[string]bool{
		`{"action":"write_file","args":{"file_path":"/a","content":"x"}}`: true, `{"action":"write_file","args":{}}`: true,
		`{"done":true,"result":"It is done."}`: true, `{"done":true,"result":{"n":1}}`: true, `{"done":true,"result":null}`: true,
		`{"action":"no_such_tool","args":{}}`: false, `{"action":"write_file"}`: false, `{"done":false,"result":"x"}`: false, `{"done":true}`: false,
		`{"action":"write_file","args":{},"done":true,"result":"x"}`: false, `[]`: false, `"text"`: false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(reply))
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled.Validate(v) == nil; got != want {
			t.Errorf("%s: %v", reply, got)
		}
	}
	if none := action.New(nil).Schema(nil); !json.Valid(none.Schema) || strings.Contains(string(none.Schema), "anyOf") {
		t.Errorf("without tools: %s", none.Schema)
	}
}
