package llmtest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/skete-dev/skete/internal/sleep"
)

// requestBytesMax bounds a request to the fake server.
const requestBytesMax = 64 << 20

// Server is a model server that says what it is told to.
type Server struct {
	URL string

	dialect Dialect
	answer  func(n int, seen Seen) Reply
	http    *httptest.Server

	mu    sync.Mutex
	seen  []Seen
	wrong []error
	gone  chan struct{} // one token for each client that left early
}

// NewServer starts a server on loopback. answer gets the number of the
// request, from 0, and may be called from several goroutines at once.
func NewServer(d Dialect, answer func(n int, seen Seen) Reply) *Server {
	s := &Server{dialect: d, answer: answer, gone: make(chan struct{}, 1024)}
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = quiet
	s.http.Start()
	s.URL = s.http.URL
	return s
}

// quiet: what the faults do to connections is not worth a line.
var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// Replies returns an answer for NewServer: the replies one after the other,
// the last one again and again.
func Replies(replies ...Reply) func(int, Seen) Reply {
	return func(n int, _ Seen) Reply { return replies[min(n, len(replies)-1)] }
}

// Close stops the server and cuts its connections.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Seen returns the requests so far.
func (s *Server) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// Wrong returns what Parse found wrong with requests.
func (s *Server) Wrong() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]error(nil), s.wrong...)
}

// Gone yields once for each request whose client left while the server hung
// or had more to say.
func (s *Server) Gone() <-chan struct{} { return s.gone }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, requestBytesMax))
	if err != nil {
		return
	}
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models") {
		http.NotFound(w, r) // it may be asked for, and has no list
		return
	}
	seen, err := s.dialect.Parse(r, body)
	seen.Body, seen.Header = body, r.Header.Clone()
	n := s.note(seen, err)
	if err != nil {
		s.send(w, r, s.dialect.Failure(Failure{Trouble: "bad_request", Text: err.Error()}), "")
		return
	}
	reply := s.answer(n, seen)
	s.send(w, r, s.render(seen, reply), reply.Fault)
}

func (s *Server) note(seen Seen, err error) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seen)
	s.seen = append(s.seen, seen)
	if err != nil {
		s.wrong = append(s.wrong, fmt.Errorf("request %d: %w", n, err))
	}
	return n
}

func (s *Server) render(seen Seen, r Reply) Wire {
	if r.Failure != nil {
		return s.dialect.Failure(*r.Failure)
	}
	wire := s.dialect.Answer(seen, r)
	if r.Late != nil {
		// The end of the answer does not come: the failure stands in its place.
		wire.Chunks = append(wire.Chunks[:len(wire.Chunks)/2:len(wire.Chunks)/2], s.dialect.Late(*r.Late))
	}
	return wire
}

// send plays a wire with a fault. A handler that aborts closes the connection.
func (s *Server) send(w http.ResponseWriter, r *http.Request, wire Wire, fault Fault) {
	switch fault {
	case Mute:
		s.hang(r)
		return
	case Garbage:
		wire = Wire{Header: wire.Header, Chunks: [][]byte{[]byte("\x00\x01\xfe\xff}{][ no answer\r\n\r\n\"")}}
	case Empty:
		wire = Wire{Header: wire.Header}
	case PageError:
		wire = page(http.StatusBadGateway)
	case PageOK:
		wire = page(http.StatusOK)
	case Redirect:
		// Another name for the same server: a client that follows is seen.
		http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+r.URL.Path, http.StatusTemporaryRedirect)
		return
	}
	head(w, wire)
	p := player{w: w, flush: http.NewResponseController(w).Flush}
	p.write() // the header goes at once
	switch fault {
	case Drop:
		p.write(half(wire.Chunks))
		panic(http.ErrAbortHandler)
	case Truncate:
		p.write(half(wire.Chunks))
	case Hang:
		p.write(half(wire.Chunks))
		s.hang(r)
	case Dribble:
		for _, b := range bytes.Join(wire.Chunks, nil) {
			p.write([]byte{b})
		}
	case Endless:
		for p.err == nil {
			p.write(wire.Chunks[:max(1, len(wire.Chunks)/2)]...)
		}
		s.gone <- struct{}{}
	case Keepalive:
		for p.err == nil {
			p.write([]byte(": keep-alive\n\n"))
			if sleep.For(r.Context(), keepalivePause) != nil {
				break
			}
		}
		s.gone <- struct{}{}
	default:
		p.write(wire.Chunks...)
	}
}

func (s *Server) hang(r *http.Request) {
	<-r.Context().Done()
	s.gone <- struct{}{}
}

func head(w http.ResponseWriter, wire Wire) {
	maps.Copy(w.Header(), wire.Header)
	if wire.Status == 0 {
		wire.Status = http.StatusOK
	}
	w.WriteHeader(wire.Status)
}

func page(status int) Wire {
	return Wire{
		Status: status,
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}},
		Chunks: [][]byte{[]byte("<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>\n<body><center><h1>502 Bad Gateway</h1></center></body></html>\n")},
	}
}

func half(chunks [][]byte) []byte {
	all := bytes.Join(chunks, nil)
	return all[:len(all)*2/5]
}

type player struct {
	w     io.Writer
	flush func() error
	err   error
}

func (p *player) write(chunks ...[]byte) {
	for _, c := range chunks {
		if p.err != nil {
			return
		}
		if _, p.err = p.w.Write(c); p.err == nil {
			p.err = p.flush()
		}
	}
	if len(chunks) == 0 && p.err == nil {
		p.err = p.flush()
	}
}
