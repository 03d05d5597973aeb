package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// This file signs requests for Amazon's services and those like them anew: a program in a
// sandbox signs with words that stand for its keys, and the host signs the same request with
// the real ones (Signature Version 4, AWS General Reference). The keys are in no request.

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	awsSession   = "X-Amz-Security-Token"
	awsContent   = "X-Amz-Content-Sha256"
	awsDate      = "X-Amz-Date"

	// awsBodyMax is how much of a body is held to hash it, where the program has not said
	// its hash. Storage services always say it.
	awsBodyMax = 16 << 20
)

// awsKeys are the parts of a value: ID:SECRET, or ID:SECRET:SESSION.
type awsKeys struct{ id, secret, session string }

func parseAWS(value string) (k awsKeys, ok bool) {
	parts := strings.SplitN(value, ":", 3)
	if len(parts) < 2 || slices.Contains(parts, "") || strings.ContainsAny(value, " \t\r\n\x00") {
		return k, false
	}
	k.id, k.secret = parts[0], parts[1]
	if len(parts) == 3 {
		k.session = parts[2]
	}
	return k, true
}

// Signs reports whether the secret is not sent itself, but signs what is.
func (h Held) Signs() bool { return h.Grant.As == AWS }

// Sign signs a request anew that the program has signed; one that it has not stays as it is.
// The request is what the host will get, but for the headers that a transport adds. Errors
// are for people.
func (h Held) Sign(r *http.Request) error {
	k, ok := parseAWS(h.value.text)
	if !ok {
		return errors.New("the secret is no ID:SECRET")
	}
	said, ok := strings.CutPrefix(r.Header.Get("Authorization"), awsAlgorithm+" ")
	if !ok {
		if r.URL.Query().Get("X-Amz-Algorithm") == awsAlgorithm {
			return errors.New("links that are signed cannot be signed anew: let the program sign its requests by a header")
		}
		return nil
	}
	s, err := parseScope(said)
	if err != nil {
		return err
	}
	if s.time = r.Header.Get(awsDate); s.time == "" {
		return errors.New("a signed request without X-Amz-Date cannot be signed anew")
	}
	body, err := bodyHash(r)
	if err != nil {
		return err
	}
	if r.Header.Del(awsSession); k.session != "" {
		r.Header.Set(awsSession, k.session)
	}
	names := s.headers(r)
	canonical := strings.Join([]string{r.Method, s.path(r.URL), canonicalQuery(r.URL.RawQuery), canonicalHeaders(r, names), strings.Join(names, ";"), body}, "\n")
	r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%s", awsAlgorithm, k.id, s, strings.Join(names, ";"), s.sign(k.secret, canonical)))
	return nil
}

// scope is what a signature is for.
type scope struct {
	day, region, service string
	time                 string
	signed               []string // headers, as the program has signed them
}

// String is the scope as a credential has it.
func (s scope) String() string {
	return strings.Join([]string{s.day, s.region, s.service, "aws4_request"}, "/")
}

// parseScope reads an Authorization header, behind the algorithm.
func parseScope(text string) (s scope, err error) {
	wrong := errors.New("its signature is none of " + awsAlgorithm)
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			f := strings.Split(value, "/") // a key's ID has no slash; that of a placeholder neither
			if len(f) != 5 || f[4] != "aws4_request" || slices.Contains(f, "") {
				return s, wrong
			}
			s.day, s.region, s.service = f[1], f[2], f[3]
		case "SignedHeaders":
			s.signed = strings.Split(strings.ToLower(value), ";")
		}
	}
	if s.day == "" || len(s.signed) == 0 {
		return s, wrong
	}
	return s, nil
}

// headers are those that are signed: what the program has signed and is still there, and
// what has to be.
func (s scope) headers(r *http.Request) []string {
	names := []string{"host"}
	for name := range r.Header {
		name = strings.ToLower(name)
		if strings.HasPrefix(name, "x-amz-") || name != "authorization" && slices.Contains(s.signed, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func canonicalHeaders(r *http.Request, names []string) string {
	var b strings.Builder
	for _, name := range names {
		values := slices.Clone(r.Header.Values(name))
		if name == "host" {
			values = []string{r.Host}
		}
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	return b.String()
}

// path is the canonical one: the storage service takes it as it was sent, the others encode
// it once more.
func (s scope) path(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		return "/"
	}
	if plain, err := url.PathUnescape(path); err == nil {
		path = awsEscape(plain, true)
	}
	if s.service == "s3" || s.service == "s3-object-lambda" || s.service == "s3express" {
		return path
	}
	return awsEscape(path, true)
}

func canonicalQuery(raw string) string {
	var parts []string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		parts = append(parts, awsQuery(name)+"="+awsQuery(value))
	}
	slices.SortFunc(parts, func(a, b string) int {
		an, av, _ := strings.Cut(a, "=")
		bn, bv, _ := strings.Cut(b, "=")
		if c := strings.Compare(an, bn); c != 0 {
			return c
		}
		return strings.Compare(av, bv)
	})
	return strings.Join(parts, "&")
}

func awsQuery(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		s = plain
	}
	return awsEscape(s, false)
}

// awsEscape encodes all but letters, digits and -._~, and perhaps slashes.
func awsEscape(s string, slash bool) string {
	const hexits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, slash && c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hexits[c>>4], hexits[c&15]})
		}
	}
	return b.String()
}

// bodyHash is that of the body as it is to be signed: what the program says it is, or the
// hash of the body, which is held for that.
func bodyHash(r *http.Request) (string, error) {
	said := r.Header.Get(awsContent)
	switch {
	case strings.HasPrefix(said, "STREAMING-") && !strings.HasPrefix(said, "STREAMING-UNSIGNED-"):
		return "", errors.New("it signs its body in pieces, which cannot be signed anew: let the program send it unsigned (over TLS most do), or whole")
	case said != "":
		return said, nil
	}
	if r.Body == nil || r.Body == http.NoBody {
		return hexSum(nil), nil
	}
	held, err := io.ReadAll(io.LimitReader(r.Body, awsBodyMax+1))
	if err != nil {
		return "", errors.New("its body could not be read")
	}
	if len(held) > awsBodyMax {
		return "", fmt.Errorf("its body is larger than %d MB, and it does not say the hash of it", awsBodyMax>>20)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(held), r.Body}
	return hexSum(held), nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sign is the signature of a canonical request.
func (s scope) sign(secret, canonical string) string {
	text := strings.Join([]string{awsAlgorithm, s.time, s.String(), hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.day, s.region, s.service, "aws4_request"} {
		key = hmacOf(key, part)
	}
	return hex.EncodeToString(hmacOf(key, text))
}

func hmacOf(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}
