package api

// Checked is what a check of the store looked at and what it found.
type Checked struct {
	Tenants int `json:"tenants"`
	Threads int `json:"threads"`
	Events  int `json:"events"`
	Blobs   int `json:"blobs" doc:"that events name"`
	// Histories of sandboxes, and their revisions.
	Histories int            `json:"histories"`
	Revisions int            `json:"revisions" doc:"of histories"`
	Problems  []StoreProblem `json:"problems"`
	// Truncated: there may be more problems than are told.
	Truncated bool `json:"truncated,omitempty" doc:"there may be more problems than these"`
}

// StoreProblem is something that is wrong with what is kept.
type StoreProblem struct {
	Tenant   string `json:"tenant"`
	Thread   string `json:"thread,omitempty"`
	Sandbox  string `json:"sandbox,omitempty" doc:"whose history is damaged"`
	Event    uint64 `json:"event,omitempty" doc:"the last that was well, or the one that names the blob"`
	Sequence uint64 `json:"sequence,omitempty" doc:"of the record in the stream"`
	Blob     string `json:"blob,omitempty"`
	Text     string `json:"text"`
}

// Erased is what was removed with a tenant.
type Erased struct {
	Tenant  string `json:"tenant"`
	Threads int    `json:"threads" doc:"conversations, not counting those of sub-agents"`
	// Sandboxes that its agents had made are not counted again.
	Sandboxes int `json:"sandboxes" doc:"that were there, with their workspaces"`
	Snapshots int `json:"snapshots"`
	Histories int `json:"histories" doc:"of workspaces, of sandboxes that were gone too"`
}
