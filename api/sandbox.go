package api

import "time"

// CreateSandbox asks for a sandbox. Unknown keys are refused.
type CreateSandbox struct {
	Name          string            `json:"name,omitempty" doc:"1 to 64 bytes; no other sandbox of the tenant has it; it can stand for the id"`
	Template      string            `json:"template,omitempty" doc:"default host"`
	Language      string            `json:"language,omitempty" doc:"python, node, go or ruby: its tool must be in the template"`
	Provider      string            `json:"provider,omitempty" doc:"auto or a provider's name"`
	Require       string            `json:"require,omitempty" enum:"microvm,microvm-emulated,user-kernel,container,none" doc:"isolation that the sandbox must have at least"`
	CPUs          float64           `json:"cpus,omitempty" doc:"default 1"`
	MemoryMB      int               `json:"memory_mb,omitempty" doc:"default 512"`
	DiskMB        int               `json:"disk_mb,omitempty" doc:"default 2048"`
	PidsMax       int               `json:"pids_max,omitempty" doc:"processes and threads; default 512"`
	DiskMBps      int               `json:"disk_mbps,omitempty" doc:"megabytes a second that its disks may move, at most 100000; needs a provider that can bound it"`
	DiskIOPS      int               `json:"disk_iops,omitempty" doc:"operations a second of its disks, at most 10000000; as disk_mbps"`
	Env           map[string]string `json:"env,omitempty"`
	Workdir       string            `json:"workdir,omitempty" doc:"default /workspace"`
	Root          bool              `json:"root,omitempty" doc:"commands may run as root inside"`
	Network       string            `json:"network,omitempty" enum:"none,default,open" doc:"what leaves the sandbox: nothing, reading where packages and public repositories are, or everything to public addresses; default the server's, which is default"`
	Egress        *NetworkPolicy    `json:"egress,omitempty" doc:"rules beside the profile that network names; even without one the sandbox has a network then, whose policy can be changed"`
	Models        *ModelGrant       `json:"models,omitempty" doc:"of the host, that its programs may use; default none"`
	Persist       bool              `json:"persist,omitempty" doc:"expiry stops the sandbox and keeps its disk"`
	Ephemeral     bool              `json:"ephemeral,omitempty" doc:"expiry removes it, also where the snapshot is of one that persists"`
	TTLMS         int64             `json:"ttl_ms,omitempty" minimum:"0"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms,omitempty" minimum:"0"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	NoWake        bool              `json:"no_wake,omitempty" doc:"a call to the paused sandbox is refused instead of waking it"`
	NoStart       bool              `json:"no_start,omitempty" doc:"what the template is for is not started, nor waited for"`
	Services      []ServiceSpec     `json:"services,omitempty" maxItems:"64" doc:"processes to keep running from every boot on; skete.yaml of the workspace may declare more"`
	From          string            `json:"from,omitempty" doc:"id of a snapshot to go on from; then only name, env, metadata, ttl_ms, idle_timeout_ms, persist and ephemeral can be given"`
}

// ForkSandbox asks for sandboxes that go on from where one is.
type ForkSandbox struct {
	Count         int               `json:"count,omitempty" minimum:"0" maximum:"100" doc:"default 1"`
	DiskOnly      bool              `json:"disk_only,omitempty" doc:"copy the files alone and boot"`
	Name          string            `json:"name,omitempty" maxLength:"64" doc:"with a count above 1: NAME-1, NAME-2, …"`
	Env           map[string]string `json:"env,omitempty" doc:"the original's is not taken over"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	TTLMS         int64             `json:"ttl_ms,omitempty" minimum:"0" doc:"default the original's"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms,omitempty" minimum:"0" doc:"default the original's"`
	Persist       bool              `json:"persist,omitempty" doc:"default as the original"`
	Ephemeral     bool              `json:"ephemeral,omitempty" doc:"expiry removes them, also where the original persists"`
}

// Forked are the sandboxes that a fork has made.
type Forked struct {
	Items []Sandbox `json:"items"`
}

// CreateSnapshot asks for a snapshot of a sandbox.
type CreateSnapshot struct {
	Name     string `json:"name,omitempty" maxLength:"64" doc:"for people; need not be unique"`
	DiskOnly bool   `json:"disk_only,omitempty" doc:"its files alone, without its memory"`
}

// Snapshot is a sandbox as it was.
type Snapshot struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Sandbox   string    `json:"sandbox" doc:"that it was taken of"`
	Memory    bool      `json:"memory" doc:"with its memory; else its files alone"`
	Provider  string    `json:"provider"`
	Isolation string    `json:"isolation"`
	Template  string    `json:"template"`
	CPUs      float64   `json:"cpus"`
	MemoryMB  int       `json:"memory_mb"`
	DiskMB    int       `json:"disk_mb"`
	Bytes     int64     `json:"bytes" doc:"that it takes on the server's disk"`
	CreatedAt time.Time `json:"created_at"`
}

// SnapshotList lists snapshots, newest first.
type SnapshotList struct {
	Items []Snapshot `json:"items"`
}

// UpdateSandbox changes what may change in a live sandbox; nil = leave.
type UpdateSandbox struct {
	TTLMS         *int64            `json:"ttl_ms,omitempty" doc:"from now on; 0 = no end but the server's maximum"`
	IdleTimeoutMS *int64            `json:"idle_timeout_ms,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty" doc:"replaces all"`
	Name          *string           `json:"name,omitempty" maxLength:"64" doc:"the empty text takes it away"`
}

// Sandbox is one sandbox as it is now.
type Sandbox struct {
	ID            string            `json:"id"`
	Name          string            `json:"name,omitempty"`
	State         string            `json:"state" enum:"creating,running,paused,stopped,failed,destroyed"`
	Reason        string            `json:"reason,omitempty" doc:"why it is stopped, failed or destroyed, e.g. out of memory"`
	Waiting       string            `json:"waiting,omitempty" doc:"what it waits for before it boots, for people: its turn to boot, 37 before it"`
	Isolation     string            `json:"isolation" doc:"what really separates it from the host"`
	Provider      string            `json:"provider"`
	Template      string            `json:"template"`
	Language      string            `json:"language,omitempty"`
	CPUs          float64           `json:"cpus"`
	MemoryMB      int               `json:"memory_mb"`
	DiskMB        int               `json:"disk_mb"`
	PidsMax       int               `json:"pids_max"`
	Network       string            `json:"network"`
	Models        *ModelGrant       `json:"models,omitempty"`
	Root          bool              `json:"root"`
	Persist       bool              `json:"persist"`
	Workdir       string            `json:"workdir"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	StartedAt     *time.Time        `json:"started_at,omitempty"`
	EndedAt       *time.Time        `json:"ended_at,omitempty"`
	ExpiresAt     *time.Time        `json:"expires_at,omitempty"`
	LastUsedAt    *time.Time        `json:"last_used_at,omitempty"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms,omitempty"`
	BootMS        float64           `json:"boot_ms,omitempty" doc:"from the request to an answering guest"`
	From          string            `json:"from,omitempty" doc:"the snapshot that it was made from"`
	Notes         []string          `json:"notes,omitempty" doc:"what is weaker than usual, e.g. limits that this host cannot enforce"`
	Deaths        []Death           `json:"deaths,omitempty" doc:"ends of its machines that were not asked for, the newest last; at most 5"`
	Run           string            `json:"run,omitempty" doc:"the run that it was made for, or the newest one of its thread"`
	AfterRun      string            `json:"after_run,omitempty" enum:"stop,remove" doc:"what becomes of it when it was not used for after_run_ms, now that its run is over"`
	AfterRunMS    int64             `json:"after_run_ms,omitempty" doc:"each use counts anew"`
}

// ModelGrant is what the programs of a sandbox may use of the host's models: they find
// them by OPENAI_BASE_URL, ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL, with a key that is
// worth nothing elsewhere.
type ModelGrant struct {
	Models    []string `json:"models" minItems:"1" maxItems:"20" doc:"by name, as agents use them; a program that asks for the model default gets the first"`
	Tokens    int64    `json:"tokens,omitempty" minimum:"0" doc:"in and out, of all calls; default no bound"`
	CostUSD   float64  `json:"cost_usd,omitempty" minimum:"0" doc:"of all calls; default no bound"`
	PerMinute int      `json:"per_minute,omitempty" minimum:"0" doc:"calls; default no bound"`
}

// SetSandboxModels is a ModelGrant from now on; of no models it is none.
type SetSandboxModels struct {
	Models    []string `json:"models" maxItems:"20" doc:"by name, as agents use them; a program that asks for the model default gets the first; empty = it may use none"`
	Tokens    int64    `json:"tokens,omitempty" minimum:"0" doc:"in and out, of all calls, those before now too; default no bound"`
	CostUSD   float64  `json:"cost_usd,omitempty" minimum:"0" doc:"of all calls, those before now too; default no bound"`
	PerMinute int      `json:"per_minute,omitempty" minimum:"0" doc:"calls; default no bound"`
}

// SandboxModels is what the programs of a sandbox may use of the host's models, and what
// they have used.
type SandboxModels struct {
	Models    []string   `json:"models" doc:"empty = none"`
	Tokens    int64      `json:"tokens,omitempty"`
	CostUSD   float64    `json:"cost_usd,omitempty"`
	PerMinute int        `json:"per_minute,omitempty"`
	Used      ModelsUsed `json:"used"`
}

// ModelsUsed is what all calls have used, with what those under way may use at most.
type ModelsUsed struct {
	Calls   int64   `json:"calls"`
	Tokens  int64   `json:"tokens"`
	CostUSD float64 `json:"cost_usd"`
}

// ModelCall is a call of a program in a sandbox to a model of the host, that is over.
type ModelCall struct {
	N         uint64     `json:"n" doc:"of the sandbox's calls that were told of, from 1"`
	Time      time.Time  `json:"time" doc:"of its beginning"`
	Model     string     `json:"model"`
	Status    int        `json:"status" doc:"of the vendor's answer; 0 = there was none"`
	TokensIn  int64      `json:"tokens_in"`
	TokensOut int64      `json:"tokens_out"`
	Guessed   bool       `json:"guessed,omitempty" doc:"the vendor did not tell all of it"`
	CostUSD   float64    `json:"cost_usd"`
	FirstMS   int64      `json:"first_ms" doc:"until the answer began"`
	TookMS    int64      `json:"took_ms"`
	Used      ModelsUsed `json:"used" doc:"by all of its calls then"`
}

// Death is the end of a machine that was not asked for.
type Death struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason" doc:"killed, out of memory, exited, lost (it was gone when the server looked)"`
}

// SandboxPage is a page of sandboxes, newest first.
type SandboxPage struct {
	Items         []Sandbox `json:"items"`
	NextPageToken string    `json:"next_page_token,omitempty"`
}

// SandboxEvent tells of a change of state. The SSE id is Seq, the event name
// change or resync. Seq 0, without an SSE id: what a sandbox waits for, which is
// told once and not kept.
type SandboxEvent struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Sandbox Sandbox   `json:"sandbox"`
	Resync  bool      `json:"resync,omitempty" doc:"events before this one are gone: list the sandboxes again; sandbox is empty"`
}

// Metrics of one sandbox, as its guest sees them.
type Metrics struct {
	Time         time.Time `json:"time"`
	CPUs         float64   `json:"cpus"`
	CPUUsedUS    int64     `json:"cpu_used_us"`
	MemTotal     int64     `json:"mem_total_bytes"`
	MemUsed      int64     `json:"mem_used_bytes"`
	DiskTotal    int64     `json:"disk_total_bytes"`
	DiskUsed     int64     `json:"disk_used_bytes"`
	Processes    int       `json:"processes"`
	ProcessesMax int       `json:"processes_max"`
	UptimeMS     int64     `json:"uptime_ms"`
}

// Info describes the server.
type Info struct {
	Version   string         `json:"version"`
	Providers []ProviderInfo `json:"providers" doc:"strongest first"`
	Default   string         `json:"default_provider" doc:"what auto gives now"`
	Limits    Limits         `json:"limits"`
	Used      Used           `json:"used" doc:"what your tenant has of it"`
	Attaching *Attaching     `json:"attaching,omitempty" doc:"while the server, which has just started, attaches the sandboxes that it found; a call waits for the one that it needs"`
}

// Attaching is how far a server is with the sandboxes that it found when it started.
type Attaching struct {
	Done  int `json:"done" doc:"in order again"`
	Total int `json:"total"`
}

// ProviderInfo describes one provider on this server.
type ProviderInfo struct {
	Name      string   `json:"name"`
	Isolation string   `json:"isolation"`
	OK        bool     `json:"ok"`
	Error     string   `json:"error,omitempty"`
	Hint      string   `json:"hint,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	Can       []string `json:"can" doc:"of what not all can do: pause; snapshot and fork, with the memory; network"`
}

// Limits that a tenant lives under.
type Limits struct {
	Sandboxes   int     `json:"sandboxes"`
	CPUsMax     float64 `json:"cpus_max"`
	MemoryMBMax int     `json:"memory_mb_max"`
	DiskMBMax   int     `json:"disk_mb_max"`
	TTLMSMax    int64   `json:"ttl_ms_max"`
	// Quotas of a tenant's machines and sandboxes together; 0 = none.
	TenantCPUs     float64 `json:"tenant_cpus" doc:"of all machines that run; 0 = no limit"`
	TenantMemoryMB int     `json:"tenant_memory_mb" doc:"of all machines that run; 0 = no limit"`
	TenantDiskMB   int     `json:"tenant_disk_mb" doc:"promised to all sandboxes, and really held by them, by snapshots and histories; 0 = no limit"`
}

// Used is what a tenant has of its Limits.
type Used struct {
	Sandboxes  int     `json:"sandboxes"`
	CPUs       float64 `json:"cpus" doc:"of machines that run"`
	MemoryMB   int     `json:"memory_mb" doc:"of machines that run"`
	DiskMB     int     `json:"disk_mb" doc:"that was promised to sandboxes"`
	DiskHeldMB int     `json:"disk_held_mb" doc:"that sandboxes, snapshots and histories really hold, histories of destroyed sandboxes too"`
	LookMS     int64   `json:"look_ms" doc:"how long the server has looked at its sandboxes' files, and kept what they changed, since it started"`
}

// Template is a root file system that sandboxes start from.
type Template struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind" enum:"host,import"`
	Hash      string   `json:"hash"`
	Bytes     int64    `json:"bytes"`
	Languages []string `json:"languages"`
	Skipped   int64    `json:"skipped,omitempty" doc:"devices and odd attributes that were left out"`
	// CreatedAt is nil for the template host.
	CreatedAt *time.Time      `json:"created_at,omitempty"`
	CPUs      float64         `json:"cpus,omitempty" doc:"of its sandboxes, unless they are asked for with others"`
	MemoryMB  int             `json:"memory_mb,omitempty" doc:"as cpus"`
	Source    *TemplateSource `json:"source,omitempty" doc:"the image that it was made of"`
}

// TemplateList lists all templates.
type TemplateList struct {
	Items []Template `json:"items"`
}

// CreateKey asks for an API key.
type CreateKey struct {
	Name   string   `json:"name" minLength:"1" maxLength:"64"`
	Tenant string   `json:"tenant,omitempty" doc:"default: the caller's; another one needs scope admin"`
	Scopes []string `json:"scopes,omitempty" doc:"read, write, admin, runs:read, runs:write; default read and write"`
}

// Key is what is known of an API key; never the key.
type Key struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Tenant    string     `json:"tenant"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// CreatedKey carries the secret, this once.
type CreatedKey struct {
	Key
	Secret string `json:"secret" doc:"e2b_ and hex; shown once, kept hashed"`
}

// KeyList lists the keys of a tenant.
type KeyList struct {
	Items []Key `json:"items"`
}

// Problem is an error (RFC 9457), as application/problem+json.
type Problem struct {
	Type   string       `json:"type,omitempty"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Class  string       `json:"class" doc:"who must act: invalid, not_found, exists, denied, conflict, unsupported, limit, unavailable, corrupt, internal"`
	Code   string       `json:"code,omitempty" doc:"which refusal it is, where the class does not say it: nothing_to_do, there is nothing to undo or to redo; machine_unreachable, the machine is elsewhere and its service does not answer; of a path: file_not_found, permission_denied, file_exists, directory_not_empty, is_directory, not_a_directory, not_a_file, invalid_path, file_changed, file_too_large, no_space"`
	Hint   string       `json:"hint,omitempty"`
	Errors []FieldError `json:"errors,omitempty"`
	// ExitCode is what a shell says of the command that was not started.
	ExitCode int `json:"exit_code,omitempty" doc:"of a command that was not started: 127, its program is not there; 126, it cannot be run"`
}

// FieldError names a field of the request that is wrong.
type FieldError struct {
	Location string `json:"location,omitempty" doc:"where it is; in a definition of a workflow LINE:COLUMN and its key, such as 7:5 nodes[2].agent"`
	Message  string `json:"message"`
	Value    any    `json:"value,omitempty"`
}
