package preview

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// SupervisorPort shows a sandbox's history and undo; the host serves it.
const SupervisorPort = 8001

// Limits; zero = the built-in value.
type Limits struct {
	CodeFor          time.Duration // how long a code is good; 30 s
	VisitFor         time.Duration // how long a visit lasts; 12 h
	LinkForMax       time.Duration // the longest life of a public link; 90 days
	LinksPerSandbox  int           // 32
	StreamsPerBox    int           // requests under way of one sandbox; 256
	StreamsPerTenant int           // of all sandboxes of a tenant; 1024
	Streams          int           // of all; 4096
	RequestBytesMax  int64         // of a body; 1 GiB
	HeaderBytesMax   int64         // of an answer; 256 KiB
	StreamIdle       time.Duration // a connection on which nothing moves; 4 h
	HeaderTimeout    time.Duration // until an app begins its answer; 10 min
	ReloadWithin     time.Duration // how long a socket waits for its app to come back; 60 s
	RevocationWithin time.Duration // open streams are looked at so often; 5 s
}

func (l *Limits) setDefaults() {
	def(&l.CodeFor, 30*time.Second)
	def(&l.VisitFor, 12*time.Hour)
	def(&l.LinkForMax, 90*24*time.Hour)
	def(&l.LinksPerSandbox, 32)
	def(&l.StreamsPerBox, 256)
	def(&l.StreamsPerTenant, 1024)
	def(&l.Streams, 4096)
	def(&l.RequestBytesMax, 1<<30)
	def(&l.HeaderBytesMax, 256<<10)
	def(&l.StreamIdle, 4*time.Hour)
	def(&l.HeaderTimeout, 10*time.Minute)
	def(&l.ReloadWithin, time.Minute)
	def(&l.RevocationWithin, 5*time.Second)
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Config of Previews.
type Config struct {
	// Domain: previews are at <label>.preview.<domain>; "" = localhost. It should
	// not share its registrable domain with the app.
	Domain string
	// AppOrigin is scheme://host[:port] of the app, which alone may frame
	// previews; its scheme and port are those of previews too.
	AppOrigin string
	Grants    kv.Store
	// Dial connects to a port inside a running sandbox.
	Dial func(ctx context.Context, tenant, id string, port uint16) (net.Conn, error)
	// Supervisor answers on SupervisorPort; VisitorOf tells it who asks. nil = not served.
	Supervisor http.Handler
	// Ports says whether a port of a sandbox may be shown; nil = every one. It is
	// asked at each request, so that a narrower list counts at once.
	Ports func(ctx context.Context, tenant, id string, port uint16) error
	// Owner says whether the key or the login that asked for a visit is still
	// good (Denied: it is not); nil = it always is.
	Owner func(ctx context.Context, owner string) error
	// Secret reports whether a bearer is a key of ours, which no app may see.
	Secret func(string) bool
	// PlatformPorts are never shown, whatever the lists say.
	PlatformPorts []uint16
	Log           *slog.Logger // nil = none
	Limits        Limits
}

// Previews serves all previews of a server.
type Previews struct {
	c      Config
	suffix string // ".preview.<domain>"
	bare   string // "preview.<domain>"
	scheme string
	port   string // ":7733", or ""
	signer signer
	log    *slog.Logger
	now    func() time.Time

	active    active
	loads     loads
	transport *http.Transport
	proxy     http.Handler

	apart bool // what clears cookies beneath the domain does not reach the app

	stop context.CancelFunc
	done sync.WaitGroup
}

// Open returns previews that serve. The first one on a store makes its secret.
func Open(ctx context.Context, c Config) (*Previews, error) {
	c.Limits.setDefaults()
	def(&c.Domain, "localhost")
	if c.Grants == nil || c.Dial == nil {
		return nil, errs.New(errs.Internal, "previews need a store for grants and a way into sandboxes")
	}
	if !domainOK(c.Domain) {
		return nil, errs.New(errs.Invalid, "%.80q is not a domain for previews", c.Domain).WithHint("a DNS name in lower case, such as localhost or example.net")
	}
	app, err := parseOrigin(c.AppOrigin)
	if err != nil {
		return nil, err
	}
	if host, own := hostName(app.Host), "preview."+c.Domain; host == own || strings.HasSuffix(host, "."+own) {
		return nil, errs.New(errs.Invalid, "the app's own host, %.80q, is one of previews: they are at %s and beneath it", host, own).
			WithHint("give the app another name (origin), or previews another domain (preview.domain)")
	}
	s, err := openSigner(ctx, c.Grants)
	if err != nil {
		return nil, err
	}
	p := &Previews{c: c, suffix: ".preview." + c.Domain, bare: "preview." + c.Domain, scheme: app.Scheme, signer: s, log: c.Log, now: time.Now}
	if port := app.Port(); port != "" {
		p.port = ":" + port
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.apart = registrableApart(c.Domain, app.Hostname())
	p.active = active{
		all: map[*stay]bool{}, perBox: map[string]int{}, tenant: map[string]int{},
		max: c.Limits.Streams, tenantMax: c.Limits.StreamsPerTenant, boxMax: c.Limits.StreamsPerBox,
	}
	p.transport = p.newTransport()
	p.proxy = p.newProxy()
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.done.Go(func() { p.recheck(watch) })
	return p, nil
}

// Close ends all streams. It may be repeated.
func (p *Previews) Close() error {
	p.stop()
	p.active.endAll()
	p.done.Wait()
	p.transport.CloseIdleConnections()
	return nil
}

// registrableApart reports whether the domain is surely one that was registered
// for itself, and the app is elsewhere. Without a list of public suffixes only
// names of two labels are sure: example.co.uk is taken for a part of co.uk.
func registrableApart(domain, app string) bool {
	return strings.Count(domain, ".") == 1 && app != domain && !strings.HasSuffix(app, "."+domain)
}

// domainOK reports whether previews can be beneath s.
func domainOK(s string) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

func parseOrigin(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || s != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Host, " ;,'\"") {
		return nil, errs.New(errs.Invalid, "%.80q is not the app's origin", s).WithHint("it looks like http://localhost:7733")
	}
	return u, nil
}
