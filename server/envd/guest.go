package envd

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd/protocol"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// messageBytesMax bounds a message of a client: input of commands is the largest.
const messageBytesMax = 16 << 20

// routeEnvd has all that is at envd's port.
func (b *Bridge) routeEnvd() {
	options := connect.WithHandlerOptions(connect.WithReadMaxBytes(messageBytesMax), connect.WithCodec(codec{}))
	path, processes := protocol.NewProcessHandler(processService{b}, options)
	b.envd.Handle("POST "+path, b.guarded("envd-process", processes.ServeHTTP))
	path, files := protocol.NewFilesystemHandler(filesystemService{b}, options)
	b.envd.Handle("POST "+path, b.guarded("envd-filesystem", files.ServeHTTP))
	b.envd.Handle("GET /metrics", b.guarded("envd-metrics", b.answering(b.metrics)))
	b.envd.Handle("GET "+filesPath, b.signed(readOperation, b.answering(b.readFile)))
	b.envd.Handle("POST "+filesPath, b.signed(writeOperation, b.answering(b.writeFiles)))
	b.envd.HandleFunc("GET /health", b.health)
	b.envd.HandleFunc("/", b.unknown)
}

type recordKey struct{}

// recordOf is that of the sandbox which a request is for.
func recordOf(ctx context.Context) record { return ctx.Value(recordKey{}).(record) }

func (b *Bridge) serveEnvd(w http.ResponseWriter, r *http.Request, rec record) {
	b.envd.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), recordKey{}, rec)))
}

// health says whether a sandbox runs, to anyone who knows its id. It wakes none.
func (b *Bridge) health(w http.ResponseWriter, r *http.Request) {
	rec := recordOf(r.Context())
	if err := b.runs(r.Context(), rec); err != nil {
		notFound(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// runs returns an error unless a sandbox runs or its calls wake it.
func (b *Bridge) runs(ctx context.Context, rec record) error {
	info, err := b.Sandboxes.Get(ctx, rec.Tenant, rec.Sandbox)
	if err != nil {
		return err
	}
	if info.State == sandbox.Running || info.State == sandbox.Paused && !info.Spec.NoWake {
		return nil
	}
	return errs.New(errs.Conflict, "the sandbox %s is %s", rec.Sandbox, info.State)
}

// admit lets in who has the token of a sandbox that runs.
func (b *Bridge) admit(r *http.Request, rec record, operation string, changes bool) (*http.Request, error) {
	who := rec.Owners[len(rec.Owners)-1]
	id := auth.Identity{Tenant: rec.Tenant, Owner: who.ID, Name: who.Name, Scopes: key.Scopes{key.Write}, User: auth.UserOf(rec.Tenant, who.ID)}
	if err := b.owned(r.Context(), rec); err != nil {
		return nil, problem.At(http.StatusUnauthorized, err)
	}
	if err := b.runs(r.Context(), rec); err != nil {
		return nil, err
	}
	return b.table.Admitted(r, route.Admission{Identity: id, Operation: operation, Sandbox: string(rec.Sandbox), Changes: changes}), nil
}

// owned reports whether one of those who asked for a token may still use it.
func (b *Bridge) owned(ctx context.Context, rec record) error {
	err := errs.New(errs.Denied, "no key stands behind this token any more")
	if b.Owner == nil {
		return nil
	}
	for _, o := range rec.Owners {
		good := b.Owner(ctx, o.ID)
		if good == nil {
			return nil
		}
		if !errs.Is(good, errs.Denied) {
			return good
		}
	}
	return err
}

// withToken checks the token of a request.
func (b *Bridge) withToken(r *http.Request, rec record) error {
	ok, err := b.records.tokenOK(r.Context(), rec, r.Header.Get(tokenHeader))
	if err == nil && !ok {
		err = noToken()
	}
	return err
}

func noToken() error {
	return problem.At(http.StatusUnauthorized, errs.New(errs.Denied, "the access token is not that of the sandbox").
		WithHint("connect to the sandbox with an API key for one"))
}

// withTraffic checks the token of a request for a port: that of the sandbox, or the one
// which is for ports alone. Clients send one of them with some requests only.
func (b *Bridge) withTraffic(r *http.Request, rec record) error {
	if r.Header.Get(tokenHeader) != "" {
		return b.withToken(r, rec)
	}
	ok, err := b.records.trafficOK(r.Context(), rec, r.Header.Get(trafficHeader))
	if err == nil && !ok {
		err = noToken()
	}
	return err
}

// changing are the calls that may change something; the audit log tells of those.
var changing = []string{
	protocol.ProcessStartProcedure, protocol.ProcessSendInputProcedure, protocol.ProcessStreamInputProcedure,
	protocol.ProcessSendSignalProcedure, protocol.ProcessCloseStdinProcedure,
	protocol.FilesystemMakeDirProcedure, protocol.FilesystemMoveProcedure, protocol.FilesystemRemoveProcedure,
}

// guarded puts the check of the token around what is done in a sandbox, and gives
// it the guest.
func (b *Bridge) guarded(operation string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := recordOf(r.Context())
		if err := b.withToken(r, rec); err != nil {
			route.Refused(r)
			refuse(w, r, err)
			return
		}
		b.withGuest(w, r, rec, operation, slices.Contains(changing, r.URL.Path), h)
	}
}

type callKey struct{}

// call is a request in a sandbox.
type call struct {
	record
	guest *wire.Client
	user  string // "" = the sandbox's
}

func callOf(ctx context.Context) call { return ctx.Value(callKey{}).(call) }

// withGuest serves a request whose sender has shown that they may.
func (b *Bridge) withGuest(w http.ResponseWriter, r *http.Request, rec record, operation string, changes bool, h http.HandlerFunc) {
	admitted, err := b.admit(r, rec, operation, changes)
	if err != nil {
		route.Refused(r)
		if p := problem.Of(err); p.Status == http.StatusUnauthorized {
			refuse(w, r, err)
			return
		}
		notFound(w, r, err)
		return
	}
	r = admitted
	guest, release, err := b.Sandboxes.Guest(r.Context(), rec.Tenant, rec.Sandbox)
	if err != nil {
		notFound(w, r, err)
		return
	}
	defer release()
	// A Go client may send on while it is answered.
	_ = http.NewResponseController(w).EnableFullDuplex()
	c := call{rec, guest, userOf(r)}
	h(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// answering makes a handler of one that returns an error.
func (b *Bridge) answering(h apiHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		route.Note(r, err)
		if !route.Wrote(r) {
			refuse(w, r, err)
		}
	}
}

// defaultUser is what clients may call the sandbox's own.
const defaultUser = "user"

// userOf reads as whom a client wants to act: a user without a password.
func userOf(r *http.Request) string {
	name := ""
	if text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic "); ok {
		if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
			name, _, _ = strings.Cut(string(plain), ":")
		}
	}
	return userName(name)
}

func userName(name string) string {
	if name == defaultUser {
		return ""
	}
	return name
}

// path reads a path as clients write it: "~" is the user's home, what is relative
// begins in the working directory.
func (c call) path(ctx context.Context, text string) (string, error) {
	if text == "" {
		return ".", nil
	}
	rest, ok := strings.CutPrefix(text, "~")
	if !ok {
		return text, nil
	}
	if rest != "" && rest[0] != '/' {
		return "", errs.New(errs.Invalid, "%.80q: only one's own home is known by ~", text)
	}
	if c.user == "root" {
		return "/root" + rest, nil
	}
	hello, err := c.guest.Hello(ctx)
	if err != nil {
		return "", err
	}
	return string(hello.GetHome()) + rest, nil
}

// step is a call that may change files.
func (c call) step(ctx context.Context, verb, what string) route.Step {
	return route.Begin(ctx, verb+" "+strconv.Quote(what))
}

// usageOver is how long the use of processors is looked at.
const usageOver = 200 * time.Millisecond

// usage measures a machine; cpu is the use of its processors in percent of one.
func usage(ctx context.Context, guest *wire.Client) (m *wire.MetricsResponse, cpu float64, err error) {
	before, err := guest.Control.Metrics(ctx, connect.NewRequest(&wire.MetricsRequest{}))
	if err != nil {
		return nil, 0, wire.Err(err)
	}
	if err := sleep.For(ctx, usageOver); err != nil {
		return nil, 0, err
	}
	after, err := guest.Control.Metrics(ctx, connect.NewRequest(&wire.MetricsRequest{}))
	if err != nil {
		return nil, 0, wire.Err(err)
	}
	a, b := before.Msg, after.Msg
	if took := b.GetTimeUnixNs() - a.GetTimeUnixNs(); took > 0 {
		cpu = max(0, 100*float64(b.GetCpuUsedUs()-a.GetCpuUsedUs())*1000/float64(took))
	}
	return b, cpu, nil
}

func (b *Bridge) metrics(w http.ResponseWriter, r *http.Request) error {
	m, used, err := usage(r.Context(), callOf(r.Context()).guest)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	writeJSON(w, http.StatusOK, map[string]any{
		"ts": m.GetTimeUnixNs() / int64(time.Second), "cpu_count": m.GetCpuCount(), "cpu_used_pct": used,
		"mem_total": m.GetMemTotalBytes(), "mem_used": m.GetMemUsedBytes(), "mem_cache": 0,
		"mem_total_mib": m.GetMemTotalBytes() / mib, "mem_used_mib": m.GetMemUsedBytes() / mib,
		"disk_used": m.GetDiskUsedBytes(), "disk_total": m.GetDiskTotalBytes(),
	})
	return nil
}

// servePort carries a request to a port of a sandbox.
func (b *Bridge) servePort(w http.ResponseWriter, r *http.Request, rec record, port uint16) {
	if err := b.withTraffic(r, rec); err != nil {
		route.Refused(r)
		refuse(w, r, err)
		return
	}
	admitted, err := b.admit(r, rec, "envd-port", true)
	if err != nil {
		notFound(w, r, err)
		return
	}
	r = admitted
	ctx, release, err := b.Hub.Open(r.Context(), auth.From(r.Context()).Owner)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer release()
	_ = http.NewResponseController(w).EnableFullDuplex() // else what a client still sends ends the answer
	end := func() {}
	if executes(r, port) {
		end = execution(r).End
		defer end()
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return b.Sandboxes.Dial(ctx, rec.Tenant, rec.Sandbox, uint32(port))
		},
		DisableKeepAlives: true, DisableCompression: true,
	}
	proxy := httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", net.JoinHostPort("localhost", strconv.Itoa(int(port)))
			p.Out.Host = p.Out.URL.Host
			for _, name := range ours {
				p.Out.Header.Del(name)
			}
		},
		ModifyResponse: func(res *http.Response) error {
			for _, name := range apart {
				res.Header.Del(name)
			}
			res.Header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
			if res.StatusCode != http.StatusSwitchingProtocols { // that body is both ways
				res.Body = atEnd{res.Body, end}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			answerError(w, r, refusal{
				Code: http.StatusBadGateway, Message: "The sandbox is running but the port is not open",
				Sandbox: clientID(rec.Sandbox), Port: int(port),
			}, err)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// apart are headers of a program in a sandbox that would reach beyond its answer: this
// is our own origin, and a browser that asks here is not to believe it. Apps are shown
// by previews.
var apart = []string{
	"Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc", "Nel", "Report-To",
	"Reporting-Endpoints", "Refresh", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
}

// ours are headers that no program in a sandbox may see.
var ours = []string{tokenHeader, "X-Api-Key", "Authorization", "Cookie", idHeader, portHeader, trafficHeader}
