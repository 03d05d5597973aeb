package stream

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/problem"
)

// Accept turns a request into a WebSocket. Package auth has looked at its origin.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	if err := checkUpgrade(r); err != nil {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return nil, problem.At(http.StatusUpgradeRequired, err)
	}
	return websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
}

// checkUpgrade refuses, as a problem, what websocket.Accept would refuse as text.
func checkUpgrade(r *http.Request) error {
	ok := r.ProtoAtLeast(1, 1) && r.Header.Get("Sec-Websocket-Version") == "13" &&
		headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
	if challenge, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key")); !ok || err != nil || len(challenge) != 16 {
		return errs.New(errs.Invalid, "this route speaks WebSocket (RFC 6455, version 13)")
	}
	return nil
}

func headerHas(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
