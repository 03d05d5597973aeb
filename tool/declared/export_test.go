package declared

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/tool"
)

// Take counts a call as a server does that has just begun, and says how large the record is.
func Take(store kv.Store, limit Rate, key string, now time.Time) (wait time.Duration, size int, err error) {
	r := rates{kv: store}
	if wait, err = r.take(context.Background(), "t", "x", limit, tool.Request{Key: key}, now); err != nil {
		return 0, 0, err
	}
	value, _, err := store.Get(context.Background(), RatesPrefix+"t/x")
	return wait, len(value), err
}

// Fill makes the request of a call.
func Fill(m Manifest, args json.RawMessage) (*http.Request, error) {
	list, err := arguments(args)
	if err != nil {
		return nil, err
	}
	return m.HTTP.fill(list)
}
