package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Bounds of what a caller may write into a sandbox's record.
const (
	pairsMax          = 64
	pairBytesMax      = 4096
	pairsBytesMax     = 128 << 10
	idempotencyLenMax = 128
	durationMSMax     = int64(10 * 365 * 24 * time.Hour / time.Millisecond)
)

// SandboxPath names a sandbox. It is exported because the JSON layer looks
// only into exported embedded fields.
type SandboxPath struct {
	ID string `path:"id" doc:"of the sandbox, sbx_…, the beginning of it, or its name"`
}

func (s *Server) registerSandboxes(t *route.Table) {
	const tag = "sandboxes"
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/sandboxes", Scope: key.Write, ID: "create-sandbox", Tag: tag,
		Summary: "Create a sandbox and wait until its guest answers", Status: http.StatusCreated,
	}, s.createSandbox)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes", Scope: key.Read, ID: "list-sandboxes", Tag: tag,
		Summary: "List sandboxes, newest first",
	}, s.listSandboxes)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/events", Scope: key.Read, ID: "watch-sandboxes", Tag: tag,
		Summary: "Stream changes of state as server-sent events", Sends: route.Events[api.SandboxEvent](),
	}, s.watchSandboxes)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/sandboxes/{id}", Scope: key.Read, ID: "get-sandbox", Tag: tag,
		Summary: "Get a sandbox",
	}, s.getSandbox)
	route.JSON(t, route.Operation{
		Method: http.MethodPatch, Path: "/v1/sandboxes/{id}", Scope: key.Write, ID: "update-sandbox", Tag: tag,
		Summary: "Change the name, the time to live, the idle timeout or the metadata",
	}, s.updateSandbox)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: "/v1/sandboxes/{id}", Scope: key.Write, ID: "destroy-sandbox", Tag: tag,
		Summary: "Destroy a sandbox, from every state",
	}, s.destroySandbox)
	for verb, does := range map[string]struct {
		summary string
		do      func(context.Context, string, sandbox.ID) (sandbox.Info, error)
	}{
		"start":  {"Boot a stopped or failed sandbox again", s.sandboxes.Start},
		"stop":   {"End the machine and keep the workspace", s.sandboxes.Stop},
		"pause":  {"Freeze the machine", s.sandboxes.Pause},
		"resume": {"Let a paused machine go on", s.sandboxes.Resume},
	} {
		route.JSON(t, route.Operation{
			Method: http.MethodPost, Path: "/v1/sandboxes/{id}/" + verb, Scope: key.Write, ID: verb + "-sandbox", Tag: tag,
			Summary: does.summary, Step: route.NoStep(),
		}, verbHandler(does.do))
	}
}

// findSandbox gives the sandbox that a path names its id.
func (s *Server) findSandbox(ctx context.Context, name string) (string, error) {
	id, err := s.sandboxes.Find(ctx, auth.From(ctx).Tenant, name)
	return string(id), err
}

type sandboxOut struct{ Body api.Sandbox }

type createSandboxIn struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same sandbox; 1 to 128 printable ASCII characters"`
	Body           api.CreateSandbox
}

func (s *Server) createSandbox(ctx context.Context, in *createSandboxIn) (*sandboxOut, error) {
	if err := checkIdempotencyKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	spec, err := SpecOf(in.Body)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	info, err := s.sandboxes.Create(ctx, auth.From(ctx).Tenant, sandbox.CreateRequest{Spec: spec, Key: in.IdempotencyKey, From: sandbox.SnapshotID(in.Body.From)})
	s.metrics.Created(time.Since(start), err)
	if err != nil {
		return nil, err
	}
	return &sandboxOut{sandboxView(info)}, nil
}

func checkIdempotencyKey(k string) error {
	if len(k) > idempotencyLenMax || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errs.New(errs.Invalid, "an idempotency key has 1 to %d printable ASCII characters", idempotencyLenMax)
	}
	return nil
}

// SpecOf reads what a caller, or an agent's file, says of a new sandbox. It checks what the
// JSON layer does not know; the manager knows the rest.
func SpecOf(c api.CreateSandbox) (sandbox.Spec, error) {
	var spec sandbox.Spec
	if err := checkPairs("metadata", c.Metadata); err != nil {
		return spec, err
	}
	if err := checkPairs("env", c.Env); err != nil {
		return spec, err
	}
	ttl, err := durationOf("ttl", c.TTLMS)
	if err != nil {
		return spec, err
	}
	idle, err := durationOf("idle timeout", c.IdleTimeoutMS)
	if err != nil {
		return spec, err
	}
	declared, err := serviceSpecs(c.Services)
	if err != nil {
		return spec, err
	}
	var rules *egress.Policy
	if c.Egress != nil {
		if c.Egress.Profile != "" {
			return spec, errs.New(errs.Invalid, "egress: the profile is what network names")
		}
		p := networkPolicy(*c.Egress)
		rules = &p
	}
	return sandbox.Spec{
		Name: c.Name, Template: c.Template, Language: c.Language, Provider: c.Provider, Require: sandbox.Isolation(c.Require),
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskMB, PidsMax: c.PidsMax,
		DiskMBps: c.DiskMBps, DiskIOPS: c.DiskIOPS,
		Env: c.Env, Workdir: c.Workdir, Root: c.Root, Network: c.Network, Egress: rules, Models: modelGrant(c.Models), Persist: c.Persist, Ephemeral: c.Ephemeral,
		TTL: ttl, IdleTimeout: idle, Metadata: c.Metadata, NoWake: c.NoWake, NoStart: c.NoStart, Services: declared,
	}, nil
}

func checkPairs(what string, pairs map[string]string) error {
	size := 0
	for k, v := range pairs {
		size += len(k) + len(v)
		if k == "" || len(k) > 256 || len(v) > pairBytesMax || strings.ContainsRune(k, 0) || strings.ContainsRune(v, 0) {
			return errs.New(errs.Invalid, "%s: a name has 1 to 256 bytes, a value at most %d, neither a NUL; %.40q does not fit", what, pairBytesMax, k)
		}
	}
	if len(pairs) > pairsMax || size > pairsBytesMax {
		return errs.New(errs.Invalid, "%s: at most %d entries and %d bytes", what, pairsMax, pairsBytesMax)
	}
	return nil
}

func durationOf(name string, ms int64) (time.Duration, error) {
	if ms < 0 || ms > durationMSMax {
		return 0, errs.New(errs.Invalid, "%s: %d ms is not in 0 to %s", name, ms, sandbox.TimeText(time.Duration(durationMSMax)*time.Millisecond))
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// sandboxView shows a sandbox to callers.
func sandboxView(i sandbox.Info) api.Sandbox {
	var deaths []api.Death
	for _, d := range i.Deaths {
		deaths = append(deaths, api.Death{Time: d.Time.UTC(), Reason: d.Reason})
	}
	return api.Sandbox{
		ID: string(i.ID), Name: i.Spec.Name, State: string(i.State), Reason: i.Reason, Waiting: i.Waiting,
		Isolation: string(i.Isolation), Provider: i.Provider, Template: i.Spec.Template, Language: i.Spec.Language,
		CPUs: i.Spec.CPUs, MemoryMB: i.Spec.MemoryMB, DiskMB: i.Spec.DiskMB, PidsMax: i.Spec.PidsMax,
		Network: i.Spec.Network, Models: modelsView(i.Spec.Models), Root: i.Spec.Root, Persist: i.Spec.Persist, Workdir: i.Spec.Workdir, Metadata: i.Spec.Metadata,
		CreatedAt: i.CreatedAt.UTC(), StartedAt: optionalTime(i.StartedAt), EndedAt: optionalTime(i.EndedAt),
		ExpiresAt: optionalTime(i.ExpiresAt), LastUsedAt: optionalTime(i.LastUsedAt),
		IdleTimeoutMS: i.Spec.IdleTimeout.Milliseconds(), BootMS: i.BootMS, Notes: i.Notes, From: string(i.From), Deaths: deaths,
		Run: i.ForRun.Run, AfterRun: string(i.ForRun.Then), AfterRunMS: i.ForRun.Wait.Milliseconds(),
	}
}

type listSandboxesIn struct {
	State     string   `query:"state" doc:"one or more states, separated by commas; default all but destroyed"`
	Metadata  []string `query:"metadata,explode" doc:"k=v, may be repeated: all must hold"`
	PageSize  int      `query:"page_size" minimum:"0" maximum:"1000" doc:"default 100"`
	PageToken string   `query:"page_token" maxLength:"512"`
}

type listSandboxesOut struct{ Body api.SandboxPage }

func (s *Server) listSandboxes(ctx context.Context, in *listSandboxesIn) (*listSandboxesOut, error) {
	f := sandbox.Filter{PageSize: in.PageSize, PageToken: in.PageToken}
	var err error
	if f.States, err = statesOf(in.State); err != nil {
		return nil, err
	}
	for _, pair := range in.Metadata {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" || len(in.Metadata) > pairsMax {
			return nil, errs.New(errs.Invalid, "metadata %.40q is not of the form name=value", pair)
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[k] = v
	}
	page, err := s.sandboxes.List(ctx, auth.From(ctx).Tenant, f)
	if err != nil {
		return nil, err
	}
	out := api.SandboxPage{Items: make([]api.Sandbox, len(page.Items)), NextPageToken: page.Next}
	for i, info := range page.Items {
		out.Items[i] = sandboxView(info)
	}
	return &listSandboxesOut{out}, nil
}

func statesOf(text string) ([]sandbox.State, error) {
	if text == "" {
		return nil, nil
	}
	known := []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Paused, sandbox.Stopped, sandbox.Failed, sandbox.Destroyed}
	var states []sandbox.State
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(known, sandbox.State(name)) || len(states) == len(known) {
			return nil, errs.New(errs.Invalid, "%.40q is not a state", name).
				WithHint("creating, running, paused, stopped, failed, destroyed")
		}
		states = append(states, sandbox.State(name))
	}
	return states, nil
}

func (s *Server) getSandbox(ctx context.Context, in *SandboxPath) (*sandboxOut, error) {
	return verbHandler(s.sandboxes.Get)(ctx, in)
}

// verbHandler serves a method of the manager that takes an id and returns the sandbox.
func verbHandler(do func(context.Context, string, sandbox.ID) (sandbox.Info, error)) func(context.Context, *SandboxPath) (*sandboxOut, error) {
	return func(ctx context.Context, in *SandboxPath) (*sandboxOut, error) {
		id, err := sandbox.ParseID(in.ID)
		if err != nil {
			return nil, err
		}
		info, err := do(ctx, auth.From(ctx).Tenant, id)
		if err != nil {
			return nil, err
		}
		return &sandboxOut{sandboxView(info)}, nil
	}
}

type updateSandboxIn struct {
	SandboxPath
	Body api.UpdateSandbox
}

func (s *Server) updateSandbox(ctx context.Context, in *updateSandboxIn) (*sandboxOut, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if err := checkPairs("metadata", in.Body.Metadata); err != nil {
		return nil, err
	}
	u := sandbox.UpdateRequest{Metadata: in.Body.Metadata, Name: in.Body.Name}
	for _, d := range []struct {
		name string
		ms   *int64
		to   **time.Duration
	}{{"ttl", in.Body.TTLMS, &u.TTL}, {"idle timeout", in.Body.IdleTimeoutMS, &u.IdleTimeout}} {
		if d.ms == nil {
			continue
		}
		v, err := durationOf(d.name, *d.ms)
		if err != nil {
			return nil, err
		}
		*d.to = &v
	}
	info, err := s.sandboxes.Update(ctx, auth.From(ctx).Tenant, id, u)
	if err != nil {
		return nil, err
	}
	return &sandboxOut{sandboxView(info)}, nil
}

type destroySandboxIn struct {
	SandboxPath
	NoRevision bool `query:"no_revision" doc:"make no last revision of its files; what is in none yet may be lost"`
}

func (s *Server) destroySandbox(ctx context.Context, in *destroySandboxIn) (*struct{}, error) {
	id, err := sandbox.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if in.NoRevision {
		return nil, s.sandboxes.Discard(ctx, auth.From(ctx).Tenant, id)
	}
	return nil, s.sandboxes.Destroy(ctx, auth.From(ctx).Tenant, id)
}

type watchSandboxesIn struct {
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

func (s *Server) watchSandboxes(w http.ResponseWriter, r *http.Request, in *watchSandboxesIn) error {
	from, err := lastEvent(in.LastEventID)
	if err != nil {
		return err
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub, err := s.sandboxes.Subscribe(ctx, auth.From(r.Context()).Tenant, from)
	if err != nil {
		return err
	}
	sse, err := stream.NewSSE(w)
	if err != nil {
		return nil
	}
	return stream.Pump(ctx, cancel, sse, sub.Next, func(e sandbox.Event) error {
		ev := api.SandboxEvent{Seq: e.Seq, Time: e.Time.UTC(), Resync: e.Resync}
		name := "resync"
		if !e.Resync {
			name, ev.Sandbox = "change", sandboxView(e.Info)
		}
		id := ""
		if e.Seq > 0 { // what it waits for has no number: it is told once
			id = strconv.FormatUint(e.Seq, 10)
		}
		return sse.Event(id, name, ev)
	})
}
