package vercel

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/problem"
)

// Bounds and defaults of sandboxes.
const (
	timeoutDefault = 5 * time.Minute
	timeoutMax     = 10 * 365 * 24 * time.Hour
	portsMax       = 15
	memoryPerCPU   = 2048 // MB, as clients expect it
	pageDefault    = 50
	pageMax        = 100
	region         = "skete" // clients want one
)

// What clients say of a sandbox that we have no field for stands in its metadata,
// beside its tags.
const (
	own         = "vercel." // begins all of these
	metaPorts   = own + "ports"
	metaTimeout = own + "timeout_ms" // of its next sessions
	metaRuntime = own + "runtime"
	metaImage   = own + "image"
)

// newSandbox is the request to create one.
type newSandbox struct {
	ProjectID string  `json:"projectId"` // the key says whose it is
	Source    *source `json:"source"`
	Runtime   string  `json:"runtime"`
	settings
}

// settings are those of sandboxes that are made, forked or changed.
type settings struct {
	Name               string            `json:"name"`
	Ports              []int             `json:"ports"`
	Timeout            *int64            `json:"timeout"` // ms
	Resources          *resources        `json:"resources"`
	Image              string            `json:"image"`
	Persistent         *bool             `json:"persistent"`
	NetworkPolicy      *networkPolicy    `json:"networkPolicy"`
	NetworkID          string            `json:"networkId"`
	Env                map[string]string `json:"env"`
	Tags               map[string]string `json:"tags"`
	SnapshotExpiration int64             `json:"snapshotExpiration"` // ms; 0 = none
	KeepLastSnapshots  json.RawMessage   `json:"keepLastSnapshots"`
	Mounts             json.RawMessage   `json:"mounts"`
	Region             string            `json:"region"`
	FailoverRegions    []string          `json:"failoverRegions"`
	CurrentSnapshotID  string            `json:"currentSnapshotId"`
}

type resources struct {
	VCPUs  int `json:"vcpus"`
	Memory int `json:"memory"` // MB
}

type source struct {
	Type       string `json:"type"` // snapshot
	SnapshotID string `json:"snapshotId"`
	// The rest is of types that are not supported.
	URL      string `json:"url"`
	Depth    int    `json:"depth"`
	Revision string `json:"revision"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// unsupported names what was asked for and is not supported; "" = all is.
func (s settings) unsupported() string {
	switch {
	case s.NetworkID != "":
		return "networkId"
	case s.SnapshotExpiration != 0:
		return "snapshotExpiration, since snapshots stay until they are deleted,"
	case given(s.KeepLastSnapshots):
		return "keepLastSnapshots"
	case given(s.Mounts):
		return "mounts"
	case s.Region != "" && s.Region != region:
		return "region"
	case len(s.FailoverRegions) > 0:
		return "failoverRegions"
	case s.CurrentSnapshotID != "":
		return "currentSnapshotId"
	}
	return ""
}

// given reports whether a field holds anything.
func given(value json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(value)), "") {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// check refuses what is absurd or not supported.
func (s settings) check() error {
	if what := s.unsupported(); what != "" {
		return notSupported(what)
	}
	if slices.Contains([]string{"sessions", "snapshots", "drives"}, s.Name) {
		return errs.New(errs.Invalid, "a sandbox cannot be called %q: its address would be another's", s.Name)
	}
	if len(s.Ports) > portsMax {
		return errs.New(errs.Invalid, "there are %d ports, at most %d are possible", len(s.Ports), portsMax)
	}
	for i, p := range s.Ports {
		if p < 1 || p > 65535 || slices.Contains(s.Ports[:i], p) {
			return errs.New(errs.Invalid, "ports: %d is no port, or is there twice", p)
		}
	}
	for name := range s.Tags {
		if strings.HasPrefix(name, own) {
			return errs.New(errs.Invalid, "tags: %.64q begins with %s, which is kept for what is no tag", name, own)
		}
	}
	if s.Timeout != nil {
		_, err := duration("timeout", *s.Timeout)
		return err
	}
	return nil
}

// duration reads a time of clients, in milliseconds.
func duration(field string, ms int64) (time.Duration, error) {
	if ms < time.Second.Milliseconds() || ms > timeoutMax.Milliseconds() {
		return 0, errs.New(errs.Invalid, "%s: %d ms is not in %d to %d", field, ms, time.Second.Milliseconds(), timeoutMax.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// timeout is how long a session lasts.
func (s settings) timeout() time.Duration {
	if s.Timeout == nil {
		return timeoutDefault
	}
	return time.Duration(*s.Timeout) * time.Millisecond
}

// note puts the settings into the metadata of a sandbox; what is not said stays.
func (s settings) note(into map[string]string) {
	if s.Tags != nil {
		maps.DeleteFunc(into, func(name, _ string) bool { return !strings.HasPrefix(name, own) })
		maps.Copy(into, s.Tags)
	}
	if s.Ports != nil {
		texts := make([]string, len(s.Ports))
		for i, p := range s.Ports {
			texts[i] = strconv.Itoa(p)
		}
		into[metaPorts] = strings.Join(texts, " ")
	}
	if s.Timeout != nil {
		into[metaTimeout] = strconv.FormatInt(*s.Timeout, 10)
	}
	maps.DeleteFunc(into, func(name, value string) bool { return strings.HasPrefix(name, own) && value == "" })
}

// ephemeral reports whether what is made of something else is not to outlast its session.
func (s settings) ephemeral() bool { return s.Persistent != nil && !*s.Persistent }

// request is what the manager is asked for.
func (n newSandbox) request(l sandbox.Limits) (r sandbox.CreateRequest, err error) {
	if err := n.check(); err != nil {
		return r, err
	}
	timeout := n.timeout().Milliseconds()
	n.Timeout = &timeout
	r.Spec = sandbox.Spec{
		Name: n.Name, Env: n.Env, Metadata: map[string]string{metaRuntime: n.Runtime, metaImage: n.Image}, TTL: n.timeout(),
		Persist:     n.Persistent == nil || *n.Persistent,
		IdleTimeout: l.IdleTimeoutMax, // clients know of the timeout alone
	}
	n.note(r.Spec.Metadata)
	if n.Source != nil {
		r.Spec.Ephemeral = n.ephemeral()
		r.From, err = n.from()
		return r, err
	}
	if r.Spec.Template, err = n.template(); err != nil {
		return r, err
	}
	if r.Spec.Template != "" { // it may have another
		r.Spec.Workdir = workspace
	}
	if n.Resources != nil {
		r.Spec.CPUs, r.Spec.MemoryMB = float64(n.Resources.VCPUs), cmp.Or(n.Resources.Memory, n.Resources.VCPUs*memoryPerCPU)
		if n.Resources.VCPUs < 1 || r.Spec.MemoryMB < 1 {
			return r, errs.New(errs.Invalid, "resources: %d vcpus and %d MB are no machine", n.Resources.VCPUs, r.Spec.MemoryMB)
		}
	}
	return r, n.leaves(&r.Spec)
}

// template is what a sandbox starts from: a runtime or an image is the template of its
// name. "" = the server's default.
func (n newSandbox) template() (string, error) {
	switch {
	case n.Runtime != "" && n.Image != "":
		return "", errs.New(errs.Invalid, "runtime and image exclude each other")
	case strings.ContainsAny(n.Image, "/:@"):
		return "", errs.New(errs.Invalid, "the image %.100q is of another registry: here an image is the name of a template", n.Image).
			WithHint("`skete template pull IMAGE --name NAME`, on the server's machine")
	}
	return cmp.Or(n.Runtime, n.Image), nil
}

// from is the snapshot to go on from. All else is as it was there.
func (n newSandbox) from() (sandbox.SnapshotID, error) {
	switch {
	case n.Source.Type != "snapshot":
		return "", notSupported("the source " + strconv.Quote(n.Source.Type) + ", instead of which a command fetches or writeFiles brings the files,")
	case n.Source.URL != "" || n.Source.Revision != "" || n.Source.Depth != 0 || n.Source.Username != "" || n.Source.Password != "":
		return "", errs.New(errs.Invalid, "source: a snapshot has nothing but its id")
	case n.Runtime != "" || n.Image != "" || n.Resources != nil:
		return "", errs.New(errs.Invalid, "a sandbox that is made from a snapshot has the runtime and the resources that were there")
	case n.NetworkPolicy != nil:
		return "", errs.New(errs.Invalid, "a sandbox that is made from a snapshot has the network that was there").WithHint("update its network policy when it runs")
	}
	return sandbox.ParseSnapshotID(n.Source.SnapshotID)
}

// leaves puts into a spec what may leave the sandbox; where the client says nothing of
// it, that is the server's default.
func (n newSandbox) leaves(s *sandbox.Spec) error {
	if n.NetworkPolicy == nil {
		return nil
	}
	p, err := n.NetworkPolicy.policy()
	if err != nil {
		return err
	}
	s.Network, p.Profile = p.Profile, ""
	if len(p.Allow)+len(p.Deny) > 0 {
		s.Egress = &p
	}
	return nil
}

func (b *Bridge) create(w http.ResponseWriter, r *http.Request) error {
	var in newSandbox
	if err := decode(w, r, &in); err != nil {
		return err
	}
	req, err := in.request(b.Sandboxes.Limits())
	if err == nil {
		err = b.shown(in.Ports)
	}
	if err != nil {
		return err
	}
	info, err := b.Sandboxes.Create(r.Context(), auth.From(r.Context()).Tenant, req)
	if errs.Is(err, errs.NotFound) && req.Spec.Template != "" {
		return errs.New(errs.Invalid, "the runtime or image %.64q is not known here: there is no template of that name", req.Spec.Template).
			WithHint("`skete template pull IMAGE --name %.64s`, on the server's machine, makes one", req.Spec.Template)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, b.whole(info, false))
}

// shown refuses ports where the server shows none.
func (b *Bridge) shown(ports []int) error {
	if len(ports) > 0 && b.Address == nil {
		return errs.New(errs.Invalid, "this server shows no ports").WithHint("it needs a TCP address: `listen`, and `preview.domain`")
	}
	return nil
}

// sandboxView is a sandbox.
type sandboxView struct {
	Name             string            `json:"name"`
	Persistent       bool              `json:"persistent"`
	Region           string            `json:"region"`
	VCPUs            float64           `json:"vcpus"`
	Memory           int               `json:"memory"`
	Runtime          string            `json:"runtime,omitempty"`
	Image            string            `json:"image,omitempty"`
	Timeout          int64             `json:"timeout"`
	NetworkPolicy    *policyView       `json:"networkPolicy,omitempty"`
	CreatedAt        int64             `json:"createdAt"`
	UpdatedAt        int64             `json:"updatedAt"`
	ExpiresAt        int64             `json:"expiresAt,omitempty"`
	CurrentSessionID string            `json:"currentSessionId"`
	Status           string            `json:"status"`
	StatusUpdatedAt  int64             `json:"statusUpdatedAt"`
	Cwd              string            `json:"cwd"`
	Tags             map[string]string `json:"tags,omitempty"`
}

// sessionView is the session of a sandbox.
type sessionView struct {
	ID               string      `json:"id"`
	Memory           int         `json:"memory"`
	VCPUs            float64     `json:"vcpus"`
	Region           string      `json:"region"`
	Runtime          string      `json:"runtime,omitempty"`
	Timeout          int64       `json:"timeout"`
	Status           string      `json:"status"`
	RequestedAt      int64       `json:"requestedAt"`
	StartedAt        int64       `json:"startedAt,omitempty"`
	StoppedAt        int64       `json:"stoppedAt,omitempty"`
	Duration         int64       `json:"duration,omitempty"`
	SourceSnapshotID string      `json:"sourceSnapshotId,omitempty"`
	CreatedAt        int64       `json:"createdAt"`
	Cwd              string      `json:"cwd"`
	UpdatedAt        int64       `json:"updatedAt"`
	NetworkPolicy    *policyView `json:"networkPolicy,omitempty"`
}

// routeView is where a port of a sandbox is shown.
type routeView struct {
	URL       string `json:"url"`
	Subdomain string `json:"subdomain"`
	Port      int    `json:"port"`
}

// notThere stands in the subdomain of a port. The SDK makes https://SUBDOMAIN.vercel.run
// of it, whatever it is told: an address that is not ours, and of which no certificate
// of that domain is good.
const notThere = ".use-sandbox-routes"

// wholeView is a sandbox with its session.
type wholeView struct {
	Sandbox sandboxView `json:"sandbox"`
	Session sessionView `json:"session"`
	Routes  []routeView `json:"routes"`
	Resumed bool        `json:"resumed"`
}

func (b *Bridge) whole(info sandbox.Info, resumed bool) wholeView {
	return wholeView{viewOf(info), sessionOf(info), b.routesOf(info), resumed}
}

func nameOf(info sandbox.Info) string { return cmp.Or(info.Spec.Name, string(info.ID)) }

func cwdOf(info sandbox.Info) string { return cmp.Or(info.Spec.Workdir, workspace) }

// ms is a time as clients have it; 0 = none.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// latest of the times at which a sandbox changed.
func latest(info sandbox.Info) int64 {
	return max(ms(info.CreatedAt), ms(info.StartedAt), ms(info.EndedAt))
}

func viewOf(info sandbox.Info) sandboxView {
	v := sandboxView{
		Name: nameOf(info), Persistent: info.Spec.Persist, Region: region, VCPUs: info.Spec.CPUs, Memory: info.Spec.MemoryMB,
		Runtime: info.Spec.Metadata[metaRuntime], Image: info.Spec.Metadata[metaImage], Timeout: nextTimeout(info).Milliseconds(),
		NetworkPolicy: policyOf(info.Spec), CreatedAt: ms(info.CreatedAt), UpdatedAt: latest(info), ExpiresAt: ms(info.ExpiresAt),
		CurrentSessionID: string(info.ID), Status: statusOf(info.State), StatusUpdatedAt: latest(info), Cwd: cwdOf(info), Tags: map[string]string{},
	}
	for name, value := range info.Spec.Metadata {
		if !strings.HasPrefix(name, own) {
			v.Tags[name] = value
		}
	}
	return v
}

// nextTimeout is how long the next session of a sandbox lasts.
func nextTimeout(info sandbox.Info) time.Duration {
	if n, err := strconv.ParseInt(info.Spec.Metadata[metaTimeout], 10, 64); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return cmp.Or(info.Spec.TTL, timeoutMax)
}

func sessionOf(info sandbox.Info) sessionView {
	started := info.StartedAt
	if started.IsZero() {
		started = info.CreatedAt
	}
	v := sessionView{
		ID: string(info.ID), Memory: info.Spec.MemoryMB, VCPUs: info.Spec.CPUs, Region: region, Runtime: info.Spec.Metadata[metaRuntime],
		Timeout: timeoutMax.Milliseconds(), Status: statusOf(info.State), RequestedAt: ms(info.CreatedAt), StartedAt: ms(started),
		SourceSnapshotID: string(info.From), CreatedAt: ms(info.CreatedAt), Cwd: cwdOf(info), UpdatedAt: latest(info), NetworkPolicy: policyOf(info.Spec),
	}
	if !info.ExpiresAt.IsZero() {
		v.Timeout = max(0, ms(info.ExpiresAt)-ms(started))
	}
	if v.Status != running && v.Status != pending {
		v.StoppedAt = ms(info.EndedAt)
		v.Duration = max(0, v.StoppedAt-ms(started))
	}
	return v
}

func (b *Bridge) routesOf(info sandbox.Info) []routeView {
	routes := []routeView{}
	for text := range strings.FieldsSeq(info.Spec.Metadata[metaPorts]) {
		port, err := strconv.Atoi(text)
		if err != nil || b.Address == nil {
			continue
		}
		label := text + "-" + strings.TrimPrefix(string(info.ID), sandbox.IDPrefix)
		routes = append(routes, routeView{URL: b.Address(info.ID, port), Subdomain: label + notThere, Port: port})
	}
	return routes
}

// States as clients know them.
const (
	pending = "pending"
	running = "running"
	stopped = "stopped"
	failed  = "failed"
)

func statusOf(s sandbox.State) string {
	switch s {
	case sandbox.Creating:
		return pending
	case sandbox.Running:
		return running
	case sandbox.Failed:
		return failed
	}
	return stopped
}

// there returns a sandbox that was not destroyed.
func (b *Bridge) there(ctx context.Context, id sandbox.ID) (sandbox.Info, error) {
	info, err := b.Sandboxes.Get(ctx, auth.From(ctx).Tenant, id)
	if err == nil && info.State == sandbox.Destroyed {
		err = errs.New(errs.NotFound, "the sandbox %s is gone", id)
	}
	return info, err
}

// notRunning says that a sandbox does not run, by the status that clients know that by.
func notRunning(info sandbox.Info) error {
	return problem.At(http.StatusGone, errs.New(errs.Conflict, "the sandbox %.80s is %s", nameOf(info), info.State))
}

func (b *Bridge) get(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	info, err := b.there(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	resumed := false
	if r.URL.Query().Get("resume") == "true" {
		if info, resumed, err = b.resume(ctx, info); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, b.whole(info, resumed))
}

// resume lets a sandbox that does not run go on.
func (b *Bridge) resume(ctx context.Context, info sandbox.Info) (sandbox.Info, bool, error) {
	start := b.Sandboxes.Start
	switch info.State {
	case sandbox.Running, sandbox.Creating:
		return info, false, nil
	case sandbox.Paused:
		start = b.Sandboxes.Resume
	}
	if _, err := start(ctx, info.Tenant, info.ID); err != nil {
		return info, false, err
	}
	ttl := nextTimeout(info)
	if ttl == timeoutMax {
		ttl = 0
	}
	info, err := b.Sandboxes.Update(ctx, info.Tenant, info.ID, sandbox.UpdateRequest{TTL: &ttl})
	return info, true, err
}

func (b *Bridge) session(w http.ResponseWriter, r *http.Request) error {
	info, err := b.there(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"session": sessionOf(info), "routes": b.routesOf(info)})
}

// pagination says where a list goes on; next nil = nowhere.
type pagination struct {
	Count int     `json:"count"`
	Next  *string `json:"next"`
}

// pageOf cuts a page out of a list.
func pageOf[T any](all []T, q url.Values) ([]T, pagination, error) {
	size, from := pageDefault, 0
	var err error
	if text := q.Get("limit"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 || size > pageMax {
			return nil, pagination{}, errs.New(errs.Invalid, "limit is 1 to %d", pageMax)
		}
	}
	if text := q.Get("cursor"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return nil, pagination{}, errs.New(errs.Invalid, "cursor is not one of a list")
		}
	}
	page := slices.Clone(all[min(from, len(all)):])
	p := pagination{}
	if len(page) > size {
		page = page[:size]
		next := strconv.Itoa(from + size)
		p.Next = &next
	}
	p.Count = len(page)
	return page, p, nil
}

// ascending reads in which order a list is wanted; the newest is first by itself.
func ascending(q url.Values, otherwise bool) (bool, error) {
	switch q.Get("sortOrder") {
	case "":
		return otherwise, nil
	case "asc":
		return true, nil
	case "desc":
		return false, nil
	}
	return false, errs.New(errs.Invalid, "sortOrder is asc or desc")
}

func (b *Bridge) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	all, err := b.all(r.Context(), q)
	if err != nil {
		return err
	}
	page, p, err := pageOf(all, q)
	if err != nil {
		return err
	}
	views := []sandboxView{}
	for _, info := range page {
		views = append(views, viewOf(info))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"sandboxes": views, "pagination": p})
}

// all lists what a query wants, in its order.
func (b *Bridge) all(ctx context.Context, q url.Values) (all []sandbox.Info, err error) {
	f := sandbox.Filter{PageSize: 1000}
	if tag := q.Get("tags"); tag != "" {
		name, value, ok := strings.Cut(tag, ":")
		if !ok || strings.HasPrefix(name, own) {
			return nil, errs.New(errs.Invalid, "tags: %.80q is no tag", tag)
		}
		f.Metadata = map[string]string{name: value}
	}
	by, ok := orders[q.Get("sortBy")]
	if !ok {
		return nil, errs.New(errs.Invalid, "sortBy is createdAt, name or statusUpdatedAt")
	}
	up, err := ascending(q, q.Get("sortBy") == "name")
	if err != nil {
		return nil, err
	}
	for {
		page, err := b.Sandboxes.List(ctx, auth.From(ctx).Tenant, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if f.PageToken = page.Next; f.PageToken == "" {
			break
		}
	}
	all = slices.DeleteFunc(all, func(i sandbox.Info) bool { return !strings.HasPrefix(nameOf(i), q.Get("namePrefix")) })
	slices.SortStableFunc(all, func(a, b sandbox.Info) int {
		if up {
			return by(a, b)
		}
		return by(b, a)
	})
	return all, nil
}

var orders = map[string]func(a, b sandbox.Info) int{
	"":                func(a, b sandbox.Info) int { return a.CreatedAt.Compare(b.CreatedAt) },
	"createdAt":       func(a, b sandbox.Info) int { return a.CreatedAt.Compare(b.CreatedAt) },
	"statusUpdatedAt": func(a, b sandbox.Info) int { return cmp.Compare(latest(a), latest(b)) },
	"name":            func(a, b sandbox.Info) int { return strings.Compare(nameOf(a), nameOf(b)) },
}

// sessions lists the one session of a sandbox.
func (b *Bridge) sessions(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	all := []sessionView{}
	if q.Get("name") == "" {
		return errs.New(errs.Invalid, "sessions are listed of one sandbox, by its name")
	}
	if _, err := ascending(q, false); err != nil {
		return err
	}
	ctx := r.Context()
	id, err := b.named(ctx, auth.From(ctx).Tenant, q.Get("name"))
	if err != nil {
		return err
	}
	info, err := b.there(ctx, id)
	if err != nil {
		return err
	}
	page, p, err := pageOf(append(all, sessionOf(info)), q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"sessions": page, "pagination": p})
}

// update changes a sandbox. Its timeout is that of the next session: the SDK extends
// the one that runs by itself.
func (b *Bridge) update(w http.ResponseWriter, r *http.Request) error {
	var in settings
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.Resources != nil || in.Persistent != nil || in.Image != "" || in.Env != nil || in.Name != "" {
		return notSupported("an update of resources, persistent, image, env or name")
	}
	if err := b.shown(in.Ports); err != nil {
		return err
	}
	info, err := b.there(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	u := sandbox.UpdateRequest{Metadata: maps.Clone(info.Spec.Metadata)}
	if u.Metadata == nil {
		u.Metadata = map[string]string{}
	}
	in.note(u.Metadata)
	if in.NetworkPolicy != nil {
		p, err := in.NetworkPolicy.policy()
		if err != nil {
			return err
		}
		u.Network = &p
	}
	if info, err = b.Sandboxes.Update(r.Context(), info.Tenant, info.ID, u); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"sandbox": viewOf(info), "routes": b.routesOf(info)})
}

// remove destroys a sandbox.
func (b *Bridge) remove(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	info, err := b.there(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	if err := b.Sandboxes.Destroy(ctx, info.Tenant, info.ID); err != nil {
		return err
	}
	if r.URL.Query().Get("deleteOrphanSnapshots") == "true" {
		for _, s := range b.snapshotsOf(ctx, info.ID) {
			if err := b.Sandboxes.DeleteSnapshot(ctx, info.Tenant, s.ID); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
	}
	info.State = sandbox.Destroyed
	return writeJSON(w, http.StatusOK, map[string]any{"sandbox": viewOf(info)})
}

// stop ends a session. What is not persistent goes with it.
func (b *Bridge) stop(w http.ResponseWriter, r *http.Request) error {
	info, err := b.there(r.Context(), sandboxOf(r))
	if err == nil {
		info, err = b.end(r.Context(), info)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"session": sessionOf(info), "sandbox": viewOf(info)})
}

func (b *Bridge) end(ctx context.Context, info sandbox.Info) (sandbox.Info, error) {
	if info.Spec.Persist {
		if info.State == sandbox.Stopped || info.State == sandbox.Failed {
			return info, nil
		}
		return b.Sandboxes.Stop(ctx, info.Tenant, info.ID)
	}
	if err := b.Sandboxes.Destroy(ctx, info.Tenant, info.ID); err != nil {
		return info, err
	}
	info.State, info.EndedAt = sandbox.Destroyed, now()
	return info, nil
}

// extend moves the end of a session.
func (b *Bridge) extend(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Duration int64 `json:"duration"` // ms
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	more, err := duration("duration", in.Duration)
	if err != nil {
		return err
	}
	info, err := b.there(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	if info.State != sandbox.Running && info.State != sandbox.Paused {
		return notRunning(info)
	}
	if !info.ExpiresAt.IsZero() {
		ttl := max(0, info.ExpiresAt.Sub(now())) + more
		if info, err = b.Sandboxes.Update(r.Context(), info.Tenant, info.ID, sandbox.UpdateRequest{TTL: &ttl}); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"session": sessionOf(info)})
}

// fork makes a sandbox that goes on from the files of another.
func (b *Bridge) fork(w http.ResponseWriter, r *http.Request) error {
	var in settings
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	if in.Resources != nil || in.Image != "" || in.NetworkPolicy != nil {
		return notSupported("a fork with other resources, another image or another networkPolicy")
	}
	if err := b.shown(in.Ports); err != nil {
		return err
	}
	ctx := r.Context()
	info, err := b.there(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	changes := in.changes(info, b.Sandboxes.Limits())
	forks, err := b.Sandboxes.Fork(ctx, info.Tenant, info.ID, sandbox.ForkRequest{Count: 1, DiskOnly: true, Changes: changes})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, b.whole(forks[0], false))
}

// changes are what differs in a fork.
func (s settings) changes(from sandbox.Info, l sandbox.Limits) sandbox.Changes {
	c := sandbox.Changes{
		Name: s.Name, Env: s.Env, Metadata: maps.Clone(from.Spec.Metadata), TTL: nextTimeout(from), IdleTimeout: l.IdleTimeoutMax,
		Persist: s.Persistent != nil && *s.Persistent, Ephemeral: s.ephemeral(),
	}
	if s.Timeout != nil {
		c.TTL = s.timeout()
	}
	if s.Env == nil {
		c.Env = from.Spec.Env
	}
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	s.note(c.Metadata)
	return c
}
