package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm/catalog"
)

// Bounds of what is in a request, so that a hostile one does not fill the memory.
const (
	nodesMax = 500_000
	depthMax = 100
)

// Of what a request may cost at most.
const (
	bytesPerToken = 3     // of JSON; fewer would be said of no language
	mediaTokens   = 3_000 // of an image or a page, whatever its size
	pageBytes     = 64 << 10
	pagesMax      = 600 // of a document, which vendors refuse beyond
	repliesMax    = 8
)

// asked is a request, as far as it must be understood. Keys that are twice in an object
// are refused anywhere: which of them counts is for each reader another.
type asked struct {
	model      string
	begin, end int // of the model's name in the body
	root       map[string]any
	bytes      int
}

// parse reads a request. Invalid.
func parse(d dialect, body []byte) (asked, error) {
	p := &parser{d: json.NewDecoder(bytes.NewReader(body)), body: body}
	p.d.UseNumber()
	v, err := p.value(0)
	if err != nil {
		return asked{}, err
	}
	if _, err := p.d.Token(); err != io.EOF {
		return asked{}, errs.New(errs.Invalid, "something follows the request's JSON")
	}
	root, ok := v.(map[string]any)
	if !ok {
		return asked{}, errs.New(errs.Invalid, "the request is no object of JSON")
	}
	a := asked{begin: p.begin, end: p.end, root: root, bytes: len(body)}
	if a.model, ok = root["model"].(string); !ok || a.model == "" {
		return asked{}, errs.New(errs.Invalid, "the request names no model")
	}
	return a, d.counts(root)
}

// parser reads a tree. It notes where the model's name is.
type parser struct {
	d          *json.Decoder
	body       []byte
	nodes      int
	begin, end int
}

func (p *parser) value(depth int) (any, error) {
	if p.nodes++; p.nodes > nodesMax || depth > depthMax {
		return nil, errs.New(errs.Invalid, "the request has more than %d values, or is nested more than %d deep", nodesMax, depthMax)
	}
	t, err := p.d.Token()
	if err != nil {
		return nil, errs.New(errs.Invalid, "the request is no JSON: %v", err)
	}
	switch t {
	case json.Delim('{'):
		return p.object(depth)
	case json.Delim('['):
		list := []any{}
		for p.d.More() {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, p.closing()
	}
	return t, nil
}

func (p *parser) object(depth int) (any, error) {
	m := map[string]any{}
	for p.d.More() {
		t, err := p.d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return nil, errs.New(errs.Invalid, "the request is no JSON: %v", err)
		}
		if _, twice := m[key]; twice {
			return nil, errs.New(errs.Invalid, "%.40q is twice in an object", key)
		}
		at := int(p.d.InputOffset())
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if _, isText := v.(string); depth == 0 && key == "model" && isText {
			p.end = int(p.d.InputOffset())
			p.begin = at + bytes.IndexByte(p.body[at:p.end], '"')
		}
		m[key] = v
	}
	return m, p.closing()
}

func (p *parser) closing() error {
	if _, err := p.d.Token(); err != nil {
		return errs.New(errs.Invalid, "the request is no JSON: %v", err)
	}
	return nil
}

// named returns the body with another name of the model, and nothing else changed.
func (a asked) named(body []byte, id string) []byte {
	if a.model == id {
		return body
	}
	text, err := json.Marshal(id)
	if err != nil { // a name that is no text does not get here
		return body
	}
	return slices.Concat(body[:a.begin], text, body[a.end:])
}

// most is what a call may cost at most, and how many of its tokens are the request's.
func (a asked) most(e catalog.Endpoint) (amount, int64) {
	media, mediaBytes := weigh([]any{a.root["messages"], a.root["input"]})
	out := int64(e.OutputTokensMax)
	if out <= 0 {
		out = outputDefault
	}
	for _, key := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens"} {
		if n, ok := number(a.root[key]); ok {
			out = min(out, n)
		}
	}
	if n, ok := number(a.root["n"]); ok {
		out *= n
	}
	in := int64((a.bytes-mediaBytes)/bytesPerToken + media*mediaTokens)
	price := e.Price
	return amount{calls: 1, tokens: in + out, cost: (float64(in)*max(price.Input, price.CacheWrite) + float64(out)*price.Output) / 1e6}, in
}

// counts refuses numbers of which a cost cannot be told.
func (d dialect) counts(root map[string]any) error {
	for _, key := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens", "n"} {
		v, there := root[key]
		if !there || v == nil {
			continue
		}
		n, ok := number(v)
		if !ok || n < 1 {
			return errs.New(errs.Invalid, "%s is no number above 0", key)
		}
		if key == "n" && n > repliesMax {
			return errs.New(errs.Invalid, "n is more than %d", repliesMax)
		}
	}
	return nil
}

func number(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// weigh counts the images and pages that are in messages at most, and their bytes. What is
// where a vendor takes it for text is none.
func weigh(v any) (count, size int) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			n, s := weigh(x)
			count, size = count+n, size+s
		}
	case map[string]any:
		if n, s := media(v); s > 0 {
			return n, s
		}
		for _, key := range []string{"content", "output", "source"} {
			n, s := weigh(v[key])
			count, size = count+n, size+s
		}
	}
	return count, size
}

// media counts what is in an object that is an image or a document.
func media(m map[string]any) (count, size int) {
	file, _ := m["file"].(map[string]any)
	for _, v := range []any{m["data"], urlOf(m["image_url"]), m["file_data"], file["file_data"]} {
		data, _ := v.(string)
		kind, ok := strings.CutPrefix(data, "data:")
		if !ok && m["type"] == "base64" {
			kind, _ = m["media_type"].(string)
		}
		switch {
		case strings.HasPrefix(kind, "image/"):
			return 1, len(data)
		case strings.HasPrefix(kind, "application/pdf"):
			return 1 + min(len(data)/pageBytes, pagesMax), len(data)
		}
	}
	return 0, 0
}
