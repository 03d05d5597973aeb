// Package fcmodel is a model of Firecracker and its jailer for tests: a server
// of the documented API that refuses what the real one refuses, and the unix
// socket side of its vsock with all its traps. It runs no virtual machine.
//
//	m := fcmodel.New(fcmodel.Config{Dir: root, Version: "1.16.1", Guest: guest})
//	err := m.Serve(ctx, "api.sock") // until the machine ends
//
// As a program (fcmodel/program) it takes the place of both binaries; its
// guest is then the real skete-guest, as a process of this host without any
// isolation. What a test shows with it is shown of our side only: that we ask
// in the right order, clean up, and live with the vsock as it is. Whether a
// machine boots, restores and is isolated is shown by the live tests.
//
// The model is held against the real program where there is one:
// TestTheModelAnswersAsFirecrackerDoes sends both the same requests.
package fcmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/sandbox/firecracker/api"
)

// Guest is what runs in the machine.
type Guest interface {
	// Dial opens a stream to a vsock port; an error: nothing listens there.
	Dial(ctx context.Context, port uint32) (net.Conn, error)
	// Stop ends it; Wait returns when it has ended.
	Stop()
	Wait()
}

// Config of a Model.
type Config struct {
	// Dir is what relative paths are relative to.
	Dir string
	// Version that it claims to be, and whose fields it knows.
	Version string
	// Boot starts the guest: cold with the machine's memory empty, else as the
	// memory file says. It may write its own memory file content with Memory.
	Boot func(source BootSource) (Guest, error)
	// Greeting, if any, is sent in one packet with each "OK".
	Greeting string
}

// BootSource is what a guest starts from.
type BootSource struct {
	Kernel, Initrd, Args string
}

type state int

const (
	fresh state = iota
	configured
	running
	paused
	ended
)

// Model of one process. All methods are safe for concurrent use.
type Model struct {
	c       Config
	version api.Version

	mu        sync.Mutex
	state     state
	memoryMiB int64
	source    BootSource
	drives    []drive
	vsockPath string
	vsock     *vsock
	guest     Guest
	told      bool     // the guest will learn that all its connections are gone
	memory    *os.File // the initramfs, for as long as it runs
	metrics   *os.File
	done      chan struct{}
}

type drive struct {
	ID       string `json:"id"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only"`
}

// savedState is a snapshot's state file.
type savedState struct {
	Version   string     `json:"version"`
	MemoryMiB int64      `json:"memory_mib"`
	Source    BootSource `json:"source"`
	Drives    []drive    `json:"drives"`
	Vsock     string     `json:"vsock"`
}

// New returns a fresh one.
func New(c Config) *Model {
	v, err := api.ParseVersion(c.Version)
	if err != nil {
		panic(err)
	}
	return &Model{c: c, version: v, memoryMiB: 128, done: make(chan struct{})}
}

// Serve answers on the socket until ctx or the machine ends.
func (m *Model) Serve(ctx context.Context, socket string) error {
	if _, err := os.Lstat(m.path(socket)); err == nil {
		return fmt.Errorf("%s exists", socket)
	}
	ln, err := listen(m.path(socket))
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	select {
	case <-ctx.Done():
	case <-m.done:
	}
	// An answer under way is still sent: a failed load is told before the end.
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	<-served
	m.mu.Lock()
	if m.metrics != nil {
		_ = m.metrics.Close()
	}
	v, g, memory := m.vsock, m.guest, m.memory
	m.mu.Unlock()
	if v != nil {
		v.close()
	}
	if g != nil {
		g.Stop()
		g.Wait()
	}
	if memory != nil {
		_ = memory.Close()
	}
	return nil
}

func (m *Model) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(m.c.Dir, p)
}

// fault is a refusal.
type fault struct{ message string }

func (f fault) Error() string { return f.message }

func refuse(format string, args ...any) error { return fault{fmt.Sprintf(format, args...)} }

// What the real one says in these cases.
var (
	errAfterStart  = fault{"The requested operation is not supported after starting the microVM."}
	errBeforeStart = fault{"The requested operation is not supported before starting the microVM."}
	errIDs         = fault{"The id from the path does not match the id from the body!"}
	errLoad        = fault{"Load snapshot error: Loading a microVM snapshot not allowed after configuring boot-specific resources."}
)

// ServeHTTP implements the API.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 51200+1)) // Firecracker's own bound
	var answer any
	if err == nil {
		answer, err = m.handle(r.Method, r.URL.Path, body)
	}
	w.Header().Set("Server", "Firecracker API")
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"fault_message": err.Error()})
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

var resourceID = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

func (m *Model) handle(method, path string, body []byte) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	route, id, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if method == http.MethodGet {
		return m.get(route, body)
	}
	if len(body) == 0 {
		return nil, refuse("Empty %s request.", method)
	}
	name := method + " " + route
	if route == "snapshot" {
		name += "/" + id
	}
	c, ok := calls[name]
	if !ok {
		return nil, refuse("Invalid request method and/or path: %s %s.", method, route)
	}
	if route == "drives" || route == "network-interfaces" {
		if id == "" {
			return nil, fault{"The ID cannot be empty."}
		}
		if !resourceID.MatchString(id) {
			return nil, fault{"API Resource IDs can only contain alphanumeric characters and underscores."}
		}
	}
	fields, err := decode(body, c.fields, m.version)
	if err != nil {
		return nil, err
	}
	if key := c.id; key != "" && fields.text(key) != id {
		return nil, errIDs
	}
	return nil, m.call(c, fields)
}

func (m *Model) get(route string, body []byte) (any, error) {
	if len(body) > 0 {
		return nil, fault{"GET request cannot have a body."}
	}
	switch route {
	case "version":
		return map[string]string{"firecracker_version": m.c.Version}, nil
	case "":
		words := map[state]string{fresh: "Not started", configured: "Not started", running: "Running", paused: "Paused", ended: "Running"}
		return map[string]string{"id": "model", "state": words[m.state], "vmm_version": m.c.Version, "app_name": "Firecracker"}, nil
	}
	return nil, refuse("Invalid request method and/or path: GET %s.", route)
}

// call checks when a call is allowed, and makes it.
func (m *Model) call(c call, f fields) error {
	started := m.state == running || m.state == paused
	switch c.when {
	case beforeStart:
		if started {
			return errAfterStart
		}
	case bootOnly:
		if started {
			return errAfterStart
		}
		m.state = configured // even if it fails
	case afterStart:
		if !started {
			return errBeforeStart
		}
	}
	return c.do(m, f)
}

func (m *Model) setMachine(f fields) error {
	cpus, memory := f.number("vcpu_count"), f.number("mem_size_mib")
	if cpus < 1 || cpus > 32 || (cpus > 1 && cpus%2 == 1 && f.flag("smt")) {
		return refuse("Machine config error: The vCPU number is invalid!")
	}
	if memory < 1 {
		return refuse("Machine config error: The memory size (MiB) is invalid.")
	}
	m.memoryMiB = memory
	return nil
}

func (m *Model) setBootSource(f fields) error {
	m.source = BootSource{f.text("kernel_image_path"), f.text("initrd_path"), f.text("boot_args")}
	for _, p := range []string{m.source.Kernel, m.source.Initrd} {
		if p == "" {
			continue
		}
		if _, err := os.Stat(m.path(p)); err != nil {
			return refuse("Boot source error: %v", err)
		}
	}
	return nil
}

func (m *Model) setDrive(f fields) error {
	if err := checkLimiter(f.object("rate_limiter"), m.version); err != nil {
		return err
	}
	d := drive{f.text("drive_id"), f.text("path_on_host"), f.flag("is_read_only")}
	if err := m.openDrive(d); err != nil {
		return refuse("Drive config error: Unable to create the virtio block device: %v", err)
	}
	m.drives = append(slices.DeleteFunc(m.drives, func(o drive) bool { return o.ID == d.ID }), d)
	return nil
}

// openDrive opens it as the real one does, with the rights that we have.
func (m *Model) openDrive(d drive) error {
	flags := os.O_RDWR
	if d.ReadOnly {
		flags = os.O_RDONLY
	}
	file, err := os.OpenFile(m.path(d.Path), flags, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

func (m *Model) setVsock(f fields) error {
	if m.vsock != nil { // its own is replaced
		m.vsock.close()
		_ = os.Remove(m.path(m.vsockPath))
		m.vsock = nil
	}
	return m.bindVsock(f.text("uds_path"))
}

// bindVsock binds and never unlinks: what a run before has left is in the way.
func (m *Model) bindVsock(path string) error {
	if len(path) > 107 {
		return refuse("Vsock config error: path must be shorter than SUN_LEN")
	}
	v, err := listenVsock(m, m.path(path))
	if err != nil {
		return refuse("Vsock config error: Cannot create backend for vsock device: %v", err)
	}
	m.vsock, m.vsockPath = v, path
	return nil
}

func (m *Model) act(f fields) error {
	switch action := f.text("action_type"); action {
	case "InstanceStart":
		if m.state == running || m.state == paused {
			return errAfterStart
		}
		if m.source.Kernel == "" {
			return refuse("Start microvm error: Cannot start microvm without kernel configuration.")
		}
		return m.start(m.source)
	case "FlushMetrics", "SendCtrlAltDel":
		if m.state != running && m.state != paused {
			return errBeforeStart
		}
		if action == "FlushMetrics" {
			return m.flush()
		}
		return nil
	default:
		return refuse("An error occurred when deserializing the json body of a request: unknown variant `%s`", action)
	}
}

// setMetrics opens what metrics are written to, once, as the real one does.
func (m *Model) setMetrics(f fields) error {
	if m.metrics != nil {
		return refuse("Failed to configure metrics: Reinitialization of metrics not allowed.")
	}
	file, err := os.OpenFile(m.path(f.text("metrics_path")), os.O_CREATE|os.O_RDWR|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return refuse("Failed to configure metrics: %v", err)
	}
	m.metrics = file
	return nil
}

// flush writes a line: what was counted since the one before. The model's
// disks read a sector between any two.
func (m *Model) flush() error {
	if m.metrics == nil {
		return nil
	}
	block := map[string]int64{"read_bytes": 512, "read_count": 1, "write_bytes": 0, "write_count": 0, "rate_limiter_throttled_events": 0}
	data, err := json.Marshal(map[string]any{
		"utc_timestamp_ms": time.Now().UnixMilli(), "block": block, "vsock": map[string]int64{"rx_bytes_count": 0, "tx_bytes_count": 0},
		"seccomp": map[string]int64{"num_faults": 0},
	})
	if err != nil {
		return refuse("%v", err)
	}
	if err := m.metrics.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err == nil { // a full pipe loses it
		_, _ = m.metrics.Write(append(data, '\n'))
	}
	return nil
}

func (m *Model) start(source BootSource) error {
	m.state = running
	if source.Initrd != "" {
		var err error
		if m.memory, err = os.Open(m.path(source.Initrd)); err != nil {
			m.end()
			return refuse("Start microvm error: %v", err)
		}
	}
	if m.c.Boot == nil {
		return nil
	}
	g, err := m.c.Boot(source)
	if err != nil {
		m.end()
		return refuse("Start microvm error: %v", err)
	}
	m.guest = g
	go func() {
		g.Wait()
		m.mu.Lock()
		m.end()
		m.mu.Unlock()
	}()
	return nil
}

// end ends the process. Preconditions: mu is held.
func (m *Model) end() {
	if m.state != ended {
		m.state = ended
		close(m.done)
	}
}

func (m *Model) setState(f fields) error {
	switch s := f.text("state"); s {
	case "Paused":
		m.state = paused
	case "Resumed":
		if m.state == paused && !m.told && !m.version.AtLeast(api.Version{Major: 1, Minor: 17}) && m.vsock != nil {
			m.vsock.gate() // it waits for an answer to what it has not said
		}
		m.state, m.told = running, false
	default:
		return refuse("An error occurred when deserializing the json body of a request: unknown variant `%s`", s)
	}
	if m.vsock != nil {
		m.vsock.wake()
	}
	return nil
}

func (m *Model) createSnapshot(f fields) error {
	if m.state != paused {
		return refuse("Create snapshot error: Cannot create snapshot: the microVM is not paused")
	}
	if t := f.text("snapshot_type"); t != "" && t != "Full" {
		return refuse("Create snapshot error: the model makes full snapshots only")
	}
	m.told = true // even if it fails
	s := savedState{m.c.Version, m.memoryMiB, m.source, m.drives, m.vsockPath}
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(m.path(f.text("snapshot_path")), data, 0o600)
	}
	if err == nil {
		err = m.saveMemory(m.path(f.text("mem_file_path")))
	}
	if err != nil {
		return refuse("Create snapshot error: %v", err)
	}
	if m.vsock != nil {
		m.vsock.reset() // the guest is told that all its connections are gone
	}
	return nil
}

// saveMemory writes what a guest can be started from again: our guest is a
// program in the initramfs, which was read when the machine started.
func (m *Model) saveMemory(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if m.memory != nil {
		_, err = io.Copy(file, io.NewSectionReader(m.memory, 0, m.memoryMiB<<20))
	}
	return errors.Join(err, file.Truncate(m.memoryMiB<<20), file.Close())
}

// loadSnapshot is for a fresh process, which ends if it fails.
func (m *Model) loadSnapshot(f fields) error {
	if m.state != fresh {
		if m.state == running || m.state == paused {
			return errAfterStart
		}
		return errLoad
	}
	if err := m.load(f); err != nil {
		m.end()
		return refuse("Load snapshot error: Failed to restore from snapshot: %v", err)
	}
	return nil
}

func (m *Model) load(f fields) error {
	backend := f.object("mem_backend")
	if backend == nil || backend["backend_type"] != "File" {
		return errors.New("missing field: either `mem_backend` or `mem_file_path` is required")
	}
	memory, _ := backend["backend_path"].(string)
	data, err := os.ReadFile(m.path(f.text("snapshot_path")))
	if err != nil {
		return err
	}
	var s savedState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.Version != m.c.Version {
		return fmt.Errorf("snapshot of version %s", s.Version)
	}
	info, err := os.Stat(m.path(memory))
	if err == nil && info.Size() != s.MemoryMiB<<20 {
		err = fmt.Errorf("memory of %d bytes", info.Size())
	}
	for _, d := range s.Drives {
		if err == nil {
			err = m.openDrive(d)
		}
	}
	if err != nil {
		return err
	}
	path := s.Vsock
	if o := f.object("vsock_override"); o != nil {
		path, _ = o["uds_path"].(string)
	}
	if path != "" {
		if err := m.bindVsock(path); err != nil {
			return err
		}
	}
	m.drives, m.memoryMiB, m.source = s.Drives, s.MemoryMiB, s.Source
	source := s.Source
	source.Initrd = memory
	if err := m.start(source); err != nil {
		return err
	}
	if !f.flag("resume_vm") {
		m.state = paused
	}
	return nil
}
