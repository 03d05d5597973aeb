package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// The API of Google is unlike the others: the model and what is asked of it are in the path,
// and its server takes fooBar and foo_bar for the same field.

// keyInvalid is how Google says, with status 400, that it does not know a key.
const keyInvalid = "API_KEY_INVALID"

// generateRoute finds what a request is for by its path behind the door's; false: nothing.
func generateRoute(said *http.Request, path string) (route, bool) {
	r, method := route{dialect: generate}, said.Method
	version, rest, _ := strings.Cut(path, "/")
	if version != "v1" && version != "v1beta" {
		return r, false
	}
	if method == http.MethodGet && rest == "models" {
		r.list = true
		return r, true
	}
	rest, ok := strings.CutPrefix(rest, "models/")
	i := strings.LastIndexByte(rest, ':') // a name may have one too
	if method != http.MethodPost || !ok || i < 0 || !plainPath(rest[:i]) {
		return r, false
	}
	switch call := rest[i+1:]; call {
	case "generateContent", "streamGenerateContent", "countTokens":
		r.version, r.model, r.call, r.count = version, rest[:i], call, call == "countTokens"
		r.events = call == "streamGenerateContent" && said.URL.Query().Get("alt") == "sse"
		return r, true
	}
	return r, false
}

// plainPath reports whether a path names the same thing to all who read it.
func plainPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// fold makes one of the ways in which a field may be written.
func fold(key string) string {
	return strings.ToLower(strings.ToUpper(strings.ReplaceAll(key, "_", ""))) // odd letters too
}

// folded returns an object by the folded names of its fields. Invalid: it has one in two ways,
// of which readers may take either.
func folded(o object) (map[string]any, error) {
	out := make(map[string]any, len(o))
	for _, f := range o {
		name := fold(string(f.key))
		if _, twice := out[name]; twice {
			return nil, errs.New(errs.Invalid, "%.40q is twice in an object", f.key)
		}
		out[name] = f.value
	}
	return out, nil
}

// foldedOf is folded of a field of an object; nil: there is none.
func foldedOf(o object, name string) map[string]any {
	for _, f := range o {
		if in, ok := f.value.(object); ok && fold(string(f.key)) == name {
			m, _ := folded(in) // what has a field twice is refused
			return m
		}
	}
	return nil
}

// generationConfig is what the request says about the answer.
func (a asked) generationConfig() map[string]any { return foldedOf(a.root, "generationconfig") }

// generateFields are all that a request may have. Another one may bring in what is not to be
// seen from here: cachedContent, or what the vendor will think of.
var generateFields = []string{"contents", "systeminstruction", "tools", "toolconfig", "safetysettings", "generationconfig", "servicetier"}

// checkGenerate is check of Google's API. Denied, Invalid.
func (a asked) checkGenerate() error {
	root, err := folded(a.root)
	if err != nil {
		return err
	}
	for _, f := range a.root {
		if !slices.Contains(generateFields, fold(string(f.key))) && f.value != nil {
			return errs.New(errs.Denied, "%.40q is not allowed here: the model is in the path, and what else it would bring is not known", f.key)
		}
	}
	if v := root["servicetier"]; v != nil && !slices.Contains([]string{"standard", "flex"}, strings.ToLower(textOf(v))) {
		return errs.New(errs.Denied, "this serviceTier is not allowed here: what it costs is not known")
	}
	if err := generateTools(root["tools"]); err != nil {
		return err
	}
	if err := generateConfig(root["generationconfig"]); err != nil {
		return err
	}
	return walkContents([]any{root["contents"], root["systeminstruction"]}, func(m map[string]any) error {
		if m["filedata"] != nil || m["fileuri"] != nil {
			return errs.New(errs.Denied, "fileData is not allowed here: the vendor would fetch it, where this sandbox may not. Send what is there instead, as inlineData")
		}
		return nil
	})
}

// listOf is a list, or the one element that Google takes for a list of it.
func listOf(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// generateTools refuses tools that the vendor would run. What a program does itself are
// functions, and the use of a computer.
func generateTools(v any) error {
	for _, t := range listOf(v) {
		o, ok := t.(object)
		if !ok {
			return errs.New(errs.Invalid, "a tool is no object")
		}
		for _, f := range o {
			if name := fold(string(f.key)); name != "functiondeclarations" && name != "computeruse" && f.value != nil {
				return errs.New(errs.Denied, "the tool %.60q is not allowed here: the vendor would run it, where this sandbox may not reach", f.key)
			}
		}
	}
	return nil
}

// generateConfig refuses answers whose cost is not told by the price of text.
func generateConfig(v any) error {
	if v == nil {
		return nil
	}
	o, ok := v.(object)
	if !ok {
		return errs.New(errs.Invalid, "generationConfig is no object")
	}
	config, err := folded(o)
	if err != nil {
		return err
	}
	for _, kind := range listOf(config["responsemodalities"]) {
		if !strings.EqualFold(textOf(kind), "text") {
			return errs.New(errs.Denied, "answers that are no text are not allowed here: what they cost is not known")
		}
	}
	return nil
}

// walkContents calls f with the folded objects of contents. What a function was called with,
// and what it answered, is data and is left out; the files beside an answer are not.
func walkContents(v any, f func(map[string]any) error) error {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if err := walkContents(x, f); err != nil {
				return err
			}
		}
	case object:
		m, err := folded(v)
		if err != nil {
			return err
		}
		return walkFolded(m, f)
	}
	return nil
}

// walkFolded is walkContents of an object.
func walkFolded(m map[string]any, f func(map[string]any) error) error {
	err := f(m)
	for key, x := range m {
		if err != nil {
			return err
		}
		answer, is := x.(object)
		switch {
		case key == "functioncall":
		case key == "functionresponse" && is:
			var in map[string]any
			if in, err = folded(answer); err == nil {
				delete(in, "response")
				err = walkFolded(in, f)
			}
		default:
			err = walkContents(x, f)
		}
	}
	return err
}

// weighGenerate counts the images and pages that are in a request at most, and their bytes.
func weighGenerate(request object) (count, size int) {
	root, _ := folded(request)
	_ = walkContents(root["contents"], func(m map[string]any) error {
		data, _ := m["data"].(text)
		n, s := pages([]byte(textOf(m["mimetype"])), len(data.raw))
		count, size = count+n, size+s
		return nil
	})
	return count, size
}

// saidGenerate is where Google tells what a reply cost, and that it is whole.
type saidGenerate struct {
	Candidates []struct {
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Feedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage struct {
		Prompt     *int `json:"promptTokenCount"` // with what was cached
		ToolPrompt int  `json:"toolUsePromptTokenCount"`
		Cached     int  `json:"cachedContentTokenCount"`
		Candidates int  `json:"candidatesTokenCount"`
		Thoughts   int  `json:"thoughtsTokenCount"` // beside those
	} `json:"usageMetadata"`
}

// learnGenerate is learn of Google's answers; a stream that is no events is a list of them.
func (m *meter) learnGenerate(data []byte) {
	var all []saidGenerate
	if json.Unmarshal(data, &all) != nil {
		all = make([]saidGenerate, 1)
		if json.Unmarshal(data, &all[0]) != nil {
			return
		}
	}
	for _, s := range all {
		u := s.Usage
		if u.Prompt != nil {
			input := max(*u.Prompt, 0) + max(u.ToolPrompt, 0)
			thoughts := max(u.Thoughts, m.told.Reasoning)
			output := max(m.told.Output-m.told.Reasoning, u.Candidates)
			m.told.Input, m.told.Reasoning, m.told.Output = max(m.told.Input, input), thoughts, output+thoughts
			m.told.CacheRead = max(m.told.CacheRead, u.Cached)
		}
		for _, c := range s.Candidates {
			m.final = m.final || u.Prompt != nil && c.FinishReason != ""
		}
		m.final = m.final || u.Prompt != nil && s.Feedback.BlockReason != ""
	}
}

// generateStatus is how Google calls a status.
func generateStatus(status int) string {
	name := map[int]string{
		http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
		http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusBadGateway: "UNAVAILABLE", http.StatusServiceUnavailable: "UNAVAILABLE",
	}[status]
	if name == "" {
		return "INTERNAL"
	}
	return name
}

// listGenerate answers with the models that the sandbox may use.
func (d *door) listGenerate(w http.ResponseWriter, r *http.Request) {
	type model struct {
		Name    string   `json:"name"`
		Display string   `json:"displayName"`
		Input   int      `json:"inputTokenLimit,omitempty"`
		Output  int      `json:"outputTokenLimit,omitempty"`
		Calls   []string `json:"supportedGenerationMethods"`
	}
	list := []model{}
	for _, name := range d.c.Grant.Models {
		if e, err := d.g.c.Models.Endpoint(r.Context(), name); err == nil && generate.speaks(e.Vendor) {
			list = append(list, model{"models/" + name, e.ID, e.WindowTokens, e.OutputTokensMax, []string{"generateContent", "countTokens"}})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"models": list})
}
