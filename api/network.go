package api

import "time"

// NetworkPolicy says what may leave a sandbox: what no rule allows is refused, and a
// rule that denies wins.
type NetworkPolicy struct {
	Profile string        `json:"profile,omitempty" enum:"none,default,open" doc:"to begin with: nothing, reading where packages and public repositories are, or everything to public addresses; default none"`
	Allow   []NetworkRule `json:"allow,omitempty" maxItems:"500"`
	Deny    []NetworkRule `json:"deny,omitempty" maxItems:"500"`
	Usual   []NetworkRule `json:"usual,omitempty" readOnly:"true" doc:"what the profile default allows now; it is not read"`
}

// NetworkRule is about a host.
type NetworkRule struct {
	Host    string   `json:"host" minLength:"1" maxLength:"255" doc:"a name, *.name for all beneath it, * for all names, or an address"`
	Ports   []int    `json:"ports,omitempty" maxItems:"100" doc:"default 80 and 443 where it allows, all where it denies"`
	Access  string   `json:"access,omitempty" enum:"read" doc:"read: GET, HEAD, OPTIONS, and what git fetches with"`
	Methods []string `json:"methods,omitempty" maxItems:"100" doc:"default all"`
	Paths   []string `json:"paths,omitempty" maxItems:"100" doc:"* is a part of a path, ** any number of parts; default all"`
	Pinned  bool     `json:"pinned,omitempty" doc:"connections are passed on as they are, whatever they carry"`
}

// NetworkDecision is a decision about what a sandbox sent.
type NetworkDecision struct {
	N       uint64    `json:"n" doc:"its number, from 1"`
	Time    time.Time `json:"time" doc:"of the last one"`
	Times   int       `json:"times" doc:"how often it was made in a row"`
	Host    string    `json:"host"`
	Port    int       `json:"port"`
	Method  string    `json:"method,omitempty" doc:"without one it is about a connection"`
	Path    string    `json:"path,omitempty"`
	Allowed bool      `json:"allowed"`
	Rule    string    `json:"rule,omitempty" doc:"that decided"`
	Why     string    `json:"why,omitempty" doc:"it was refused"`
	Secrets string    `json:"secrets,omitempty" doc:"the names of those that were sent with it, separated by commas"`
}

// NetworkLog is the last decisions of a sandbox, the oldest first.
type NetworkLog struct {
	Items []NetworkDecision `json:"items"`
}
