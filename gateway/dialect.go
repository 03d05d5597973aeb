package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm/catalog"
)

// dialect is an API of a vendor.
type dialect int

const (
	messages  dialect = iota // Anthropic's
	responses                // OpenAI's, the newer one
	chat                     // OpenAI's, and that of most servers
	generate                 // Google's
)

// route is what a request is for.
type route struct {
	dialect dialect
	path    string // at the vendor, behind its base URL without a version
	list    bool   // of models
	count   bool   // of tokens

	// In the API of Google the path says these, and the query whether it is to be events.
	version, model, call string
	events               bool
}

// vendorHosts are those of programs that cannot be told another.
var vendorHosts = map[string]string{"api.anthropic.com": "/anthropic", "api.openai.com": "/openai", "generativelanguage.googleapis.com": "/gemini"}

// Hosts are all that the gateway serves.
func Hosts() []string { return append(slices.Sorted(maps.Keys(vendorHosts)), Host) }

// routeOf finds what a request is for; false: nothing, and the dialect is the likeliest.
func routeOf(r *http.Request) (route, bool) {
	host, _, _ := strings.Cut(r.Host, ":")
	path := vendorHosts[strings.ToLower(host)] + r.URL.Path
	likely := route{dialect: chat}
	switch {
	case strings.HasPrefix(path, "/anthropic/"):
		likely.dialect = messages
	case strings.HasPrefix(path, "/gemini/"):
		likely.dialect = generate
	}
	if r.URL.RawPath != "" {
		return likely, false
	}
	switch r.Method + " " + path {
	case "POST /anthropic/v1/messages":
		return route{dialect: messages, path: "/v1/messages"}, true
	case "POST /anthropic/v1/messages/count_tokens":
		return route{dialect: messages, path: "/v1/messages/count_tokens", count: true}, true
	case "GET /anthropic/v1/models":
		return route{dialect: messages, list: true}, true
	case "POST /openai/v1/responses":
		return route{dialect: responses, path: "/v1/responses"}, true
	case "POST /openai/v1/chat/completions":
		return route{dialect: chat, path: "/v1/chat/completions"}, true
	case "GET /openai/v1/models":
		return route{dialect: chat, list: true}, true
	}
	if likely.dialect == generate {
		return generateRoute(r, strings.TrimPrefix(path, "/gemini/"))
	}
	return likely, false
}

// at is what the vendor's address ends with.
func (r route) at(id string) string {
	if r.dialect == generate {
		return r.version + "/models/" + strings.TrimPrefix(id, "models/") + ":" + r.call
	}
	return strings.TrimPrefix(r.path, "/v1/")
}

// speaks reports whether a vendor's models may understand the dialect. Servers that are
// like OpenAI's often understand the others too, and say so themselves.
func (d dialect) speaks(vendor string) bool {
	switch vendor {
	case catalog.Anthropic:
		return d == messages
	case catalog.OpenAI:
		return d == responses || d == chat
	case catalog.Google:
		return d == generate
	case catalog.Compat:
		return true
	}
	return false
}

func doorsOf(vendor string) string {
	if vendor == catalog.Anthropic {
		return "http://" + Host + "/anthropic/v1/messages"
	}
	if vendor == catalog.Google {
		return "http://" + Host + "/gemini/v1beta/models/MODEL:generateContent"
	}
	if vendor == catalog.OpenAI || vendor == catalog.Compat {
		return "http://" + Host + "/openai/v1/chat/completions"
	}
	return "no vendor: it is a script"
}

// Kinds of tools that run in the program that calls, by how their names begin: the
// vendor only says what is to be done.
var ownTools = map[dialect][]string{
	messages:  {"custom", "bash_", "text_editor_", "computer_", "memory_"},
	responses: {"function", "custom", "local_shell", "shell", "apply_patch", "computer_use_preview", "computer"},
	chat:      {"function", "custom"},
}

// remote are fields by which a vendor connects to, or runs, something for the caller.
var remote = []string{"mcp_servers", "container", "web_search_options", "background"}

// check refuses what would make the vendor fetch from places, or run things, for the
// sandbox: its answers and requests would pass by the sandbox's own policy. Denied.
func (a asked) check(d dialect) error {
	if d == generate {
		return a.checkGenerate()
	}
	if err := oddFields(a.root); err != nil {
		return err
	}
	for _, key := range remote {
		if v := a.root.of(key); v != nil && v != false {
			return errs.New(errs.Denied, "%s is not allowed here: the vendor would act where this sandbox may not", key)
		}
	}
	if tier := textOf(a.root.of("service_tier")); tier != "" && !slices.Contains([]string{"auto", "default", "standard_only", "flex"}, tier) {
		return errs.New(errs.Denied, "service_tier %.40q is not allowed here: what it costs is not known", tier)
	}
	if _, stored := a.root.of("prompt").(object); stored {
		return errs.New(errs.Denied, "a stored prompt is not allowed here: what is in it is not known")
	}
	if err := d.tools(a.root.of("tools")); err != nil {
		return err
	}
	for _, key := range []string{"messages", "input", "system", "prompt"} {
		if err := fetches(a.root.of(key)); err != nil {
			return err
		}
	}
	return nil
}

// tools refuses those that the vendor would run.
func (d dialect) tools(v any) error {
	list, _ := v.([]any)
	for _, t := range list {
		m, _ := t.(object)
		if err := oddFields(m); err != nil {
			return err
		}
		kind := textOf(m.of("type"))
		if !m.has("type") && d == messages { // a tool of the caller's own
			continue
		}
		if kind == "namespace" && d == responses { // a name for several
			if err := d.tools(m.of("tools")); err != nil {
				return err
			}
			continue
		}
		if !slices.ContainsFunc(ownTools[d], func(own string) bool {
			return kind == own || strings.HasSuffix(own, "_") && strings.HasPrefix(kind, own)
		}) {
			return errs.New(errs.Denied, "a tool of the type %.60q is not allowed here: the vendor would run it, where this sandbox may not reach", kind)
		}
	}
	return nil
}

// fetches refuses contents that a vendor would fetch: images and documents by their URL.
// What a tool was called with is data, and is not looked at.
func fetches(v any) error {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if err := fetches(x); err != nil {
				return err
			}
		}
	case object:
		if err := oddFields(v); err != nil {
			return err
		}
		for _, key := range []string{"image_url", "file_url", "audio_url", "video_url"} {
			m, _ := v.of(key).(object)
			if err := oddFields(m); err != nil {
				return err
			}
			if u, there := urlOf(v.of(key)).(text); there && !bytes.HasPrefix(u.raw, []byte("data:")) {
				return errs.New(errs.Denied, "%s is not allowed here: the vendor would fetch it, where this sandbox may not. Send what is there instead", key)
			}
		}
		file, _ := v.of("file").(object)
		source, _ := v.of("source").(object)
		for _, m := range []object{v, file, source} {
			if err := oddFields(m); err != nil {
				return err
			}
			if m.of("file_id") != nil {
				return errs.New(errs.Denied, "file_id is not allowed here: whose file it is, is not known. Send what is there instead")
			}
		}
		if source.of("url") != nil {
			return errs.New(errs.Denied, "a source with a URL is not allowed here: the vendor would fetch it, where this sandbox may not. Send what is there instead")
		}
		for _, key := range []string{"content", "output"} {
			if err := fetches(v.of(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// urlOf is the URL that a field is, or has.
func urlOf(v any) any {
	if m, ok := v.(object); ok {
		return m.of("url")
	}
	return v
}

// looked are the fields that are looked at, of requests and in them.
var looked = append([]string{
	"model", "max_tokens", "max_output_tokens", "max_completion_tokens", "n", "service_tier", "prompt", "tools", "messages", "input", "system", "previous_response_id", "conversation",
	"type", "image_url", "file_url", "audio_url", "video_url", "url", "source", "file", "file_id", "content", "output",
}, remote...)

// oddFields refuses an object with a field that some servers take for one that is looked at:
// they do not tell small letters from others. Denied.
func oddFields(m object) error {
	for _, f := range m {
		if small(f.key) {
			continue
		}
		key := string(f.key)
		if slices.ContainsFunc(looked, func(l string) bool { return strings.EqualFold(l, key) }) {
			return errs.New(errs.Denied, "the field %.40q is not allowed here: write it with small letters", key)
		}
	}
	return nil
}

// small reports whether a key is of ASCII without capitals, as all that are looked at: it is
// like no other of them.
func small(key []byte) bool {
	return !bytes.ContainsFunc(key, func(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' })
}

// refuse answers as a vendor does, so that programs understand it.
func refuse(w http.ResponseWriter, d dialect, status int, format string, args ...any) {
	text := "skete: " + fmt.Sprintf(format, args...)
	kind := map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	}[status]
	if kind == "" {
		kind = "api_error"
	}
	var body any = map[string]any{"error": map[string]any{"message": text, "type": kind, "param": nil, "code": nil}}
	switch d {
	case messages:
		body = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}}
	case generate:
		body = map[string]any{"error": map[string]any{"code": status, "message": text, "status": generateStatus(status)}}
	}
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "10")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// list answers with the models that the sandbox may use.
func (d *door) list(w http.ResponseWriter, r *http.Request, of dialect) {
	if of == generate {
		d.listGenerate(w, r)
		return
	}
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object,omitempty"`
		Type    string `json:"type,omitempty"`
		Owner   string `json:"owned_by,omitempty"`
		Display string `json:"display_name,omitempty"`
		Created any    `json:"created,omitempty"`
		Since   string `json:"created_at,omitempty"`
	}
	list := []model{}
	for _, name := range d.c.Grant.Models {
		e, err := d.g.c.Models.Endpoint(r.Context(), name)
		switch {
		case err != nil || !of.speaks(e.Vendor):
		case of == messages:
			list = append(list, model{ID: name, Type: "model", Display: e.ID, Since: "1970-01-01T00:00:00Z"})
		default:
			list = append(list, model{ID: name, Object: "model", Owner: e.Vendor, Created: 1})
		}
	}
	body := map[string]any{"data": list}
	if of == messages {
		body["has_more"] = false
	} else {
		body["object"] = "list"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
