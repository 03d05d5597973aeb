package api

import "time"

// CreateShare makes an address at which a run can be read without a key.
type CreateShare struct {
	TTLMS int64 `json:"ttl_ms,omitempty" minimum:"0" doc:"how long it can be read there; default 7 days, at most 90"`
}

// Share is such an address. Its last part is a secret, which is shown once.
type Share struct {
	ID        string    `json:"id" doc:"shr_…"`
	Run       string    `json:"run"`
	By        string    `json:"by" doc:"the id of the key that made it"`
	ByName    string    `json:"by_name,omitempty" doc:"what the key was called then"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Path on the server; in the answer to its making alone.
	Path string `json:"path,omitempty"`
}

// ShareList lists the shares of a run that can be read, the newest first.
type ShareList struct {
	Items []Share `json:"items"`
}
