package gateway

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm/catalog"
)

// Of what a request may cost at most.
const (
	bytesPerToken = 3     // of JSON; fewer would be said of no language
	mediaTokens   = 3_000 // of an image or a page, whatever its size
	pageBytes     = 64 << 10
	pagesMax      = 600 // of a document, which vendors refuse beyond
	repliesMax    = 8
)

// asked is a request, as far as it must be understood.
type asked struct {
	model      string
	begin, end int // of the model's name in the body
	root       object
	bytes      int
}

// parse reads a request. Invalid. Its text stays that of body.
func parse(d dialect, body []byte) (asked, error) {
	a := asked{bytes: len(body)}
	s := scanner{in: body, onField: func(key string, v any, begin, end int) {
		if name, ok := v.(text); ok && key == "model" {
			a.model, a.begin, a.end = name.String(), begin, end
		}
	}}
	v, err := s.scan()
	if err != nil {
		return asked{}, err
	}
	var ok bool
	switch a.root, ok = v.(object); {
	case !ok:
		return asked{}, errs.New(errs.Invalid, "the request is no object of JSON")
	case a.model == "":
		return asked{}, errs.New(errs.Invalid, "the request names no model")
	}
	return a, d.counts(a.root)
}

// textOf is what a value says, if it is text.
func textOf(v any) string {
	if t, ok := v.(text); ok {
		return t.String()
	}
	return ""
}

// named returns the body with another name of the model, and nothing else changed. It is
// written into the body where there is room: what was read of it means nothing after that.
func (a asked) named(body []byte, id string) []byte {
	if a.model == id {
		return body
	}
	text, err := json.Marshal(id)
	if err != nil { // a name that is no text does not get here
		return body
	}
	return slices.Replace(body, a.begin, a.end, text...)
}

// most is what a call may cost at most, and how many of its tokens are the request's.
func (a asked) most(e catalog.Endpoint) (amount, int64) {
	media, mediaBytes := weigh([]any{a.root.of("messages"), a.root.of("input")})
	out := int64(e.OutputTokensMax)
	if out <= 0 {
		out = outputDefault
	}
	for _, key := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens"} {
		if n, ok := number(a.root.of(key)); ok {
			out = min(out, n)
		}
	}
	if n, ok := number(a.root.of("n")); ok {
		out *= n
	}
	in := int64((a.bytes-mediaBytes)/bytesPerToken + media*mediaTokens)
	if a.root.of("previous_response_id") != nil || a.root.of("conversation") != nil { // what the vendor has kept is in it too
		in = max(in, int64(e.WindowTokens))
	}
	price := e.Price
	return amount{calls: 1, tokens: in + out, cost: (float64(in)*max(price.Input, price.CacheWrite) + float64(out)*price.Output) / 1e6}, in
}

// counts refuses numbers of which a cost cannot be told.
func (d dialect) counts(root object) error {
	for _, key := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens", "n"} {
		v := root.of(key)
		if v == nil {
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
	case object:
		if n, s := media(v); s > 0 {
			return n, s
		}
		for _, key := range []string{"content", "output", "source"} {
			n, s := weigh(v.of(key))
			count, size = count+n, size+s
		}
	}
	return count, size
}

// media counts what is in an object that is an image or a document.
func media(m object) (count, size int) {
	file, _ := m.of("file").(object)
	for _, v := range []any{m.of("data"), urlOf(m.of("image_url")), m.of("file_data"), file.of("file_data")} {
		data, _ := v.(text)
		kind, ok := bytes.CutPrefix(data.raw, []byte("data:"))
		if !ok && textOf(m.of("type")) == "base64" {
			kind = []byte(textOf(m.of("media_type")))
		}
		switch {
		case bytes.HasPrefix(kind, []byte("image/")):
			return 1, len(data.raw)
		case bytes.HasPrefix(kind, []byte("application/pdf")):
			return 1 + min(len(data.raw)/pageBytes, pagesMax), len(data.raw)
		}
	}
	return 0, 0
}
