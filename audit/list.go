package audit

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// PageMax is how many records a page has at most.
const PageMax = 1000

// Query chooses records. What is empty chooses all.
type Query struct {
	Tenant, Who, On string
	What            string // or a beginning that ends at a dot: tool, tool.started
	Since, Until    time.Time
	Before          uint64 // number of the last page's last record
	Max             int    // 0 = 100
}

func (q Query) fits(r Record) bool {
	what := q.What == "" || r.What == q.What || strings.HasPrefix(r.What, q.What+".")
	return what && (q.Tenant == "" || r.Tenant == q.Tenant) && (q.Who == "" || r.Who == q.Who) && (q.On == "" || r.On == q.On) &&
		(q.Since.IsZero() || !r.Time.Before(q.Since)) && (q.Until.IsZero() || r.Time.Before(q.Until)) && (q.Before == 0 || r.N < q.Before)
}

// List returns records, the newest first. Whether they are what was written, Verify says.
// Invalid: the query.
func (l *Log) List(ctx context.Context, q Query) ([]Record, error) {
	switch {
	case q.Max < 0 || q.Max > PageMax:
		return nil, errs.New(errs.Invalid, "%d records are not 1 to %d", q.Max, PageMax)
	case q.Max == 0:
		q.Max = 100
	}
	list, _, done, err := l.tail()
	if err != nil {
		return nil, err
	}
	defer done()
	var found []Record
	for _, f := range slices.Backward(list) {
		if q.Before > 0 && f.first >= q.Before {
			continue
		}
		older, err := f.list(ctx, q, q.Max-len(found))
		if err != nil {
			return nil, err
		}
		if found = append(found, older...); len(found) >= q.Max {
			break
		}
	}
	return found, nil
}

// list returns the last n records of a file that fit, the newest first.
func (f file) list(ctx context.Context, q Query, n int) ([]Record, error) {
	var fit []Record
	err := f.read(func(r io.Reader) error {
		return lines(r, func(line []byte, _ bool) error {
			_, text, _ := strings.Cut(string(line), " ")
			rec, ok := parseRecord([]byte(text))
			if ok && q.fits(rec) {
				if fit = append(fit, rec); len(fit) >= 2*n {
					fit = append(fit[:0], fit[len(fit)-n:]...)
				}
			}
			return ctx.Err()
		})
	})
	fit = fit[max(len(fit)-n, 0):]
	slices.Reverse(fit)
	return fit, err
}
