package audit

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/skete-dev/skete/errs"
)

func (l *Log) headKey() string { return "head/" + cmp.Or(l.c.Node, "-") }

// readHead returns what the store knows; zero: nothing.
func (l *Log) readHead(ctx context.Context) (h Head, err error) {
	if l.c.KV == nil {
		return h, nil
	}
	data, revision, err := l.c.KV.Get(ctx, l.headKey())
	if errs.Is(err, errs.NotFound) {
		return h, nil
	}
	if err == nil {
		l.head = revision
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		return h, errs.Wrap(errs.Unavailable, err, "the newest hash of the audit log cannot be read")
	}
	return h, nil
}

// writeHead tells the store. Precondition: l.syncing is held.
func (l *Log) writeHead(h Head) error {
	if l.c.KV == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), headWait)
	defer cancel()
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var revision uint64
	if l.head == 0 {
		revision, err = l.c.KV.Create(ctx, l.headKey(), data)
	} else {
		revision, err = l.c.KV.Update(ctx, l.headKey(), data, l.head)
	}
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the newest hash of the audit log cannot be written")
	}
	l.head = revision
	return nil
}
