package serve

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/login"
	"github.com/skete-dev/skete/server/share"
)

// Buckets of the store.
const (
	loginsBucket   = "logins"
	previewsBucket = "previews"
	bridgesBucket  = "bridges"
)

// portsKey is the metadata of a sandbox that lists the ports it may show.
const portsKey = "preview-ports"

// sweepEvery is how often logins and previews that have expired are removed.
const sweepEvery = time.Hour

// browse adds to a server's configuration what browsers need: logins, and
// previews if there is a TCP address.
func (r *running) browse(ctx context.Context, c *server.Config) error {
	logins, err := r.store.KV(ctx, loginsBucket)
	if err != nil {
		return err
	}
	c.Ring = key.NewRing(c.Keys)
	c.Logins = login.New(login.Config{KV: logins, Keys: c.Ring})
	grants, err := r.store.KV(ctx, previewsBucket)
	if err != nil {
		return err
	}
	c.Shares = share.New(grants) // among them, an erasure of the tenant finds them
	if c.Issuer, err = r.issuer(); err != nil {
		return err
	}
	origin := r.origin()
	if origin == "" {
		return nil
	}
	c.Origins = []string{origin}
	c.Hosts = append([]string{hostOf(origin)}, c.Hosts...)
	previews, err := r.openPreviews(ctx, origin, c.Logins, leadToPage(origin))
	if err != nil {
		return err
	}
	r.onClose(previews.Close)
	if sameSite("preview."+cmp.Or(r.c.Preview.Domain, "localhost"), hostOf(origin)) {
		r.c.Log.Warn("previews share a site with the app: what runs in a sandbox can set cookies for both; use another domain for previews",
			"preview.domain", r.c.Preview.Domain, "origin", origin)
	}
	r.previews.Store(previews)
	c.Previews = previews
	r.sweep(c.Logins.Sweep, c.Shares.Sweep, previews.Sweep, r.sweepTokens)
	return nil
}

// leadToPage answers on port 8001 of a sandbox: its page, with the state of its
// services, the history and undo, is the server's, and the server knows who may
// see it.
func leadToPage(origin string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, target := preview.VisitorOf(req.Context())
		http.Redirect(w, req, origin+"/vms/"+target.Sandbox+"/changes", http.StatusSeeOther)
	})
}

// origin is how browsers know the server; "" = they cannot reach it.
func (r *running) origin() string {
	if r.c.Origin != "" || r.tcp == nil {
		return r.c.Origin
	}
	return "http://localhost:" + strconv.Itoa(r.tcp.Addr().(*net.TCPAddr).Port)
}

func (r *running) openPreviews(ctx context.Context, origin string, desk *login.Store, supervisor http.Handler) (*preview.Previews, error) {
	grants, err := r.store.KV(ctx, previewsBucket)
	if err != nil {
		return nil, err
	}
	otherwise, err := preview.ParsePorts(r.c.Preview.Ports)
	if err != nil {
		return nil, err
	}
	return preview.Open(ctx, preview.Config{
		PlatformPorts: platformPorts,
		Domain:        r.c.Preview.Domain, AppOrigin: origin, Grants: grants, Owner: desk.Good, Secret: key.Form, Supervisor: supervisor, Log: r.c.Log,
		Dial: func(ctx context.Context, tenant, id string, port uint16) (net.Conn, error) {
			sid, err := sandbox.ParseID(id)
			if err != nil {
				return nil, err
			}
			return r.manager.Dial(ctx, tenant, sid, uint32(port))
		},
		Ports: func(ctx context.Context, tenant, id string, port uint16) error {
			return r.portOK(ctx, tenant, id, port, otherwise)
		},
	})
}

// platformPorts are never an app's: where E2B's clients find the control of a
// sandbox.
var platformPorts = []uint16{49983}

// sameSite reports whether two host names seem to have one registrable domain.
// It has no list of those under which anybody can register, and takes what looks
// like co.uk for one. To browsers localhost is such a suffix as com is: each name
// beneath it is a site, and it is none itself. Addresses are none either.
func sameSite(a, b string) bool {
	site := func(host string) string {
		labels := strings.Split(strings.TrimSuffix(strings.ToLower(host), "."), ".")
		n, keep := len(labels), 2
		if n < 2 || net.ParseIP(host) != nil {
			return ""
		}
		if n > 2 && len(labels[n-1]) == 2 && len(labels[n-2]) <= 3 {
			keep = 3
		}
		return strings.Join(labels[n-keep:], ".")
	}
	return site(a) != "" && site(a) == site(b)
}

// portOK holds a port against the list of its sandbox. A list that cannot be
// read allows nothing.
func (r *running) portOK(ctx context.Context, tenant, id string, port uint16, otherwise preview.Ports) error {
	sid, err := sandbox.ParseID(id)
	if err != nil {
		return err
	}
	info, err := r.manager.Get(ctx, tenant, sid)
	if err != nil {
		return err
	}
	list := otherwise
	if text, ok := info.Spec.Metadata[portsKey]; ok {
		if list, err = preview.ParsePorts(text); err != nil {
			return errs.Wrap(errs.Denied, err, "the sandbox's list of ports cannot be read").WithHint("its metadata %s looks like 5173,8000-8010", portsKey)
		}
	}
	if !list.Allow(port) {
		return errs.New(errs.Denied, "port %d of this sandbox is not to be shown", port).WithHint("its metadata %s lists those that are", portsKey)
	}
	return nil
}

// sweep removes what has expired, now and then.
func (r *running) sweep(all ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, f := range all {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					r.c.Log.Warn("what has expired could not be removed", "error", err)
				}
			}
		}
	}()
	r.onClose(func() error {
		cancel()
		<-done
		return nil
	})
}
