package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// Bounds and defaults of the REST API.
const (
	bodyBytesMax     = 1 << 20
	timeoutDefault   = 15 // seconds, of v1
	timeoutDefaultV2 = 300
	timeoutMax       = 10 * 365 * 24 * 3600
	pageDefault      = 100
	baseTemplate     = "base"
	clientField      = "skete" // the name of a machine of theirs, which clients only show
)

// routeREST has all of the REST API.
func (b *Bridge) routeREST() {
	create := func(timeout int) apiHandler {
		return func(w http.ResponseWriter, r *http.Request) error { return b.create(w, r, timeout) }
	}
	connect := func(timeout int) apiHandler {
		return func(w http.ResponseWriter, r *http.Request) error { return b.connect(w, r, timeout) }
	}
	for pattern, o := range map[string]struct {
		scope key.Scope
		name  string
		h     apiHandler
	}{
		"POST /sandboxes":                 {key.Write, "create-sandbox", create(timeoutDefault)},
		"POST /v2/sandboxes":              {key.Write, "create-sandbox", create(timeoutDefaultV2)},
		"GET /sandboxes":                  {key.Read, "list-sandboxes", b.list},
		"GET /v2/sandboxes":               {key.Read, "list-sandboxes", b.list},
		"GET /sandboxes/{id}":             {key.Read, "get-sandbox", b.get},
		"DELETE /sandboxes/{id}":          {key.Write, "destroy-sandbox", b.kill},
		"POST /sandboxes/{id}/timeout":    {key.Write, "update-sandbox", b.timeout},
		"POST /sandboxes/{id}/refreshes":  {key.Write, "update-sandbox", b.refresh},
		"POST /sandboxes/{id}/connect":    {key.Write, "resume-sandbox", connect(timeoutDefault)},
		"POST /v2/sandboxes/{id}/connect": {key.Write, "resume-sandbox", connect(timeoutDefaultV2)},
		"POST /sandboxes/{id}/resume":     {key.Write, "resume-sandbox", connect(timeoutDefault)},
		"POST /sandboxes/{id}/pause":      {key.Write, "pause-sandbox", b.pause},
		"GET /sandboxes/{id}/metrics":     {key.Read, "get-sandbox-metrics", b.sandboxMetrics},
		"PUT /sandboxes/{id}/network":     {key.Write, "update-sandbox", b.updateNetwork},
		"POST /sandboxes/{id}/snapshots":  {key.Write, "create-snapshot", b.snapshot},
		"POST /sandboxes/{id}/fork":       {key.Write, "fork-sandbox", b.fork},
		"GET /snapshots":                  {key.Read, "list-snapshots", b.snapshots},
		"DELETE /templates/{template}":    {key.Write, "delete-snapshot", b.deleteTemplate},
		"GET /templates/aliases/{alias}":  {key.Read, "get-template", b.alias},
		"GET /secrets":                    {key.Read, "list-secrets", b.withSecrets(b.listSecrets)},
		"POST /secrets":                   {key.Write, "put-secret", b.withSecrets(b.putSecret)},
		"GET /secrets/{secret}":           {key.Read, "get-secret", b.withSecrets(b.getSecret)},
		"POST /secrets/{secret}":          {key.Write, "put-secret", b.withSecrets(b.putSecret)},
		"DELETE /secrets/{secret}":        {key.Write, "delete-secret", b.withSecrets(b.deleteSecret)},
	} {
		b.rest.HandleFunc(pattern, b.api(o.scope, o.name, o.h))
	}
	b.rest.HandleFunc("/", b.unknown)
}

// apiHandler answers a call of a caller who is admitted. An error is answered if
// nothing was written.
type apiHandler func(w http.ResponseWriter, r *http.Request) error

// api puts the check of the caller around a handler.
func (b *Bridge) api(scope key.Scope, operation string, h apiHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := b.Gate.Admit(r, scope)
		if err != nil {
			route.Refused(r)
			refuse(w, r, err)
			return
		}
		a := route.Admission{Identity: id, Operation: operation, Changes: scope == key.Write}
		if text := r.PathValue("id"); text != "" {
			sid, err := parseID(text)
			if err != nil { // no sandbox has such an id: clients know that by 404
				refuse(w, r, errs.New(errs.NotFound, "there is no sandbox %.40q", text))
				return
			}
			a.Sandbox = string(sid)
		}
		r = b.table.Admitted(r, a)
		if err := h(w, r); err != nil && !route.Wrote(r) {
			refuse(w, r, err)
		}
	}
}

// sandboxOf is the id in a request's path, which api has checked.
func sandboxOf(r *http.Request) sandbox.ID {
	id, _ := parseID(r.PathValue("id"))
	return id
}

// decode reads a JSON body into v. A field that v does not have is refused: it may
// be a restriction. An empty body is none.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := route.Body(w, r, bodyBytesMax)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return route.BodyError(err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "something stands behind the JSON object")
	}
	return nil
}

// bodyError says what is wrong with a JSON body.
func bodyError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errs.New(errs.Invalid, "%.60s is of the wrong kind: %.40s", kind.Field, kind.Value)
	}
	if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		return errs.New(errs.Invalid, "the option %.60s is not known here", field).WithHint("`skete help bridges` lists what is")
	}
	return errs.Wrap(errs.Invalid, err, "the body is no JSON object")
}

// newSandbox is the request to create one.
type newSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int              `json:"timeout"` // seconds
	AutoPause           bool              `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *autoResume       `json:"autoResume"`
	Secure              *bool             `json:"secure"` // a token is always needed
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *network          `json:"network"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	MCP                 json.RawMessage   `json:"mcp"`
	IAM                 json.RawMessage   `json:"iam"`
	VolumeMounts        json.RawMessage   `json:"volumeMounts"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// unsupported names an option that was given and is not supported yet; "" = there is none.
func (n newSandbox) unsupported() string {
	for name, value := range map[string]json.RawMessage{"mcp": n.MCP, "iam": n.IAM, "volumeMounts": n.VolumeMounts} {
		if given(value) {
			return name
		}
	}
	return ""
}

// spec is what the manager is asked for.
func (n newSandbox) spec(timeout int, l sandbox.Limits) (sandbox.Spec, error) {
	if name := n.unsupported(); name != "" {
		return sandbox.Spec{}, notSupported(name)
	}
	if n.AutoPauseMemory != nil && !*n.AutoPauseMemory && !n.AutoPause {
		return sandbox.Spec{}, errs.New(errs.Invalid, "autoPauseMemory is of autoPause")
	}
	ttl, err := timeoutOf(n.Timeout, timeout)
	if err != nil {
		return sandbox.Spec{}, err
	}
	s := sandbox.Spec{
		Env: n.EnvVars, Metadata: n.Metadata, TTL: ttl, Persist: n.AutoPause, Ephemeral: !n.AutoPause, // though a snapshot's did persist
		IdleTimeout: l.IdleTimeoutMax, // clients know of the timeout alone
	}
	if _, ok := parseSnapshot(n.TemplateID); ok { // all else is as it was
		if n.Network != nil || n.AllowInternetAccess != nil && !*n.AllowInternetAccess {
			return s, errs.New(errs.Invalid, "a sandbox that is made from a snapshot has the network that was there").
				WithHint("update its network when it runs")
		}
		return s, nil
	}
	s.NoWake = n.AutoResume == nil || !n.AutoResume.Enabled
	s.Template = templateName(n.TemplateID)
	return s, n.leaves(&s)
}

// leaves puts into a spec what may leave the sandbox; where the client says nothing
// of it, that is the server's default.
func (n newSandbox) leaves(s *sandbox.Spec) error {
	if n.Network == nil {
		if n.AllowInternetAccess != nil && !*n.AllowInternetAccess {
			s.Network = egress.None
		}
		return nil
	}
	asked := *n.Network
	if asked.AllowInternet == nil {
		asked.AllowInternet = n.AllowInternetAccess
	}
	p, err := asked.policy()
	if err != nil {
		return err
	}
	s.Network, p.Profile = p.Profile, ""
	if len(p.Allow)+len(p.Deny) > 0 {
		s.Egress = &p
	}
	return nil
}

func timeoutOf(asked *int, otherwise int) (time.Duration, error) {
	seconds := otherwise
	if asked != nil {
		seconds = *asked
	}
	if seconds < 1 || seconds > timeoutMax {
		return 0, errs.New(errs.Invalid, "a timeout of %d seconds is not in 1 to %d", seconds, timeoutMax)
	}
	return time.Duration(seconds) * time.Second, nil
}

// made is a sandbox that was created or connected to.
type made struct {
	TemplateID         string `json:"templateID"`
	SandboxID          string `json:"sandboxID"`
	ClientID           string `json:"clientID"`
	EnvdVersion        string `json:"envdVersion"`
	EnvdAccessToken    string `json:"envdAccessToken"`
	TrafficAccessToken string `json:"trafficAccessToken"` // ports ask for it always
	Domain             string `json:"domain,omitempty"`
}

func (b *Bridge) create(w http.ResponseWriter, r *http.Request, timeout int) error {
	var in newSandbox
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.TemplateID == "" {
		return errs.New(errs.Invalid, "templateID is missing").WithHint("%s is always there", baseTemplate)
	}
	spec, err := in.spec(timeout, b.Sandboxes.Limits())
	if err != nil {
		return err
	}
	ctx, tenant := r.Context(), auth.From(r.Context()).Tenant
	from, _ := parseSnapshot(in.TemplateID)
	rules, err := b.rules(tenant, in.Network)
	if err != nil {
		return err
	}
	info, err := b.Sandboxes.Create(ctx, tenant, sandbox.CreateRequest{Spec: spec, From: from})
	if err != nil {
		return withoutInterpreter(spec.Template, err)
	}
	answer, err := b.made(ctx, info, record{Template: in.TemplateID, Internet: in.AllowInternetAccess, Network: in.Network})
	if err == nil {
		err = b.grant(ctx, tenant, info.ID, rules)
	}
	if err != nil { // without its token it is of no use
		return errors.Join(err, b.Sandboxes.Destroy(context.WithoutCancel(ctx), tenant, info.ID))
	}
	writeJSON(w, http.StatusCreated, answer)
	return nil
}

// made gives the caller the token of a sandbox. fresh is what its record says if it has none.
func (b *Bridge) made(ctx context.Context, info sandbox.Info, fresh record) (made, error) {
	who := auth.From(ctx)
	fresh.Tenant, fresh.Sandbox = info.Tenant, info.ID
	by := owner{ID: who.Owner, Name: who.Name}
	if who.Login != "" {
		by.ID = who.Login
	}
	rec, err := b.records.note(ctx, fresh, by)
	if err != nil {
		return made{}, err
	}
	token, err := b.records.token(ctx, rec)
	if err != nil {
		return made{}, err
	}
	traffic, err := b.records.traffic(ctx, rec)
	return made{
		TemplateID: templateOf(info, rec), SandboxID: clientID(info.ID), ClientID: clientField,
		EnvdVersion: version, EnvdAccessToken: token, TrafficAccessToken: traffic, Domain: b.Domain,
	}, err
}

// templateOf is the template as the client named it.
func templateOf(info sandbox.Info, rec record) string {
	for _, name := range []string{rec.Template, info.Spec.Template} {
		if name != "" {
			return name
		}
	}
	return baseTemplate
}

// detail is a sandbox as it is now.
type detail struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int               `json:"memoryMB"`
	DiskSizeMB  int               `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	*private
}

// private is what only a request for one sandbox is told.
type private struct {
	EnvdAccessToken     string    `json:"envdAccessToken,omitempty"`
	AllowInternetAccess *bool     `json:"allowInternetAccess,omitempty"`
	Domain              string    `json:"domain,omitempty"`
	Network             *network  `json:"network,omitempty"`
	Lifecycle           lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"` // kill, pause
}

// States as clients know them.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// states are those of sandboxes which clients are shown.
var states = map[string][]sandbox.State{
	stateRunning: {sandbox.Creating, sandbox.Running},
	statePaused:  {sandbox.Paused, sandbox.Stopped},
}

// stateOf is how clients know a state; "" = such a sandbox is gone for them.
func stateOf(s sandbox.State) string {
	for name, of := range states {
		if slices.Contains(of, s) {
			return name
		}
	}
	return ""
}

// endless is the end of a sandbox that has none: clients want one.
const endless = 10 * 365 * 24 * time.Hour

func (b *Bridge) detail(ctx context.Context, info sandbox.Info) (detail, record) {
	rec, _ := b.records.get(ctx, info.ID) // a sandbox of another surface has none
	started, end := info.StartedAt, info.ExpiresAt
	if started.IsZero() {
		started = info.CreatedAt
	}
	if end.IsZero() {
		end = started.Add(endless)
	}
	return detail{
		TemplateID: templateOf(info, rec), SandboxID: clientID(info.ID), ClientID: clientField, StartedAt: started.UTC(), EndAt: end.UTC(),
		CPUCount: max(1, int(info.Spec.CPUs+0.5)), MemoryMB: info.Spec.MemoryMB, DiskSizeMB: info.Spec.DiskMB,
		Metadata: info.Spec.Metadata, State: stateOf(info.State), EnvdVersion: version,
	}, rec
}

// find returns a sandbox that is there for clients.
func (b *Bridge) find(ctx context.Context, id sandbox.ID) (sandbox.Info, error) {
	info, err := b.Sandboxes.Get(ctx, auth.From(ctx).Tenant, id)
	if err == nil && stateOf(info.State) == "" {
		err = errs.New(errs.NotFound, "the sandbox %s is %s", clientID(id), info.State)
	}
	return info, err
}

func (b *Bridge) get(w http.ResponseWriter, r *http.Request) error {
	info, err := b.find(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	d, rec := b.detail(r.Context(), info)
	d.private = &private{
		AllowInternetAccess: rec.Internet, Domain: b.Domain, Network: rec.Network,
		Lifecycle: lifecycle{AutoResume: !info.Spec.NoWake, OnTimeout: onTimeout(info.Spec)},
	}
	if auth.From(r.Context()).Scopes.Allow(key.Write) && rec.Tenant != "" {
		if d.EnvdAccessToken, err = b.records.token(r.Context(), rec); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

func onTimeout(s sandbox.Spec) string {
	if s.Persist {
		return "pause"
	}
	return "kill"
}

// list answers a page, newest first.
func (b *Bridge) list(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := b.Sandboxes.List(r.Context(), auth.From(r.Context()).Tenant, f)
	if err != nil {
		return err
	}
	items := []detail{}
	for _, info := range page.Items {
		d, _ := b.detail(r.Context(), info)
		items = append(items, d)
	}
	if page.Next != "" {
		w.Header().Set("X-Next-Token", page.Next)
	}
	writeJSON(w, http.StatusOK, items)
	return nil
}

// filterOf reads what a list is asked for.
func filterOf(q url.Values) (sandbox.Filter, error) {
	f := sandbox.Filter{PageSize: pageDefault, PageToken: q.Get("nextToken")}
	for name := range q {
		if !slices.Contains([]string{"metadata", "state", "limit", "nextToken"}, name) {
			return f, errs.New(errs.Invalid, "lists cannot be asked for %.40q here", name).WithHint("`skete help bridges` lists what works")
		}
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > pageDefault {
			return f, errs.New(errs.Invalid, "limit is 1 to %d", pageDefault)
		}
		f.PageSize = n
	}
	wanted := q["state"]
	if len(wanted) == 0 {
		wanted = []string{stateRunning, statePaused}
	}
	for name := range strings.SplitSeq(strings.Join(wanted, ","), ",") {
		of, ok := states[name]
		if !ok {
			return f, errs.New(errs.Invalid, "%.40q is no state", name).WithHint("running, paused")
		}
		f.States = append(f.States, of...)
	}
	var err error
	f.Metadata, err = metadataOf(q.Get("metadata"))
	return f, err
}

// metadataOf reads a filter by metadata: a query within the query, whose keys and
// values were escaped once more.
func metadataOf(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the filter by metadata cannot be read")
	}
	m := map[string]string{}
	for k, vs := range values {
		name, err := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(vs[0])
		if err != nil || err2 != nil || len(vs) > 1 {
			return nil, errs.New(errs.Invalid, "the filter by metadata cannot be read at %.40q", k)
		}
		m[name] = value
	}
	return m, nil
}

func (b *Bridge) kill(w http.ResponseWriter, r *http.Request) error {
	id, tenant := sandboxOf(r), auth.From(r.Context()).Tenant
	info, err := b.Sandboxes.Get(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	if info.State == sandbox.Destroyed { // one that has failed has files, which end here
		return errs.New(errs.NotFound, "the sandbox %s is %s", clientID(id), info.State)
	}
	if err := b.Sandboxes.Destroy(r.Context(), tenant, id); err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context())
	rec, err := b.records.get(ctx, id)
	if err == nil {
		err = b.revokeRules(ctx, rec)
	}
	if err == nil {
		err = b.records.remove(ctx, id)
	}
	if err != nil && !errs.Is(err, errs.NotFound) {
		b.Log.Warn("the record of a sandbox stays until the next sweep", "sandbox", string(id), "error", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type timeoutBody struct {
	Timeout  *int `json:"timeout"`  // seconds
	Duration *int `json:"duration"` // the same, of refreshes
	// AutoPause is of old clients that resume.
	AutoPause *bool `json:"autoPause"`
}

// timeout sets the end of a sandbox, counted from now.
func (b *Bridge) timeout(w http.ResponseWriter, r *http.Request) error {
	var in timeoutBody
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.Timeout == nil {
		return errs.New(errs.Invalid, "timeout is missing")
	}
	ttl, err := timeoutOf(in.Timeout, timeoutDefault)
	if err != nil {
		return err
	}
	if _, err := b.find(r.Context(), sandboxOf(r)); err != nil {
		return err
	}
	if _, err := b.Sandboxes.Update(r.Context(), auth.From(r.Context()).Tenant, sandboxOf(r), sandbox.UpdateRequest{TTL: &ttl}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refresh makes a sandbox last at least so long from now.
func (b *Bridge) refresh(w http.ResponseWriter, r *http.Request) error {
	var in timeoutBody
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ttl, err := timeoutOf(in.Duration, timeoutDefault)
	if err != nil {
		return err
	}
	info, err := b.find(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	if err := b.extend(r.Context(), info, ttl); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// extend never makes the end come sooner.
func (b *Bridge) extend(ctx context.Context, info sandbox.Info, ttl time.Duration) error {
	if info.ExpiresAt.IsZero() || info.ExpiresAt.After(now().Add(ttl)) {
		return nil
	}
	_, err := b.Sandboxes.Update(ctx, info.Tenant, info.ID, sandbox.UpdateRequest{TTL: &ttl})
	return err
}

// connect gives the token of a sandbox, and lets a paused one go on.
func (b *Bridge) connect(w http.ResponseWriter, r *http.Request, timeout int) error {
	var in timeoutBody
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ttl, err := timeoutOf(in.Timeout, timeout)
	if err != nil {
		return err
	}
	ctx, id := r.Context(), sandboxOf(r)
	tenant := auth.From(ctx).Tenant
	info, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	status := http.StatusOK
	switch info.State {
	case sandbox.Paused:
		status = http.StatusCreated
		_, err = b.Sandboxes.Resume(ctx, tenant, id)
	case sandbox.Stopped:
		status = http.StatusCreated
		_, err = b.Sandboxes.Start(ctx, tenant, id)
	}
	if err == nil && status == http.StatusCreated {
		_, err = b.Sandboxes.Update(ctx, tenant, id, sandbox.UpdateRequest{TTL: &ttl})
	} else if err == nil {
		err = b.extend(ctx, info, ttl)
	}
	if err != nil {
		return err
	}
	answer, err := b.made(ctx, info, record{})
	if err != nil {
		return err
	}
	writeJSON(w, status, answer)
	return nil
}

// pause keeps a sandbox with its memory, or its files alone.
func (b *Bridge) pause(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx, id := r.Context(), sandboxOf(r)
	info, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	if stateOf(info.State) == statePaused {
		return problem.At(http.StatusConflict, errs.New(errs.Conflict, "the sandbox %s is paused", clientID(id)))
	}
	do := b.Sandboxes.Pause
	if in.Memory != nil && !*in.Memory {
		do = b.Sandboxes.Stop
	}
	if _, err := do(ctx, info.Tenant, id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// sample is what a machine uses.
type sample struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      uint32    `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// sandboxMetrics answers one sample, of now: none are kept. A sandbox that does not
// run has none.
func (b *Bridge) sandboxMetrics(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	info, err := b.find(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	samples := []sample{}
	if info.State == sandbox.Running && within(r.URL.Query(), now()) {
		guest, release, err := b.Sandboxes.Guest(ctx, info.Tenant, info.ID)
		if err != nil {
			return err
		}
		defer release()
		m, cpu, err := usage(ctx, guest)
		if err != nil {
			return err
		}
		at := time.Unix(0, m.GetTimeUnixNs()).UTC()
		samples = append(samples, sample{
			Timestamp: at, TimestampUnix: at.Unix(), CPUCount: m.GetCpuCount(), CPUUsedPct: cpu,
			MemUsed: m.GetMemUsedBytes(), MemTotal: m.GetMemTotalBytes(), DiskUsed: m.GetDiskUsedBytes(), DiskTotal: m.GetDiskTotalBytes(),
		})
	}
	writeJSON(w, http.StatusOK, samples)
	return nil
}

// within reports whether a time is in the range that a query asks for, in seconds.
func within(q url.Values, at time.Time) bool {
	start, _ := strconv.ParseInt(q.Get("start"), 10, 64)
	end, err := strconv.ParseInt(q.Get("end"), 10, 64)
	return at.Unix() >= start && (err != nil || at.Unix() <= end)
}
