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
	dialect    dialect
	model      string
	begin, end int // of the model's name in the body; 0: it is in the path
	root       object
	bytes      int
}

// parse reads a request; of the dialect generate, the caller knows the model. Invalid. Its
// text stays that of body.
func parse(d dialect, body []byte) (asked, error) {
	a := asked{dialect: d, bytes: len(body)}
	s := scanner{in: body, onField: func(key string, v any, begin, end int) {
		if name, ok := v.(text); ok && key == "model" && d != generate {
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
	case a.model == "" && d != generate:
		return asked{}, errs.New(errs.Invalid, "the request names no model")
	}
	return a, a.counts()
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
	if a.model == id || a.end == 0 {
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
	media, mediaBytes := a.media()
	out := int64(e.OutputTokensMax)
	if out <= 0 {
		out = outputDefault
	}
	of, lengths, replies := a.bounds()
	for _, key := range lengths {
		if n, ok := number(of(key)); ok {
			out = min(out, n)
		}
	}
	if n, ok := number(of(replies)); ok {
		out *= n
	}
	in := int64((a.bytes-mediaBytes)/bytesPerToken + media*mediaTokens)
	if a.root.of("previous_response_id") != nil || a.root.of("conversation") != nil { // what the vendor has kept is in it too
		in = max(in, int64(e.WindowTokens))
	}
	price := e.Price
	return amount{calls: 1, tokens: in + out, cost: (float64(in)*max(price.Input, price.CacheWrite) + float64(out)*price.Output) / 1e6}, in
}

// bounds finds the fields that bound an answer, by what its length and the number of
// replies are called there.
func (a asked) bounds() (of func(key string) any, lengths []string, replies string) {
	if a.dialect == generate {
		config := a.generationConfig()
		return func(key string) any { return config[key] }, []string{"maxoutputtokens"}, "candidatecount"
	}
	return a.root.of, []string{"max_tokens", "max_output_tokens", "max_completion_tokens"}, "n"
}

// media counts the images and pages that are in the request, and their bytes.
func (a asked) media() (count, size int) {
	if a.dialect == generate {
		return weighGenerate(a.root)
	}
	return weigh([]any{a.root.of("messages"), a.root.of("input")})
}

// counts refuses numbers of which a cost cannot be told.
func (a asked) counts() error {
	of, lengths, replies := a.bounds()
	for _, key := range append(lengths, replies) {
		v := of(key)
		if v == nil {
			continue
		}
		n, ok := number(v)
		if !ok || n < 1 {
			return errs.New(errs.Invalid, "%s is no number above 0", key)
		}
		if key == replies && n > repliesMax {
			return errs.New(errs.Invalid, "%s is more than %d", key, repliesMax)
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
		if n, s := pages(kind, len(data.raw)); s > 0 {
			return n, s
		}
	}
	return 0, 0
}

// pages counts what so many bytes of a kind of data are at most.
func pages(kind []byte, bytesOf int) (count, size int) {
	switch {
	case bytes.HasPrefix(kind, []byte("image/")):
		return 1, bytesOf
	case bytes.HasPrefix(kind, []byte("application/pdf")):
		return 1 + min(bytesOf/pageBytes, pagesMax), bytesOf
	}
	return 0, 0
}
