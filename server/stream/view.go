package stream

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
)

// This file translates between what the guest says (guest/wire) and what
// callers see (api): one place where bytes become text, numbers become times
// and a request becomes a command line.
//
// The guest is hostile: every name is made valid UTF-8 (its exact bytes go to
// path_bytes), every enumeration has an answer for unknown values, missing
// messages give zero values. All functions are pure.

// validText makes what the guest wrote valid UTF-8, with U+FFFD for what is not.
func validText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// exactBytes returns b if it is not valid UTF-8, else nil: the content of path_bytes.
func exactBytes(b []byte) []byte {
	if utf8.Valid(b) {
		return nil
	}
	return b
}

func unixNS(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// ProcessView shows a command.
func ProcessView(p *wire.ProcessInfo) api.Process {
	v := api.Process{
		Key: p.GetKey(), PID: int(p.GetPid()), Argv: texts(p.GetArgv()), Cwd: validText(p.GetCwd()), User: p.GetUser(),
		Terminal: p.GetPty(), Background: p.GetBackground(), State: processState(p.GetState()),
		StartedAt: unixNS(p.GetStartedUnixNs()),
		Stdout:    spoolView(p.GetStdout()), Stderr: spoolView(p.GetStderr()), StdinAcked: p.GetStdinAcked(),
	}
	if e := p.GetExit(); e != nil && v.State == "exited" {
		v.Exit = &api.Exit{Code: int(e.GetCode()), Signal: int(e.GetSignal()), Reason: validText([]byte(e.GetReason()))}
	}
	if ns := p.GetEndedUnixNs(); ns != 0 {
		t := unixNS(ns)
		v.EndedAt = &t
	}
	return v
}

func texts(bs [][]byte) []string {
	s := make([]string, len(bs))
	for i, b := range bs {
		s[i] = validText(b)
	}
	return s
}

// processState of an unknown kind is "lost": nothing is invented.
func processState(s wire.ProcessState) string {
	switch s {
	case wire.ProcessState_PROCESS_STATE_RUNNING:
		return "running"
	case wire.ProcessState_PROCESS_STATE_EXITED:
		return "exited"
	}
	return "lost"
}

func spoolView(s *wire.Spool) api.Spool {
	return api.Spool{Size: s.GetSize(), HeadEnd: s.GetHeadEnd(), TailStart: s.GetTailStart(), EOF: s.GetEof()}
}

// streamName names a stream of output.
func streamName(s wire.Stream) string {
	if s == wire.Stream_STREAM_STDERR {
		return "stderr"
	}
	return "stdout"
}

// gapEvent shows bytes that the spool's bound dropped.
func gapEvent(g *wire.Gap) api.OutputEvent {
	return api.OutputEvent{Stream: streamName(g.GetStream()), From: g.GetFrom(), To: g.GetTo()}
}

// MetricsView shows what the guest measured.
func MetricsView(m *wire.MetricsResponse) api.Metrics {
	return api.Metrics{
		Time: unixNS(m.GetTimeUnixNs()), CPUs: float64(m.GetCpuCount()), CPUUsedUS: m.GetCpuUsedUs(),
		MemTotal: m.GetMemTotalBytes(), MemUsed: m.GetMemUsedBytes(),
		DiskTotal: m.GetDiskTotalBytes(), DiskUsed: m.GetDiskUsedBytes(),
		Processes: int(m.GetProcesses()), ProcessesMax: int(m.GetProcessesMax()), UptimeMS: m.GetUptimeMs(),
	}
}

// FileView shows an entry of a directory.
func FileView(e *wire.Entry) api.File {
	return api.File{
		Path: validText(e.GetPath()), PathBytes: exactBytes(e.GetPath()), Name: validText(e.GetName()), Type: fileType(e.GetType()),
		Size: e.GetSize(), Mode: e.GetMode(), UID: e.GetUid(), GID: e.GetGid(),
		ModifiedAt: unixNS(e.GetModifiedUnixNs()), Target: validText(e.GetTarget()), TargetBytes: exactBytes(e.GetTarget()),
	}
}

// FileViews shows entries; never nil, so that JSON has [].
func FileViews(es []*wire.Entry) []api.File {
	fs := make([]api.File, len(es))
	for i, e := range es {
		fs[i] = FileView(e)
	}
	return fs
}

func fileType(t wire.FileType) string {
	switch t {
	case wire.FileType_FILE_TYPE_REGULAR:
		return "file"
	case wire.FileType_FILE_TYPE_DIRECTORY:
		return "directory"
	case wire.FileType_FILE_TYPE_SYMLINK:
		return "symlink"
	}
	return "other"
}

// MatchView shows one line that grep found.
func MatchView(m *wire.GrepMatch) api.GrepMatch {
	v := api.GrepMatch{
		Path: validText(m.GetPath()), PathBytes: exactBytes(m.GetPath()),
		Line: int(m.GetLine()), Column: int(m.GetColumn()), Text: validText(m.GetText()),
	}
	if len(m.GetBefore()) > 0 {
		v.Before = texts(m.GetBefore())
	}
	if len(m.GetAfter()) > 0 {
		v.After = texts(m.GetAfter())
	}
	return v
}

// fileEventView shows a change in a watched tree.
func fileEventView(e *wire.FileEvent) api.FileEvent {
	return api.FileEvent{
		Seq: e.GetSeq(), Type: fileEventType(e.GetType()),
		Path: validText(e.GetPath()), PathBytes: exactBytes(e.GetPath()), Directory: e.GetDirectory(),
	}
}

// overflowView shows that events are lost.
func overflowView(o *wire.WatchOverflow) api.FileEvent {
	return api.FileEvent{Seq: o.GetSeq(), Type: "overflow", LostFrom: o.GetLostFrom(), LostTo: o.GetLostTo()}
}

// fileEventType of an unknown kind is "write": the reader looks at the file.
func fileEventType(t wire.FileEventType) string {
	switch t {
	case wire.FileEventType_FILE_EVENT_TYPE_CREATE:
		return "create"
	case wire.FileEventType_FILE_EVENT_TYPE_REMOVE:
		return "remove"
	case wire.FileEventType_FILE_EVENT_TYPE_RENAME:
		return "rename"
	case wire.FileEventType_FILE_EVENT_TYPE_CHMOD:
		return "chmod"
	}
	return "write"
}

// PortView shows an open port.
func PortView(p *wire.OpenPort) api.Port {
	return api.Port{Port: int(p.GetPort()), Address: validText([]byte(p.GetAddress()))}
}
