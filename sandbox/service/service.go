// Package service brings declarations of services into sandboxes: from
// callers, from a sandbox's spec and from skete.yaml in its workspace.
//
//	d, err := service.Declaration(spec, wire.ServiceSource_SERVICE_SOURCE_CALL)
//	loaded, err := service.Load(ctx, guest)           // skete.yaml
//	restarted, err := service.AfterRestore(ctx, guest, paths, false)
//
// What keeps them running is in the guest (guest/service). The file is the
// workspace's, so its content is as hostile as the rest of it: it is bounded,
// and it can say nothing that a command in the sandbox could not do.
//
// Everything is safe for concurrent use.
package service

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// File is where a workspace declares its services, beneath the working directory.
const File = "skete.yaml"

// servicesMax bounds the services of a file; the guest has the same bound for all.
const servicesMax = 64

// Spec is a declaration as people and programs write it; package api has the
// same fields. Times are in milliseconds.
type Spec struct {
	Name    string            `json:"name"`
	Argv    []string          `json:"argv,omitempty"`
	Command string            `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	User    string            `json:"user,omitempty"`
	Ports   []int             `json:"ports,omitempty"`
	// At most one of ReadyHTTP (a port), ReadyTCP (a port) and ReadyLog (RE2).
	ReadyHTTP      int               `json:"ready_http,omitempty"`
	ReadyPath      string            `json:"ready_path,omitempty"`
	ReadyTCP       int               `json:"ready_tcp,omitempty"`
	ReadyLog       string            `json:"ready_log,omitempty"`
	ReadyTimeoutMS int64             `json:"ready_timeout_ms,omitempty"`
	Restart        string            `json:"restart,omitempty"` // always, on-failure, never
	Limits         map[string]uint64 `json:"limits,omitempty"`  // of each process: nofile, as, …
	LogBytesMax    int64             `json:"log_bytes_max,omitempty"`
	StopTimeoutMS  int64             `json:"stop_timeout_ms,omitempty"`
}

// policies are the words for restart policies.
var policies = map[string]wire.RestartPolicy{
	"": wire.RestartPolicy_RESTART_POLICY_ALWAYS, "always": wire.RestartPolicy_RESTART_POLICY_ALWAYS,
	"on-failure": wire.RestartPolicy_RESTART_POLICY_ON_FAILURE, "never": wire.RestartPolicy_RESTART_POLICY_NEVER,
}

// Declaration makes the guest's form. It checks what is lost in that; the rest
// the guest checks. The error is Invalid.
func Declaration(s Spec, source wire.ServiceSource) (*wire.ServiceDeclaration, error) {
	restart, ok := policies[s.Restart]
	if !ok {
		return nil, errs.New(errs.Invalid, "service %.50s: restart is always, on-failure or never", s.Name)
	}
	d := &wire.ServiceDeclaration{
		Name: s.Name, Command: []byte(s.Command), Workdir: []byte(s.Workdir), User: s.User, Restart: restart,
		LogBytesMax: s.LogBytesMax, StopTimeoutMs: s.StopTimeoutMS, Source: source,
	}
	for _, a := range s.Argv {
		d.Argv = append(d.Argv, []byte(a))
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return nil, errs.New(errs.Invalid, "service %.50s: %.40q is no environment variable", s.Name, k)
		}
		if d.Env == nil {
			d.Env = map[string][]byte{}
		}
		d.Env[k] = []byte(v)
	}
	for _, p := range append([]int{s.ReadyHTTP, s.ReadyTCP}, s.Ports...) {
		if p < 0 || p > int(wire.TCPPortMax) {
			return nil, errs.New(errs.Invalid, "service %.50s: %d is no port", s.Name, p)
		}
	}
	for _, p := range s.Ports {
		d.Ports = append(d.Ports, uint32(p))
	}
	for _, name := range sorted(s.Limits) {
		d.Rlimits = append(d.Rlimits, &wire.Rlimit{Name: name, Soft: s.Limits[name], Hard: s.Limits[name]})
	}
	var err error
	d.Readiness, err = readiness(s)
	return d, err
}

func sorted(m map[string]uint64) (names []string) {
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func readiness(s Spec) (*wire.Readiness, error) {
	asked := 0
	r := &wire.Readiness{TimeoutMs: s.ReadyTimeoutMS}
	if s.ReadyHTTP != 0 {
		asked++
		r.Probe = &wire.Readiness_Http{Http: &wire.HttpReadiness{Port: uint32(s.ReadyHTTP), Path: s.ReadyPath}}
	}
	if s.ReadyTCP != 0 {
		asked++
		r.Probe = &wire.Readiness_Tcp{Tcp: &wire.TcpReadiness{Port: uint32(s.ReadyTCP)}}
	}
	if s.ReadyLog != "" {
		asked++
		r.Probe = &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: s.ReadyLog}}
	}
	switch {
	case asked > 1:
		return nil, errs.New(errs.Invalid, "service %.50s: it is ready by HTTP, TCP or a line of its log, not by several", s.Name)
	case s.ReadyPath != "" && s.ReadyHTTP == 0:
		return nil, errs.New(errs.Invalid, "service %.50s: a path is for readiness by HTTP", s.Name)
	case asked == 0 && s.ReadyTimeoutMS == 0:
		return nil, nil
	}
	return r, nil
}

// Loaded is what Load did.
type Loaded struct {
	Found    bool     // the file is there
	Declared []string // that the file names
	Removed  []string // that it does not name any more
}

// Load declares what skete.yaml of the workspace says and removes what it
// does not say any more. A file that is wrong changes nothing; the error is
// Invalid and says where. No file is an empty one.
func Load(ctx context.Context, g *wire.Client) (Loaded, error) {
	data, found, err := read(ctx, g)
	if err != nil {
		return Loaded{}, err
	}
	l := Loaded{Found: found}
	var list []Spec
	if found {
		if list, err = Parse(data); err != nil {
			return l, err
		}
	}
	for _, s := range list {
		l.Declared = append(l.Declared, s.Name)
	}
	if err := Declare(ctx, g, list, wire.ServiceSource_SERVICE_SOURCE_FILE); err != nil {
		return l, err
	}
	l.Removed, err = prune(ctx, g, l.Declared)
	return l, err
}

// Declare declares services in a guest; what is known and equal stays as it is.
func Declare(ctx context.Context, g *wire.Client, list []Spec, source wire.ServiceSource) error {
	var all []*wire.ServiceDeclaration
	for _, s := range list {
		d, err := Declaration(s, source)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	known, err := services(ctx, g)
	if err != nil {
		return err
	}
	for _, d := range all {
		req := &wire.DeclareServiceRequest{Declaration: d}
		if known[d.Name] != nil { // who stopped it meant it
			req.Start = wire.DeclareStart_DECLARE_START_KEEP
		}
		if _, err := g.Service.Declare(ctx, connect.NewRequest(req)); err != nil {
			return wire.Err(err)
		}
	}
	return nil
}

func services(ctx context.Context, g *wire.Client) (map[string]*wire.ServiceInfo, error) {
	res, err := g.Service.List(ctx, connect.NewRequest(&wire.ListServicesRequest{}))
	if err != nil {
		return nil, wire.Err(err)
	}
	m := map[string]*wire.ServiceInfo{}
	for _, i := range res.Msg.GetServices() {
		m[i.GetDeclaration().GetName()] = i
	}
	return m, nil
}

// prune removes services that a file declared and does not name any more.
func prune(ctx context.Context, g *wire.Client, named []string) (removed []string, err error) {
	known, err := services(ctx, g)
	if err != nil {
		return nil, err
	}
	for name, i := range known {
		if i.GetDeclaration().GetSource() != wire.ServiceSource_SERVICE_SOURCE_FILE || slices.Contains(named, name) {
			continue
		}
		_, err := g.Service.Remove(ctx, connect.NewRequest(&wire.RemoveServiceRequest{Name: name}))
		if err = wire.Err(err); err != nil && !errs.Is(err, errs.NotFound) {
			return removed, err
		}
		removed = append(removed, name)
	}
	slices.Sort(removed)
	return removed, nil
}

// read reads the file, as the sandbox's user.
func read(ctx context.Context, g *wire.Client) (data []byte, found bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := g.File.Read(ctx, connect.NewRequest(&wire.ReadRequest{Path: []byte(File), Length: yamlfile.BytesMax + 1}))
	if err != nil {
		return nil, false, wire.Err(err)
	}
	defer func() {
		cancel()
		_ = st.Close()
	}()
	for st.Receive() {
		if data = append(data, st.Msg().GetData()...); len(data) > yamlfile.BytesMax {
			return nil, true, errs.New(errs.Invalid, "%s is larger than %d bytes", File, yamlfile.BytesMax)
		}
	}
	if err := wire.Err(st.Err()); errs.Is(err, errs.NotFound) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	return data, true, nil
}

// AfterRestore does what is due when files of a workspace were put back under
// its running programs: services that hold old files, do not work, or whose
// configuration is among the paths, start anew; and what skete.yaml says holds.
// paths are absolute. Programs that are no service's are killed only if the
// caller says so, else the answer names them.
//
// While the sandbox's commands are stopped, holders end at once and start
// again at the thaw, so this belongs between the restore and the thaw.
func AfterRestore(ctx context.Context, g *wire.Client, paths []string, killOthers bool) (*wire.RestartHoldersResponse, error) {
	req := &wire.RestartHoldersRequest{KillUnmanaged: killOthers}
	reload := false
	for _, p := range paths {
		req.Paths = append(req.Paths, []byte(p))
		reload = reload || path.Base(p) == File
	}
	res, err := g.Service.RestartHolders(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, wire.Err(err)
	}
	if reload {
		if _, err := Load(ctx, g); err != nil {
			return res.Msg, err
		}
	}
	return res.Msg, nil
}

// bootWait bounds how long AtBoot asks a guest.
const bootWait = 10 * time.Second

// AtBoot declares what skete.yaml of the workspace and the sandbox's spec say,
// in a machine that has just booted. The file's first: it may say the spec's
// anew. It waits for no service to be ready, and what is wrong with one source
// does not keep the other from being used.
func AtBoot(ctx context.Context, g *wire.Client, spec []Spec) error {
	ctx, cancel := context.WithTimeout(ctx, bootWait)
	defer cancel()
	_, err := Load(ctx, g)
	return errors.Join(err, Declare(ctx, g, spec, wire.ServiceSource_SERVICE_SOURCE_SPEC))
}
