package api

import "time"

// ServiceSpec declares a service: a process that the sandbox keeps running.
type ServiceSpec struct {
	Name    string            `json:"name" maxLength:"40" doc:"a-z 0-9 -, from a letter to a letter or digit"`
	Argv    []string          `json:"argv,omitempty" doc:"either argv"`
	Command string            `json:"command,omitempty" doc:"or a line for bash -c (sh where there is no bash)"`
	Env     map[string]string `json:"env,omitempty"`
	Workdir string            `json:"workdir,omitempty" doc:"absolute, or beneath the sandbox's"`
	User    string            `json:"user,omitempty" doc:"root needs a sandbox that grants it"`
	Ports   []int             `json:"ports,omitempty" doc:"that it serves; for people and previews"`
	// At most one of the next but ReadyPath; none: it is ready once it runs.
	ReadyHTTP      int               `json:"ready_http,omitempty" minimum:"0" maximum:"65535" doc:"ready when this port answers 200..399"`
	ReadyPath      string            `json:"ready_path,omitempty" doc:"of ready_http; default /"`
	ReadyTCP       int               `json:"ready_tcp,omitempty" minimum:"0" maximum:"65535" doc:"ready when this port accepts a connection"`
	ReadyLog       string            `json:"ready_log,omitempty" doc:"ready when a line of its log matches this regular expression (RE2)"`
	ReadyTimeoutMS int64             `json:"ready_timeout_ms,omitempty" minimum:"0" maximum:"3600000" doc:"then it is unready; default 60000"`
	Restart        string            `json:"restart,omitempty" enum:"always,on-failure,never" doc:"default always"`
	Limits         map[string]uint64 `json:"limits,omitempty" doc:"of all its processes together: memory (bytes; more ends it), pids, cpu_weight (100 is everybody's); of each one: nofile, fsize, core, cpu, as, data, stack, nproc, memlock. What a machine does not keep is its reason while it is ready"`
	LogBytesMax    int64             `json:"log_bytes_max,omitempty" minimum:"0" doc:"kept of each run; default 4 MiB"`
	StopTimeoutMS  int64             `json:"stop_timeout_ms,omitempty" minimum:"0" maximum:"60000" doc:"between TERM and KILL; default 5000"`
}

// Service is a service as it is now.
type Service struct {
	ServiceSpec
	Source     string     `json:"source" enum:"call,file,spec" doc:"who declared it: a call, skete.yaml of the workspace, the sandbox's spec"`
	State      string     `json:"state" enum:"stopped,starting,ready,unready,backoff,crash-loop,failed"`
	Reason     string     `json:"reason,omitempty" doc:"of the state, for people"`
	PID        int        `json:"pid,omitempty"`
	ProcessKey string     `json:"process_key,omitempty" doc:"of its present or last run"`
	Restarts   uint64     `json:"restarts"`
	Since      time.Time  `json:"since" doc:"it is in this state"`
	LastExit   *Exit      `json:"last_exit,omitempty"`
	LastExitAt *time.Time `json:"last_exit_at,omitempty"`
	LogStart   int64      `json:"log_start" doc:"the oldest offset that may still be there"`
	LogSize    int64      `json:"log_size"`
	Wanted     bool       `json:"wanted" doc:"it shall run"`
	KnownAs    string     `json:"known_as,omitempty" doc:"the dev server that it is: vite"`
}

// ServiceList is all services of a sandbox by name.
type ServiceList struct {
	Items []Service `json:"items"`
}

// ServicesLoaded is what reading skete.yaml of the workspace changed.
type ServicesLoaded struct {
	Found    bool     `json:"found" doc:"there is such a file"`
	Declared []string `json:"declared" doc:"that it names"`
	Removed  []string `json:"removed" doc:"that it does not name any more"`
	// Services is set when the call waited.
	Services []Service `json:"services,omitempty" doc:"those that it names, when the call waited for them"`
}

// ServiceLogEvent is a piece of a service's log. Both streams are one; all runs
// are after one another.
type ServiceLogEvent struct {
	Offset int64  `json:"offset" doc:"of the first byte of data, or of the gap"`
	Data   []byte `json:"data,omitempty" doc:"base64"`
	GapTo  int64  `json:"gap_to,omitempty" doc:"set: the bytes from offset to here were dropped"`
}
