package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/catalog"
)

// Host is the name by which sandboxes find the gateway. Nothing of the public network can
// have it.
const Host = "models.skete.internal"

// Bounds of calls.
const (
	bodyBytesMax  = 32 << 20
	bodyWait      = time.Minute // for all of it
	sandboxBytes  = 64 << 20    // of a sandbox's requests that are held at once
	allBytes      = 512 << 20   // of all
	callsMax      = 64          // of a sandbox at once
	seedBytesMin  = 32
	outputDefault = 32_000 // tokens, of a model of which nothing is known
)

// Models finds models by name. *catalog.Catalog implements it.
type Models interface {
	// Endpoint says where a model is and by which key. NotFound, Unsupported: it
	// cannot be used.
	Endpoint(ctx context.Context, name string) (catalog.Endpoint, error)
}

// Config of a Gateway.
type Config struct {
	Models Models
	Seed   []byte   // the secret that tokens derive from; at least 32 bytes
	Store  kv.Store // of what sandboxes have used
	// Transport sends calls; nil = one of its own. It must not follow redirects nor
	// decompress.
	Transport http.RoundTripper
	Events    event.Log // calls are told to, of many a second some; nil = none
	Node      string
	Now       func() time.Time
	Log       *slog.Logger
}

// Grant is what a sandbox may use of models.
type Grant struct {
	// Models are names of the configuration, or vendor/id. A program may call one by
	// its name or by what its vendor calls it. The first is the one that is called
	// "default".
	Models []string `json:"models"`
	Budget Budget   `json:"budget,omitzero"`
}

// Budget bounds all calls of a sandbox together; 0 = no bound.
type Budget struct {
	Tokens    int64   `json:"tokens,omitempty"` // in and out
	CostUSD   float64 `json:"cost_usd,omitempty"`
	PerMinute int     `json:"per_minute,omitempty"` // calls
}

// Client is a sandbox that calls.
type Client struct {
	Tenant, Sandbox string
	KeyOf           string // the sandbox whose token it has; "" = its own
	Grant           Grant
}

// Use is a call that is over, and all that its sandbox has used then.
type Use struct {
	N       uint64        `json:"n"` // of the sandbox's calls that were told of, from 1
	At      time.Time     `json:"at"`
	Model   string        `json:"model"`  // its name here
	Status  int           `json:"status"` // of the answer; 0 = there was none
	Usage   llm.Usage     `json:"usage"`
	CostUSD float64       `json:"cost_usd"`
	First   time.Duration `json:"first"` // until the answer began
	Took    time.Duration `json:"took"`
	Spent   Spent         `json:"spent"`
}

// used is the state of an event.
const used = "used"

// Gateway serves calls. Safe for concurrent use.
type Gateway struct {
	c     Config
	books *books

	parses  chan struct{} // bounds what is parsed at once: a tree can be much larger than its text
	mu      sync.Mutex
	tellers map[string]*teller // by sandbox
	held    map[string]int64   // bytes of requests, by sandbox
	heldAll int64
}

// teller tells of a sandbox's calls.
type teller struct {
	last uint64
	pace event.Pace
}

// New returns a gateway. Numbers of calls go on from the newest that was told. Close ends
// it.
func New(ctx context.Context, c Config) (*Gateway, error) {
	if len(c.Seed) < seedBytesMin {
		return nil, errs.New(errs.Invalid, "the seed of tokens has %d bytes, and needs %d", len(c.Seed), seedBytesMin)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = event.Discard{}
	}
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableCompression, t.MaxIdleConnsPerHost = true, callsMax
		c.Transport = t
	}
	g := &Gateway{c: c, books: &books{store: c.Store, now: c.Now, open: map[string]*book{}}, tellers: map[string]*teller{}, held: map[string]int64{}, parses: make(chan struct{}, runtime.GOMAXPROCS(0))}
	return g, c.Events.Newest(ctx, event.Models, func(e event.Event) error {
		g.tellers[e.ID] = &teller{last: e.Revision}
		return nil
	})
}

// Close writes down what has been used. Calls are over before.
func (g *Gateway) Close(ctx context.Context) error { return g.books.flush(ctx) }

// Token is what a sandbox shows for itself: none takes it but its own door, and that of its
// forks.
func (g *Gateway) Token(tenant, sandbox string) string {
	m := hmac.New(sha256.New, g.c.Seed)
	fmt.Fprintf(m, "skete models %d %s %s", len(tenant), tenant, sandbox)
	return "skete-models-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(m.Sum(nil)[:20]))
}

// Env is what the programs of a sandbox need to find the gateway.
func (g *Gateway) Env(tenant, sandbox string) map[string]string {
	token := g.Token(tenant, sandbox)
	return map[string]string{
		"ANTHROPIC_BASE_URL": "http://" + Host + "/anthropic", "ANTHROPIC_API_KEY": token,
		"OPENAI_BASE_URL": "http://" + Host + "/openai/v1", "OPENAI_API_KEY": token,
		"GOOGLE_GEMINI_BASE_URL": "http://" + Host + "/gemini", "GEMINI_API_KEY": token,
	}
}

// Forget drops what a sandbox has used, when it is destroyed. What was told stays, as all
// events do.
func (g *Gateway) Forget(ctx context.Context, sandbox string) error {
	g.mu.Lock()
	delete(g.tellers, sandbox)
	g.mu.Unlock()
	return g.books.forget(ctx, sandbox)
}

// Sweep drops what sandboxes have used that are gone, of which Forget was not told.
func (g *Gateway) Sweep(ctx context.Context, exists func(sandbox string) bool) error {
	return g.books.sweep(ctx, exists)
}

// Spent is what a sandbox has used, with what its open calls may use at most.
func (g *Gateway) Spent(ctx context.Context, sandbox string) (Spent, error) {
	return g.books.spent(ctx, sandbox)
}

// Door serves the calls of one sandbox. The caller knows by the connection that they are
// of that one.
func (g *Gateway) Door(c Client) http.Handler {
	return &door{g: g, c: c, token: g.Token(c.Tenant, cmp.Or(c.KeyOf, c.Sandbox))}
}

// room sets memory aside for a request of so many bytes, until release.
func (g *Gateway) room(sandbox string, n int64) (release func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[sandbox]+n > sandboxBytes || g.heldAll+n > allBytes {
		return nil, false
	}
	g.held[sandbox] += n
	g.heldAll += n
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.heldAll -= n
		if g.held[sandbox] -= n; g.held[sandbox] == 0 {
			delete(g.held, sandbox)
		}
	}), true
}

// tell tells of a call that is over.
func (g *Gateway) tell(c Client, u Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tellers[c.Sandbox]
	if t == nil {
		t = &teller{}
		g.tellers[c.Sandbox] = t
	}
	now := g.c.Now()
	if !t.pace.Allow(now) {
		return
	}
	t.last++
	u.N = t.last
	data, _ := json.Marshal(u) // plain data
	g.c.Events.Append(event.Event{
		Time: now.UTC(), Tenant: c.Tenant, Node: g.c.Node, Kind: event.Models, ID: c.Sandbox, State: used, Revision: u.N, Data: data,
	})
}

// door is a Gateway for one sandbox.
type door struct {
	g     *Gateway
	c     Client
	token string
}

// call is one on its way.
type call struct {
	door     *door
	dialect  dialect
	endpoint catalog.Endpoint
	body     []byte // until it is sent
	free     func() // gives back what body takes; nil = nothing is
	book     *book
	held     amount // set aside for it in the book
	in       int64  // tokens of the request, at most
	began    time.Time
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, ok := routeOf(r)
	if !ok {
		refuse(w, route.dialect, http.StatusNotFound, "there is nothing at %s %.200s: the doors are /anthropic/v1/messages, /openai/v1/responses, /openai/v1/chat/completions and /gemini/v1beta/models/MODEL:generateContent", r.Method, r.URL.Path)
		return
	}
	if !d.knows(r, route.dialect) {
		refuse(w, route.dialect, http.StatusUnauthorized, "the key is not this sandbox's: use the one in ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY as it is")
		return
	}
	if route.list {
		d.list(w, r, route.dialect)
		return
	}
	c := &call{door: d, dialect: route.dialect, began: d.g.c.Now()}
	defer c.drop()
	if status, err := c.take(w, r, route); err != nil {
		refuse(w, route.dialect, status, "%s", errs.Public(err))
		return
	}
	c.pass(w, r, route)
}

// knows reports whether a request has this sandbox's token, where its dialect has keys.
func (d *door) knows(r *http.Request, of dialect) bool {
	keys := []string{r.Header.Get("X-Api-Key"), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
	if of == generate {
		keys = append(append(keys, r.Header.Get("X-Goog-Api-Key")), r.URL.Query()["key"]...)
	}
	for _, said := range keys {
		if hmac.Equal([]byte(said), []byte(d.token)) {
			return true
		}
	}
	return false
}

// take reads a call, finds its model and sets aside what it may cost. The status is that
// of a refusal.
func (c *call) take(w http.ResponseWriter, r *http.Request, route route) (status int, err error) {
	if status, err = c.read(w, r); err != nil {
		return status, err
	}
	if status, err = c.understand(r.Context(), route); err != nil {
		return status, err
	}
	if c.book, err = c.door.g.books.hold(r.Context(), c.door.c, c.held); err != nil {
		return statusOf(err), err
	}
	return 0, nil
}

// drop lets go of the request.
func (c *call) drop() {
	if c.body = nil; c.free != nil {
		c.free()
	}
}

// read takes the request's body.
func (c *call) read(w http.ResponseWriter, r *http.Request) (status int, err error) {
	size := int64(bodyBytesMax)
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	if size > bodyBytesMax {
		return http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the request is larger than %d MB", bodyBytesMax>>20)
	}
	var ok bool
	if c.free, ok = c.door.g.room(c.door.c.Sandbox, size); !ok {
		return http.StatusTooManyRequests, errs.New(errs.Conflict, "too many large requests are under way")
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyWait)) // what has none has a sender that is here
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(size, 1<<20)) + bytes.MinRead) // the rest as it comes
	}
	n, err := b.ReadFrom(io.LimitReader(r.Body, bodyBytesMax+1))
	switch {
	case err != nil:
		return http.StatusBadRequest, errs.New(errs.Invalid, "the request could not be read")
	case n > bodyBytesMax:
		return http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the request is larger than %d MB", bodyBytesMax>>20)
	}
	_ = control.SetReadDeadline(time.Time{})
	c.body = b.Bytes()
	return 0, nil
}

// understand finds the model of a request and what it may cost, and refuses what is not
// allowed.
func (c *call) understand(ctx context.Context, route route) (status int, err error) {
	select {
	case c.door.g.parses <- struct{}{}:
		defer func() { <-c.door.g.parses }()
	case <-ctx.Done():
		return http.StatusServiceUnavailable, errs.New(errs.Unavailable, "the client is gone")
	}
	a, err := parse(c.dialect, c.body)
	if err != nil {
		return http.StatusBadRequest, err
	}
	if c.dialect == generate {
		a.model = route.model
	}
	if c.endpoint, err = c.door.find(ctx, a.model); err != nil {
		return http.StatusForbidden, err
	}
	if !c.dialect.speaks(c.endpoint.Vendor) {
		return http.StatusBadRequest, errs.New(errs.Invalid, "the model %s does not speak this API, but that of %s", c.endpoint.Name, doorsOf(c.endpoint.Vendor))
	}
	if err = a.check(c.dialect); errs.Is(err, errs.Invalid) {
		return http.StatusBadRequest, err
	} else if err != nil {
		return http.StatusForbidden, err
	}
	if b := c.door.c.Grant.Budget; b.CostUSD > 0 && b.Tokens == 0 && c.endpoint.Price == (llm.Price{}) {
		return http.StatusForbidden, errs.New(errs.Denied, "what the model %s costs is not known here, and this sandbox's budget is in dollars: its operator can give the model a price, or the sandbox a budget of tokens", c.endpoint.Name)
	}
	if c.held, c.in = a.most(c.endpoint); route.count { // it costs nothing
		c.held = amount{calls: 1}
	}
	c.body = a.named(c.body, c.endpoint.ID)
	return 0, nil
}

// statusOf is the status of a refusal by the books: programs try again soon after a 429,
// and not after a 403.
func statusOf(err error) int {
	switch errs.Of(err) {
	case errs.Limit:
		return http.StatusForbidden
	case errs.Conflict:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// find resolves a name that a program uses.
func (d *door) find(ctx context.Context, name string) (catalog.Endpoint, error) {
	if len(d.c.Grant.Models) == 0 {
		return catalog.Endpoint{}, errs.New(errs.Denied, "this sandbox may use no model")
	}
	if name == "default" {
		name = d.c.Grant.Models[0]
	}
	if slices.Contains(d.c.Grant.Models, name) {
		return d.g.c.Models.Endpoint(ctx, name)
	}
	for _, granted := range d.c.Grant.Models {
		if e, err := d.g.c.Models.Endpoint(ctx, granted); err == nil && (e.ID == name || e.Vendor+"/"+e.ID == name) {
			return e, nil
		}
	}
	return catalog.Endpoint{}, errs.New(errs.Denied, "this sandbox may not use the model %.100q, but %s", name, strings.Join(d.c.Grant.Models, ", "))
}
