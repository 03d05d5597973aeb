package api

import "time"

// Login says who is asking.
type Login struct {
	Tenant string `json:"tenant"`
	// User is the name by which sandboxed apps know the caller.
	User   string   `json:"user"`
	Name   string   `json:"name,omitempty" doc:"of the caller, for people"`
	Scopes []string `json:"scopes"`
	By     string   `json:"by" enum:"key,login,socket" doc:"how the server knows"`
}

// LoginCode leads a browser to its login as the caller.
type LoginCode struct {
	Path      string    `json:"path" doc:"on the server: good once; add &next= and a path to arrive elsewhere than at /"`
	ExpiresAt time.Time `json:"expires_at"`
}

// CreatePreview asks to see a port of a sandbox.
type CreatePreview struct {
	Port int    `json:"port" minimum:"1" maximum:"65535" doc:"8001 is the sandbox's own history and undo"`
	Path string `json:"path,omitempty" maxLength:"2048" doc:"where to arrive; empty = /"`
	// Public makes a link for anybody, good until it expires or is revoked.
	Public bool   `json:"public,omitempty"`
	Name   string `json:"name,omitempty" maxLength:"64" doc:"of a public link, for people"`
	TTLMS  int64  `json:"ttl_ms,omitempty" minimum:"0" doc:"of a public link; 0 = 7 days"`
}

// Preview is a way to see a port of a sandbox.
type Preview struct {
	// ID is of a public link; "" = a way in for the caller alone.
	ID      string `json:"id,omitempty"`
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
	// URL is to be opened in a browser. One that is not public works once.
	URL string `json:"url"`
	// Address is the preview's own, for who was let in already.
	Address   string    `json:"address"`
	Public    bool      `json:"public"`
	Name      string    `json:"name,omitempty"`
	CreatedBy string    `json:"created_by,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at"`
	// Listens is whether something listened at the port when the way in was made;
	// absent = it was not looked at. The page waits until something does.
	Listens *bool `json:"listens,omitempty"`
}

// PreviewList lists the public links of a sandbox, oldest first.
type PreviewList struct {
	Items []Preview `json:"items"`
}

// PreviewKey checks who asks: previewed apps get `X-User-Id` and
// `X-Sig: v1.<until>.<signature>`, an Ed25519 signature over
// "skete user v1\n<label>\n<user>\n<until>".
type PreviewKey struct {
	PublicKey string `json:"public_key" doc:"Ed25519, base64"`
}
