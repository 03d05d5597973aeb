package client

import (
	"context"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// AuditQuery chooses records of the audit log. What is empty chooses all.
type AuditQuery struct {
	Tenant, Who, What, On string
	Since, Until          time.Time
	Before                uint64 // number of the last page's last record
	PageSize              int    // 0 = 100
}

// Audit returns records of the audit log, the newest first.
func (c *Client) Audit(ctx context.Context, q AuditQuery) ([]api.AuditRecord, error) {
	v := url.Values{}
	for k, s := range map[string]string{"tenant": q.Tenant, "who": q.Who, "what": q.What, "on": q.On} {
		if s != "" {
			v.Set(k, s)
		}
	}
	for k, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(k, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Before > 0 {
		v.Set("before", strconv.FormatUint(q.Before, 10))
	}
	if q.PageSize > 0 {
		v.Set("page_size", strconv.Itoa(q.PageSize))
	}
	l, err := transport.Fetch[api.AuditList](ctx, c.t, transport.Get("/v1/audit", v))
	return l.Items, err
}

// VerifyAudit looks whether the audit log is what was written.
func (c *Client) VerifyAudit(ctx context.Context) (api.AuditReport, error) {
	return transport.Fetch[api.AuditReport](ctx, c.t, transport.Get("/v1/audit/verify", nil))
}

// ExportAudit writes the audit log as it is in its files to w.
func (c *Client) ExportAudit(ctx context.Context, w io.Writer) error {
	k := transport.Get("/v1/audit/export", nil)
	k.Repeatable = false
	res, err := c.t.Do(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return transport.Broken(ctx, err)
	}
	return nil
}
