package api

import "time"

// StartProcess asks for a command. Exactly one of Argv, Command and Code is set.
type StartProcess struct {
	Key       string            `json:"key,omitempty" doc:"the same key never runs twice; 1..128 of A-Za-z0-9._:-"`
	Argv      []string          `json:"argv,omitempty"`
	Command   string            `json:"command,omitempty" doc:"a line for bash -c (sh where there is no bash)"`
	Code      string            `json:"code,omitempty" doc:"a program in the sandbox's language, or in language"`
	Language  string            `json:"language,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty" doc:"root needs a sandbox that grants it"`
	Terminal  *TerminalSize     `json:"terminal,omitempty" doc:"set: runs in a terminal"`
	Stdin     bool              `json:"stdin,omitempty" doc:"keep stdin open"`
	Rlimits   []Rlimit          `json:"rlimits,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0"`
	SpoolMax  int64             `json:"spool_bytes_max,omitempty" doc:"kept of each stream; default 17 MiB"`
	// Wait makes the command wait for its reader (as a pipe does) instead of
	// dropping the middle of a long output.
	Wait       bool `json:"wait,omitempty"`
	Background bool `json:"background,omitempty"`
}

// RunCommand asks for a command and all that comes of it, in one call. Exactly
// one of Argv, Command and Code is set.
type RunCommand struct {
	Key         string            `json:"key,omitempty" doc:"the same key never runs twice; a repeated call answers what the first one did. 1..128 of A-Za-z0-9._:-"`
	Argv        []string          `json:"argv,omitempty"`
	Command     string            `json:"command,omitempty" doc:"a line for bash -c (sh where there is no bash)"`
	Code        string            `json:"code,omitempty" doc:"a program in the sandbox's language, or in language"`
	Language    string            `json:"language,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Cwd         string            `json:"cwd,omitempty"`
	User        string            `json:"user,omitempty" doc:"root needs a sandbox that grants it"`
	Stdin       string            `json:"stdin,omitempty" doc:"all input, as text"`
	StdinBase64 []byte            `json:"stdin_base64,omitempty" doc:"all input, as base64"`
	TimeoutMS   int64             `json:"timeout_ms,omitempty" minimum:"0" maximum:"3600000" doc:"then the command is ended, with the reason timeout; 0 = 10 minutes"`
	OutputMax   int64             `json:"output_bytes_max,omitempty" minimum:"0" maximum:"16777216" doc:"of each stream in the answer; 0 = 1 MiB. What is beyond is kept in the sandbox, see the route output"`
}

// CommandResult is what came of a command.
type CommandResult struct {
	Key        string `json:"key"`
	Existed    bool   `json:"existed,omitempty" doc:"the key was known: nothing was started, this is what the first call did"`
	NotStarted bool   `json:"not_started,omitempty" doc:"the program is not there (127) or cannot be run (126); reason says why"`
	ExitCode   int    `json:"exit_code" doc:"as a shell reports it: 0..255; 128+n for signal n"`
	Signal     int    `json:"signal,omitempty"`
	Reason     string `json:"reason,omitempty" doc:"timeout, out of memory, killed; or why it was not started"`

	Stdout          string `json:"stdout" doc:"the beginning, as far as asked for"`
	StdoutEncoding  string `json:"stdout_encoding" enum:"utf-8,base64" doc:"base64 where the bytes are not UTF-8"`
	StdoutTruncated bool   `json:"stdout_truncated,omitempty" doc:"the command wrote more than is here"`
	StdoutBytes     int64  `json:"stdout_bytes" doc:"that were written in all"`
	Stderr          string `json:"stderr"`
	StderrEncoding  string `json:"stderr_encoding" enum:"utf-8,base64"`
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
	StderrBytes     int64  `json:"stderr_bytes"`
}

// TerminalSize in characters.
type TerminalSize struct {
	Cols int `json:"cols" minimum:"1" maximum:"1000"`
	Rows int `json:"rows" minimum:"1" maximum:"1000"`
}

// Rlimit of a command.
type Rlimit struct {
	Name string `json:"name" doc:"nofile, fsize, core, cpu, as, data, stack, nproc, memlock"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Process is a command as it is now.
type Process struct {
	Key        string     `json:"key"`
	PID        int        `json:"pid"`
	Argv       []string   `json:"argv"`
	Cwd        string     `json:"cwd"`
	User       string     `json:"user"`
	Terminal   bool       `json:"terminal,omitempty"`
	Background bool       `json:"background,omitempty"`
	State      string     `json:"state" enum:"running,exited,lost" doc:"lost: how it ended cannot be known; no status is invented"`
	Exit       *Exit      `json:"exit,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Stdout     Spool      `json:"stdout"`
	Stderr     Spool      `json:"stderr"`
	StdinAcked int64      `json:"stdin_acked"`
	Existed    bool       `json:"existed,omitempty" doc:"the key was known; nothing was started"`
}

// Exit status of a command.
type Exit struct {
	Code   int    `json:"code" doc:"0..255; 128+n for signal n"`
	Signal int    `json:"signal,omitempty"`
	Reason string `json:"reason,omitempty" doc:"timeout, out of memory, killed"`
}

// Spool says what is kept of a stream: bytes [0, head_end) and [tail_start, size).
type Spool struct {
	Size      int64 `json:"size"`
	HeadEnd   int64 `json:"head_end"`
	TailStart int64 `json:"tail_start"`
	EOF       bool  `json:"eof"`
}

// ProcessPage is a page of commands, oldest first.
type ProcessPage struct {
	Items         []Process `json:"items"`
	NextPageToken string    `json:"next_page_token,omitempty"`
}

// SignalProcess sends a signal to the command's process group.
type SignalProcess struct {
	Signal     int  `json:"signal" minimum:"1" maximum:"64"`
	LeaderOnly bool `json:"leader_only,omitempty"`
}

// StdinAck says how many bytes of stdin were accepted in all.
type StdinAck struct {
	Acked  int64 `json:"acked"`
	Closed bool  `json:"closed"`
}

// OutputEvent is one SSE event of a command's output. The SSE id is
// "<stdout offset>:<stderr offset>" behind it, the event name one of started,
// stdout, stderr, gap, exited.
type OutputEvent struct {
	Offset  int64    `json:"offset,omitempty"`
	Data    []byte   `json:"data,omitempty" doc:"base64"`
	Stream  string   `json:"stream,omitempty"`
	From    int64    `json:"from,omitempty"`
	To      int64    `json:"to,omitempty"`
	Process *Process `json:"process,omitempty"`
}
