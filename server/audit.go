package server

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// Audit is what the server needs of *audit.Log.
type Audit interface {
	Append(r audit.Record) error
	Fold(kind string, r audit.Record) bool
	List(ctx context.Context, q audit.Query) ([]audit.Record, error)
	Verify(ctx context.Context) (audit.Report, error)
	Export(ctx context.Context, w io.Writer) error
}

func (s *Server) registerAudit(t *route.Table) {
	const tag = "audit"
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/audit", Scope: key.Admin, ID: "list-audit", Tag: tag,
		Summary: "List who did what, the newest first, of all tenants",
	}, s.listAudit)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/audit/verify", Scope: key.Admin, ID: "verify-audit", Tag: tag,
		Summary: "Look whether the audit log is what was written",
	}, s.verifyAudit)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/audit/export", Scope: key.Admin, ID: "export-audit", Tag: tag,
		Summary: "Get the audit log as it is in its files",
		Sends:   route.Bytes("text/plain", "A line for each record: its hash and its JSON"),
	}, s.exportAudit)
}

// audited tells the audit log of a call.
func (s *Server) audited(c route.Call) {
	r := audit.Record{
		Tenant: c.Identity.Tenant, Who: cmp.Or(c.Identity.Who(), "nobody known"), What: "api." + cmp.Or(c.Operation, "page"), On: c.On, Result: strconv.Itoa(c.Status),
		Detail: map[string]string{"call": c.Method + " " + c.Path, "from": cmp.Or(c.From, "unix"), "key": c.Identity.Owner, "request": c.Request, "asked": c.What},
	}
	if c.Refused {
		r.What = "api.refused"
	}
	if c.Status >= http.StatusBadRequest { // a program can do that thousands of times a second
		address, _, _ := net.SplitHostPort(c.From) // each connection has another port
		if s.audit.Fold(strings.Join([]string{r.Who, address, r.Result}, " "), r) {
			return
		}
	}
	_ = s.audit.Append(r) // it tells of what it misses
}

func (s *Server) auditLog() (Audit, error) {
	if s.audit == nil {
		return nil, errs.New(errs.Unsupported, "this server keeps no audit log")
	}
	return s.audit, nil
}

type listAuditIn struct {
	Tenant   string    `query:"tenant" maxLength:"64" doc:"of this one alone"`
	Who      string    `query:"who" maxLength:"256" doc:"by this one alone: the name of a key, run run_…"`
	What     string    `query:"what" maxLength:"256" doc:"of this kind: tool.started, or tool for all that begin so"`
	On       string    `query:"on" maxLength:"256" doc:"of this sandbox, run or other thing"`
	Since    time.Time `query:"since" doc:"from this time on"`
	Until    time.Time `query:"until" doc:"before this time"`
	Before   uint64    `query:"before" doc:"older than the record with this number"`
	PageSize int       `query:"page_size" minimum:"1" maximum:"1000" doc:"default 100"`
}

type listAuditOut struct{ Body api.AuditList }

func (s *Server) listAudit(ctx context.Context, in *listAuditIn) (*listAuditOut, error) {
	log, err := s.auditLog()
	if err != nil {
		return nil, err
	}
	found, err := log.List(ctx, audit.Query{Tenant: in.Tenant, Who: in.Who, What: in.What, On: in.On, Since: in.Since, Until: in.Until, Before: in.Before, Max: in.PageSize})
	if err != nil {
		return nil, err
	}
	out := &listAuditOut{api.AuditList{Items: []api.AuditRecord{}}}
	for _, r := range found {
		out.Body.Items = append(out.Body.Items, api.AuditRecord{
			N: r.N, Time: r.Time, Node: r.Node, Tenant: r.Tenant, Who: r.Who, What: r.What, On: r.On, Result: r.Result, Detail: r.Detail,
		})
	}
	return out, nil
}

type verifyAuditOut struct{ Body api.AuditReport }

func (s *Server) verifyAudit(ctx context.Context, _ *struct{}) (*verifyAuditOut, error) {
	log, err := s.auditLog()
	if err != nil {
		return nil, err
	}
	r, err := log.Verify(ctx)
	if err != nil {
		return nil, err
	}
	out := &verifyAuditOut{api.AuditReport{Records: r.Records, First: r.First, Last: r.Last, Hash: r.Hash, Removed: r.Removed, Bad: []api.AuditBad{}}}
	for _, b := range r.Bad {
		out.Body.Bad = append(out.Body.Bad, api.AuditBad{N: b.N, File: b.File, Line: b.Line, Why: b.Why})
	}
	return out, nil
}

func (s *Server) exportAudit(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	log, err := s.auditLog()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return log.Export(r.Context(), w)
}
