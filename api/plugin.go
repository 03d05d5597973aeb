package api

import "time"

// PluginList are the plug-ins of a server's folder.
type PluginList struct {
	Items []Plugin `json:"items"`
}

// Plugin is a program of others that is a model or a hook, and how it is.
type Plugin struct {
	Name        string `json:"name" doc:"of its folder"`
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	Hash        string `json:"hash,omitempty" doc:"of its files"`
	// State is that of the process that works worst.
	State     string          `json:"state" enum:"unusable,broken,starting,running,idle" doc:"unusable: see problems; idle: no process, the next call starts one"`
	Problems  []string        `json:"problems" doc:"why it cannot be used"`
	Hooks     []PluginHook    `json:"hooks"`
	Models    []string        `json:"models" doc:"by which models are asked for"`
	Secrets   []PluginSecret  `json:"secrets" doc:"what it has sent where, of what is granted to it"`
	Processes []PluginProcess `json:"processes" doc:"one for each tenant that it works for"`
}

// PluginHook is an event that a plug-in is asked about.
type PluginHook struct {
	Event     string   `json:"event"`
	Tools     []string `json:"tools" doc:"names or globs; empty: all"`
	OnFailure string   `json:"on_failure" enum:"deny,ask,skip" doc:"what happens when it cannot be asked"`
}

// PluginSecret is a secret of the operator that a plug-in wants to be sent.
type PluginSecret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
}

// PluginProcess is the process of a plug-in for a tenant.
type PluginProcess struct {
	Tenant   string `json:"tenant"`
	State    string `json:"state" enum:"broken,starting,running,idle"`
	Sandbox  string `json:"sandbox,omitempty" doc:"of the operator's tenant"`
	Calls    int    `json:"calls" doc:"under way"`
	Starts   int    `json:"starts" doc:"since the server began"`
	Failures int    `json:"failures" doc:"since a call was answered"`
	Error    string `json:"error,omitempty" doc:"of the last failure"`
	// Times that are not known are left out.
	StartedAt time.Time `json:"started_at,omitzero"`
	UsedAt    time.Time `json:"used_at,omitzero"`
	RetryAt   time.Time `json:"retry_at,omitzero" doc:"before which it is not started again"`
}
