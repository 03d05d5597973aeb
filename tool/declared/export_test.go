package declared

import (
	"encoding/json"
	"net/http"
)

// Fill makes the request of a call.
func Fill(m Manifest, args json.RawMessage) (*http.Request, error) {
	list, err := arguments(args)
	if err != nil {
		return nil, err
	}
	return m.HTTP.fill(list)
}
