package api

import "time"

// Secret is a value that sandboxes use and never see; it is not shown to callers either.
type Secret struct {
	Name      string        `json:"name"`
	Version   int           `json:"version" doc:"the one that is sent"`
	Versions  []int         `json:"versions" doc:"those that are kept, the oldest first"`
	Grants    []SecretGrant `json:"grants"`
	CreatedAt time.Time     `json:"created_at"`
	UpdatedAt time.Time     `json:"updated_at"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty" doc:"then it is sent no more; without it it lives for ever"`
	Problem   string        `json:"problem,omitempty" doc:"why it is not sent"`
}

// SecretGrant says where a secret is sent to, and how. It is sent over TLS alone, and
// where the policy of the sandbox allows the request. At a token endpoint (oauth) it is sent by
// POST; the tokens of the answer stay on the host, and are sent, in place of the secret, to
// the hosts of its other grants.
type SecretGrant struct {
	Host      string   `json:"host" minLength:"1" maxLength:"255" doc:"a name, or *.name for all beneath it"`
	Ports     []int    `json:"ports,omitempty" maxItems:"100" doc:"default 443"`
	Methods   []string `json:"methods,omitempty" maxItems:"100" doc:"default all"`
	Paths     []string `json:"paths,omitempty" maxItems:"100" doc:"* is a part of a path, ** any number of parts; default all"`
	As        string   `json:"as" enum:"bearer,basic,header,query,aws" doc:"how it is sent"`
	Key       string   `json:"key,omitempty" maxLength:"128" doc:"the header, the parameter, or the user of basic"`
	OAuth     bool     `json:"oauth,omitempty" doc:"host and the one path are a token endpoint of OAuth: sandboxes get placeholders of its tokens"`
	Env       string   `json:"env,omitempty" maxLength:"128" doc:"a variable of new machines that holds a word which stands for it"`
	Agents    []string `json:"agents,omitempty" maxItems:"100" doc:"in whose sandboxes it may be used, by name; without agents and sandboxes in all of the tenant"`
	Sandboxes []string `json:"sandboxes,omitempty" maxItems:"100" doc:"in which it may be used too, by name or id"`
}

// PutSecret sets a secret: a new one, or a new version.
type PutSecret struct {
	Value  string         `json:"value" minLength:"1" maxLength:"65536"`
	Grants *[]SecretGrant `json:"grants,omitempty" maxItems:"32" doc:"in place of those that it has; default they stay"`
	TTLMS  int64          `json:"ttl_ms,omitempty" minimum:"-1" doc:"how long it lives from now on; default a week, -1 = for ever"`
}

// ChangeSecret changes what is said of a secret; what is left out stays.
type ChangeSecret struct {
	Grants  *[]SecretGrant `json:"grants,omitempty" maxItems:"32"`
	Version int            `json:"version,omitempty" minimum:"0" doc:"send this one, which is kept"`
}

// SecretList is the secrets of a tenant, by name.
type SecretList struct {
	Items []Secret `json:"items"`
}
