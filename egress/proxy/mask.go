package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"

	"github.com/skete-dev/skete/secret"
)

// ownKeys are headers by which a program in the sandbox could use an account of its own
// where a secret is sent.
var ownKeys = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token", "Private-Token", "Cookie"}

// parts are headers by which a program would get an answer in pieces of its own choice:
// of a secret that is in two of them, neither can be seen to be one.
var parts = []string{"Range", "If-Range"}

// inject puts what is held into a request on its way out.
func inject(r *http.Request, c carried) {
	for _, h := range slices.Concat(ownKeys, overrides, parts) {
		r.Header.Del(h)
	}
	if c.bearer != nil {
		r.Header.Set("Authorization", "Bearer "+c.bearer.Value.Reveal())
	}
	for _, h := range c.sent {
		h.Apply(r)
	}
	if c.endpoint != nil { // some answer with a form otherwise
		r.Header.Set("Accept", "application/json")
	}
	r.Header.Set("Accept-Encoding", "identity") // what is compressed cannot be masked
}

// signer signs requests anew when they are as their host gets them.
type signer struct {
	http.RoundTripper
	with secret.Held
	host string
}

// RoundTrip implements http.RoundTripper.
func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if err := s.with.Sign(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &unreachable{fmt.Sprintf("for %s: %v", s.host, err)}
	}
	return s.RoundTripper.RoundTrip(r)
}

// readable is an error if what was sent could not be found in an answer.
func readable(res *http.Response) error {
	// Of several, a reader may take another one than the first.
	if all := res.Header["Content-Encoding"]; len(all) > 1 || len(all) == 1 && all[0] != "" && !strings.EqualFold(all[0], "identity") {
		return fmt.Errorf("its answer is encoded (%.40q), so that the secret which was sent could not be hidden in it", strings.Join(all, ", "))
	}
	if res.StatusCode == http.StatusPartialContent {
		return errors.New("its answer is a part of one, in which the secret that was sent could not be found")
	}
	return nil
}

// mask hides what was injected in a readable answer: some hosts say what they were sent. Each
// text becomes as many stars, so that lengths stay as they are.
func mask(res *http.Response, needles [][]byte) {
	maskHeader(res.Header, needles)
	body := newMasked(res.Body, needles, func() { maskHeader(res.Trailer, needles) })
	if w, ok := res.Body.(io.Writer); ok { // another protocol goes on
		res.Body = struct {
			io.ReadCloser
			io.Writer
		}{body, w}
	} else {
		res.Body = body
	}
}

func needlesOf(held []secret.Held) (needles [][]byte) {
	for _, h := range held {
		for _, form := range h.Forms() {
			needles = append(needles, []byte(form))
		}
	}
	return needles
}

// hinting masks what a host says before it answers, such as 103 Early Hints.
type hinting struct {
	http.RoundTripper
	needles [][]byte
}

// RoundTrip implements http.RoundTripper.
func (e hinting) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		maskHeader(http.Header(h), e.needles) // before the hook that passes it on is called
		return nil
	}}
	return e.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

func maskHeader(h http.Header, needles [][]byte) {
	for _, values := range h {
		for i, v := range values {
			b := []byte(v)
			stars(b, marks(b, needles))
			values[i] = string(b)
		}
	}
}

// marks says of each byte of b whether it is in a needle. Needles may overlap.
func marks(b []byte, needles [][]byte) []bool {
	in := make([]bool, len(b))
	for _, n := range needles {
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], n)
			if i < 0 {
				break
			}
			at += i
			for j := range n {
				in[at+j] = true
			}
		}
	}
	return in
}

// stars overwrites what is marked.
func stars(b []byte, marked []bool) {
	for i, in := range marked {
		if in {
			b[i] = '*'
		}
	}
}

// masked is a body in which needles are hidden. It holds back no more than what may be the
// beginning of one, so that a stream is as prompt as it was.
type masked struct {
	body    io.ReadCloser
	needles [][]byte  // sorted
	first   [256]bool // bytes of them
	longest int       // of them
	trailer func()    // is called before the end is told

	ready  []byte // can be read
	held   []byte // may be the beginning of a needle
	marked []bool // of held: in a needle that has ended
	err    error
	buf    [32 << 10]byte
}

func newMasked(body io.ReadCloser, needles [][]byte, trailer func()) *masked {
	m := &masked{body: body, needles: slices.SortedFunc(slices.Values(needles), bytes.Compare), trailer: trailer}
	m.needles = slices.DeleteFunc(m.needles, func(n []byte) bool { return len(n) == 0 })
	for _, n := range m.needles {
		m.first[n[0]], m.longest = true, max(m.longest, len(n))
	}
	return m
}

// Read implements io.Reader.
func (m *masked) Read(b []byte) (int, error) {
	for len(m.ready) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		n, err := m.body.Read(m.buf[:])
		m.add(m.buf[:n])
		if err != nil {
			stars(m.held, m.marked)
			m.ready, m.held, m.err = append(m.ready, m.held...), nil, err
			m.trailer()
		}
	}
	n := copy(b, m.ready)
	m.ready = m.ready[n:]
	return n, nil
}

// add takes what has come. Preconditions: ready is empty.
func (m *masked) add(b []byte) {
	all := append(m.held, b...)
	marked := marks(all, m.needles)
	for i, in := range m.marked {
		marked[i] = marked[i] || in
	}
	out := len(all) - m.beginning(all)
	m.held, m.marked = bytes.Clone(all[out:]), marked[out:]
	m.ready = all[:out]
	stars(m.ready, marked[:out])
}

// beginning returns how long the longest end of b is that begins a needle. There may be
// hundreds of them, of some KiB, and this is done for each piece of a stream.
func (m *masked) beginning(b []byte) int {
	for at := max(0, len(b)-m.longest+1); at < len(b); at++ {
		if m.first[b[at]] && m.begin(b[at:]) {
			return len(b) - at
		}
	}
	return 0
}

// begin reports whether a needle that is longer begins with b.
func (m *masked) begin(b []byte) bool {
	i, _ := slices.BinarySearchFunc(m.needles, b, bytes.Compare)
	for i < len(m.needles) && bytes.Equal(m.needles[i], b) {
		i++
	}
	return i < len(m.needles) && bytes.HasPrefix(m.needles[i], b)
}

// Close implements io.Closer.
func (m *masked) Close() error { return m.body.Close() }
