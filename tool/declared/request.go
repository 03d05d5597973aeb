package declared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file makes requests, and results of their answers.

// Bounds of answers.
const (
	answerBytesMax  = 4 << 20
	refusalBytesMax = 2 << 10 // of an answer that is an error
	// cutBytes are left out at the end of an answer that is not read to its end, where a part
	// of a secret may be that is not seen to be one.
	cutBytes = 4 * secret.ValueMax
)

// CodeStatus is that of an answer which is an error of HTTP.
const CodeStatus = "http_status"

// Sent is a request that the host made for a tool: what the audit log keeps. It has no
// parameters, no body and no value of a secret.
type Sent struct {
	At           time.Time
	Tenant       string
	Thread       thread.ID
	Run          thread.RunID // "" = a person called the tool: By
	By           string
	Tool, Call   string
	Method, Host string
	Path         string
	Secrets      []string // their names
	Status       int      // 0 = there was no answer
	Bytes        int
	Took         time.Duration
}

// request is one that is made for a call.
type request struct {
	s    *Source
	p    tool.Place
	req  tool.Request
	what pinned
	way  *outbound.Way
	sent atomic.Bool // there was a connection that it could be sent on
}

// ask makes the request of a call.
func (s *Source) ask(ctx context.Context, p tool.Place, req tool.Request, what pinned) (tool.Result, error) {
	h := what.Manifest.HTTP
	args, err := arguments(req.Args)
	if err != nil {
		return unsendable(err), nil
	}
	r, err := h.fill(args)
	if err != nil {
		return unsendable(err), nil
	}
	if what.Manifest.class() == tool.Keyed {
		r.Header.Set(idempotencyKey, short(p.Tenant, req.Key)+short(req.Key))
	}
	base, _ := h.split()
	to, err := url.Parse(base)
	if err != nil {
		return tool.Result{}, err
	}
	x := &request{s: s, p: p, req: req, what: what, way: outbound.New(s.c.Outbound, to, outbound.User{Tenant: p.Tenant, Agent: p.Agent, Machine: p.Machine, Secrets: h.Secrets})}
	defer x.way.Close()
	return x.do(ctx, r)
}

func (x *request) do(ctx context.Context, r *http.Request) (tool.Result, error) {
	bounded, cancel := context.WithTimeout(ctx, x.what.Manifest.HTTP.timeout())
	defer cancel()
	bounded = httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) }})
	begun := x.s.c.Now()
	status, head, body, err := x.exchange(r.WithContext(bounded))
	x.tell(r, begun, status, len(body))
	if ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	result := x.answer(bounded, r, status, head, body, err)
	for i := range result.Blocks { // headers, hosts and errors have been put into it too
		result.Blocks[i].Text = x.way.Mask(result.Blocks[i].Text)
	}
	return result, nil
}

// answer makes a result of what came back.
func (x *request) answer(bounded context.Context, r *http.Request, status int, head http.Header, body []byte, err error) tool.Result {
	switch {
	case err != nil && bounded.Err() != nil:
		return x.lost(tool.CodeTimeout, fmt.Sprintf("%s did not answer within %v", r.URL.Hostname(), x.what.Manifest.HTTP.timeout()))
	case err != nil:
		return x.unanswered(r, err)
	case status < 200 || status > 299:
		return x.refused(status, head, body)
	}
	return x.result(head, body)
}

// exchange sends a request and reads its answer, as much of it as is taken.
func (x *request) exchange(r *http.Request) (status int, head http.Header, body []byte, err error) {
	c := http.Client{Transport: x.way, CheckRedirect: x.redirect}
	res, err := c.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	return res.StatusCode, res.Header, body, err
}

// redirect follows none of a request that does something: it would become another one.
func (x *request) redirect(r *http.Request, via []*http.Request) error {
	if !x.what.Manifest.HTTP.reads() {
		return http.ErrUseLastResponse
	}
	return x.way.Redirect(r, via)
}

// unanswered tells the model why there is no answer, without addresses of this host.
func (x *request) unanswered(r *http.Request, err error) tool.Result {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		if e.Class == errs.Denied {
			return tool.Fail(tool.CodeDenied, "Error: "+e.Msg)
		}
		return x.lost(CodeStatus, e.Msg)
	}
	return x.lost(CodeStatus, r.URL.Hostname()+" cannot be reached, or does not answer as it should")
}

// lost is a failure after which is not known what was done.
func (x *request) lost(code, what string) tool.Result {
	if x.sent.Load() && x.what.Manifest.class() == tool.Once {
		what += ". Whether the request had an effect is not known: look before you call the tool again"
	}
	return tool.Fail(code, "Error: "+what+".")
}

// refused makes a result of an answer that is an error.
func (x *request) refused(status int, head http.Header, body []byte) tool.Result {
	code, hint := CodeStatus, ""
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		code, hint = tool.CodeDenied, "The operator has to grant a secret for this host; other arguments will not help."
		if len(x.way.Sent()) > 0 {
			hint = "The secret that was sent is not enough; other arguments will not help."
		}
	case status == http.StatusTooManyRequests:
		code, hint = tool.CodeLimit, "Try again later."
		if after := head.Get("Retry-After"); after != "" {
			hint = "Try again after " + clip.Line(after, 40) + " (seconds, or a time)."
		}
	case status >= 500 && x.what.Manifest.class() == tool.Once:
		hint = "Whether the request had an effect is not known: look before you call the tool again."
	case status >= 500:
		hint = "The server is at fault; the same call may work later."
	case status >= 300 && status < 400:
		hint = "It wants another address to be asked, which is not done."
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		hint = "Look at the arguments."
	}
	text := strings.TrimSpace(fmt.Sprintf("Error: the server answers %d %s. %s", status, http.StatusText(status), hint))
	if shown, ok := x.text(head, body); ok && strings.TrimSpace(shown) != "" {
		text += "\n" + clip.Text(shown, refusalBytesMax)
	}
	return tool.Fail(code, text)
}

// text is an answer with secrets hidden; false: it is none.
func (x *request) text(head http.Header, body []byte) (string, bool) {
	kind, _, err := mime.ParseMediaType(head.Get("Content-Type"))
	textual := err != nil || strings.HasPrefix(kind, "text/")
	for _, part := range []string{"json", "xml", "yaml", "javascript", "form-urlencoded", "graphql", "csv"} {
		textual = textual || strings.Contains(kind, part)
	}
	if !textual || !utf8.Valid(body) && len(body) <= answerBytesMax {
		return "", false
	}
	text := x.way.Mask(strings.ToValidUTF8(string(body), "\uFFFD"))
	if len(body) > answerBytesMax {
		text = text[:len(text)-cutBytes]
	}
	return text, true
}

// result makes a result of an answer.
func (x *request) result(head http.Header, body []byte) tool.Result {
	text, ok := x.text(head, body)
	output := x.what.Manifest.Output
	switch {
	case output != nil && len(body) > answerBytesMax:
		return tool.Fail(tool.CodeTooLarge, fmt.Sprintf("Error: the server answers with more than %d bytes.", answerBytesMax))
	case output != nil:
		if why := misfit(output, text); why != "" {
			return tool.Fail(CodeOutput, "Error: the server answers something else than the tool promises: "+x.way.Mask(why)+"\n"+clip.Text(text, refusalBytesMax))
		}
	case !ok:
		text = fmt.Sprintf("(%d bytes of %s, which cannot be shown)", len(body), clip.Line(head.Get("Content-Type"), 100))
	case strings.TrimSpace(text) == "":
		text = "(the server has done it, and answers with nothing)"
	}
	return tool.Result{Blocks: []llm.Block{llm.Text(x.what.Manifest.clipped(text))}}
}

// tell tells of the request.
func (x *request) tell(r *http.Request, begun time.Time, status, n int) {
	if x.s.c.Sent == nil {
		return
	}
	x.s.c.Sent(Sent{
		At: begun, Tenant: x.p.Tenant, Thread: x.p.Thread, Run: x.p.Top, By: x.p.By, Tool: x.what.Manifest.Name, Call: x.req.Call,
		Method: r.Method, Host: r.URL.Host, Path: r.URL.EscapedPath(), Secrets: x.way.Sent(), Status: status, Bytes: n, Took: x.s.c.Now().Sub(begun),
	})
}
