package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/skete-dev/skete/api"
)

// postSandbox creates over plain HTTP with an Idempotency-Key of our choice.
func postSandbox(w *world, spec api.CreateSandbox, key string) (string, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(w.ctx(), http.MethodPost, "http://skete/v1/sandboxes", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	hc := w.raw()
	defer hc.CloseIdleConnections()
	res, err := hc.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if res.StatusCode/100 != 2 {
		return "", fmt.Errorf("status %d: %s", res.StatusCode, text)
	}
	var sb api.Sandbox
	if err := json.Unmarshal(text, &sb); err != nil {
		return "", err
	}
	w.ids[sb.ID] = true
	return sb.ID, nil
}
