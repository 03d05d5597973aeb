package route

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/problem"
)

const requestIDHeader = "X-Request-Id"

// writeTimeout is how long a client may take nothing of an answer.
const writeTimeout = 60 * time.Second

// remark is what the server learns of a request on its way, for the log.
type remark struct {
	id       string
	identity auth.Identity
	caller   caller
	// answering is called before the first byte of an answer; nil = nothing is to be done.
	answering func()
	operation string
	on        string // the first thing that the path names
	what      string // is asked for, in a step's words
	changes   bool   // the route may change something
	refused   bool   // the caller was not admitted
	err       error
	wrote     bool
	status    int
	bytes     int64
}

type remarkKey struct{}

func noteOf(ctx context.Context) *remark { return ctx.Value(remarkKey{}).(*remark) }
func note(r *http.Request) *remark       { return noteOf(r.Context()) }

// Admission is who a request of a foreign surface is of, and what it does.
type Admission struct {
	Identity  auth.Identity
	Operation string // its name, for the audit log
	Sandbox   string // the id of the one that it works in; "" = in none
	Changes   bool   // it may change something
}

// Admitted returns the request as one of a: its handler finds the identity (auth.From),
// can make it a step (Begin), and logs tell of it.
func (t *Table) Admitted(r *http.Request, a Admission) *http.Request {
	n := note(r)
	n.identity, n.operation, n.changes, n.on = a.Identity, a.Operation, a.Changes, a.Sandbox
	n.caller = caller{steps: t.steps, sandbox: a.Sandbox}
	return r.WithContext(auth.With(r.Context(), a.Identity))
}

// Refused notes that a request of a foreign surface was not admitted.
func Refused(r *http.Request) { note(r).refused = true }

// Wrote reports whether the answer to a request has begun.
func Wrote(r *http.Request) bool { return note(r).wrote }

// Note keeps an error for the log that the answer can no longer show.
func Note(r *http.Request, err error) { note(r).err = err }

// Handler returns the whole surface as one handler.
func (t *Table) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		n := &remark{id: requestID(r)}
		r = r.WithContext(context.WithValue(r.Context(), remarkKey{}, n))
		rec := &recorder{ResponseWriter: w, remark: n}
		rec.Header().Set(requestIDHeader, n.id)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer t.finish(rec, r, start)
		if err := t.gate.Place(r); err != nil {
			t.Refuse(rec, r, err)
			return
		}
		t.mux.ServeHTTP(rec, r)
	})
}

// finish recovers from a panic, logs and counts.
func (t *Table) finish(rec *recorder, r *http.Request, start time.Time) {
	n := rec.remark
	abort := false
	if p := recover(); p != nil {
		switch {
		case isAbort(p):
			abort = true
		case r.Context().Err() != nil:
			// The JSON layer panics when it cannot write: the client is gone.
		default:
			n.err = fmt.Errorf("panic: %v", p)
			t.log.Error("panic", "request", n.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if n.wrote {
				abort = true
			} else {
				problem.Write(rec, errs.New(errs.Internal, "internal error; the server's log has the cause under request %s", n.id))
			}
		}
	}
	t.logRequest(r, n, time.Since(start))
	if abort {
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
}

// isAbort tells the panic that ends an answer on purpose.
func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

func (t *Table) logRequest(r *http.Request, n *remark, took time.Duration) {
	if n.status == 0 {
		n.status = http.StatusOK
	}
	pattern := r.Pattern
	if pattern == "" || pattern == "/" {
		pattern = "none"
	}
	t.observe(pattern, n.status, took)
	t.tell(r, n)
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request", n.id), slog.String("route", pattern), slog.Int("status", n.status),
		slog.Duration("took", took), slog.Int64("bytes", n.bytes),
		slog.String("tenant", n.identity.Tenant), slog.String("key", n.identity.Owner),
	}
	if n.err != nil {
		if c := errs.Of(n.err); c == errs.Internal || c == errs.Corrupt {
			level = slog.LevelError
		}
		// Parts of it were written by callers and guests.
		attrs = append(attrs, slog.String("error", fmt.Sprintf("%.2000q", cause(n.err))))
	}
	t.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// tell tells the audit log of a call.
func (t *Table) tell(r *http.Request, n *remark) {
	if t.audit == nil || !n.changes && !n.refused {
		return
	}
	c := Call{
		Operation: n.operation, Method: r.Method, Path: r.URL.Path, On: n.on, What: n.what, Request: n.id, Identity: n.identity, Status: n.status,
		Refused: n.refused,
	}
	if !auth.Local(r) {
		c.From = r.RemoteAddr
	}
	t.audit(c)
}

// cause is the whole chain, behind a problem too.
func cause(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Unwrap() != nil {
		return p.Unwrap().Error()
	}
	return err.Error()
}

// requestID takes over a caller's id if it is harmless.
func requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if id != "" && len(id) <= 64 && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == "" {
		return id
	}
	return rand.Text()
}

// recorder notes what was answered and bounds how long a client may take nothing.
type recorder struct {
	http.ResponseWriter
	remark *remark
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which not all ask a ResponseController for.
func (w *recorder) Flush() {
	w.extend()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		if w.remark.answering != nil {
			w.remark.answering()
		}
		w.remark.wrote, w.remark.status = true, status
		w.extend()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if !w.remark.wrote {
		w.WriteHeader(http.StatusOK)
	}
	w.extend()
	n, err := w.ResponseWriter.Write(b)
	w.remark.bytes += int64(n)
	return n, err
}

func (w *recorder) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
}
