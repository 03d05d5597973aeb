package share

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/thread"
)

// Config of the routes.
type Config struct {
	Shares *Store
	Runs   Runs
}

// Runs are the runs of all tenants; NotFound: the tenant has none of this id.
type Runs interface {
	Run(ctx context.Context, tenant string, id thread.RunID) (api.Run, error)
	// Story is the last steps of what it did, before a step or, 0, up to now.
	Story(ctx context.Context, tenant string, id thread.RunID, last, before int) (api.Run, api.Transcript, error)
}

// viewsMax bounds how many pages are made at a time: each reads the log of a run, and who asks has no key.
const viewsMax = 4

type service struct {
	Config
	slots chan struct{}
}

// Register adds the routes to the table.
func Register(t *route.Table, c Config) {
	s := &service{c, make(chan struct{}, viewsMax)}
	const tag, path = "runs", "/v1/runs/{id}/shares"
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: path, Scope: key.RunsWrite, ID: "share-run", Tag: tag, Status: http.StatusCreated,
		Summary: "Make an address at which this run can be read without a key",
	}, s.create)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: path, Scope: key.RunsRead, ID: "list-run-shares", Tag: tag, Summary: "List the addresses at which a run can be read, without their secrets",
	}, s.list)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: path + "/{share}", Scope: key.RunsWrite, ID: "end-run-share", Tag: tag, Summary: "Take such an address back",
	}, s.end)
	t.Plain("/share/{secret}", route.Public, map[string]bool{"before": false}, s.show)
}

// of returns the caller's tenant and a run of it.
func (s *service) of(ctx context.Context, id string) (auth.Identity, thread.RunID, error) {
	who := auth.From(ctx)
	run, err := thread.ParseRunID(id)
	if err == nil {
		_, err = s.Runs.Run(ctx, who.Tenant, run)
	}
	return who, run, err
}

type createIn struct {
	ID   string `path:"id" maxLength:"64" doc:"of the run, run_…"`
	Body api.CreateShare
}

type shareOut struct{ Body api.Share }

func view(r Record) api.Share {
	return api.Share{ID: r.ID, Run: string(r.Run), By: r.By, ByName: r.ByName, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
}

func (s *service) create(ctx context.Context, in *createIn) (*shareOut, error) {
	who, run, err := s.of(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body.TTLMS > lastsMax.Milliseconds() {
		in.Body.TTLMS = lastsMax.Milliseconds() + 1 // a Duration has an end
	}
	secret, rec, err := s.Shares.Create(ctx, Record{Tenant: who.Tenant, Run: run, By: who.Owner, ByName: who.Name}, time.Duration(in.Body.TTLMS)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	out := view(rec)
	out.Path = "/share/" + secret
	return &shareOut{out}, nil
}

type listIn struct {
	ID string `path:"id" maxLength:"64" doc:"of the run, run_…"`
}

type listOut struct{ Body api.ShareList }

func (s *service) list(ctx context.Context, in *listIn) (*listOut, error) {
	who, run, err := s.of(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	records, err := s.Shares.List(ctx, who.Tenant, run)
	if err != nil {
		return nil, err
	}
	out := &listOut{api.ShareList{Items: []api.Share{}}}
	for _, r := range records {
		out.Body.Items = append(out.Body.Items, view(r))
	}
	return out, nil
}

type endIn struct {
	ID    string `path:"id" maxLength:"64" doc:"of the run, run_…"`
	Share string `path:"share" maxLength:"64" doc:"of the share, shr_…"`
}

func (s *service) end(ctx context.Context, in *endIn) (*struct{}, error) {
	run, err := thread.ParseRunID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.Shares.End(ctx, auth.From(ctx).Tenant, run, in.Share)
}

// stepsShown is how many steps one page has.
const stepsShown = 200

func (s *service) show(w http.ResponseWriter, r *http.Request) {
	p, err := s.page(r)
	if err != nil {
		e := problem.Of(err)
		if e.Status >= http.StatusInternalServerError {
			route.Note(r, err)
			err = errs.New(errs.Unavailable, "this cannot be shown now")
		}
		write(w, e.Status, page{Problem: errs.Public(err)})
		return
	}
	write(w, http.StatusOK, p)
}

func (s *service) page(r *http.Request) (page, error) {
	before := 0
	if b := r.URL.Query().Get("before"); b != "" {
		n, err := strconv.ParseUint(b, 10, 31)
		if err != nil {
			return page{}, errs.New(errs.Invalid, "before is the number of a step")
		}
		before = int(n)
	}
	rec, err := s.Shares.Find(r.Context(), r.PathValue("secret"))
	if err != nil {
		return page{}, err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-r.Context().Done():
		return page{}, r.Context().Err()
	}
	run, story, err := s.Runs.Story(r.Context(), rec.Tenant, rec.Run, stepsShown, before)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "the run that was shared here was removed")
	}
	return page{Run: run, Story: story, Before: before, Expires: rec.ExpiresAt, Now: s.Shares.now().UTC()}, err
}
