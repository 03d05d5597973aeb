package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Container is what a container is made of; the engine's field names.
type Container struct {
	Image           string
	Hostname        string
	User            string
	WorkingDir      string
	Entrypoint      []string
	Cmd             []string
	Env             []string
	Labels          map[string]string
	NetworkDisabled bool
	HostConfig      HostConfig
}

// HostConfig is the host's side of a container.
type HostConfig struct {
	NetworkMode    string
	IpcMode        string
	CgroupnsMode   string
	ReadonlyRootfs bool
	CapDrop        []string
	CapAdd         []string
	SecurityOpt    []string
	Memory         int64 // bytes
	MemorySwap     int64 // memory and swap together
	CPUPeriod      int64 `json:"CpuPeriod"` // µs
	CPUQuota       int64 `json:"CpuQuota"`  // µs
	PidsLimit      int64
	OomScoreAdj    int
	ShmSize        int64
	Mounts         []Mount
	Tmpfs          map[string]string
	Ulimits        []Ulimit
	LogConfig      LogConfig
	RestartPolicy  RestartPolicy
}

// Mount shows a directory or file of the host.
type Mount struct {
	Type        string // "bind"
	Source      string
	Target      string
	ReadOnly    bool
	BindOptions BindOptions
}

// BindOptions of a Mount.
type BindOptions struct{ NonRecursive bool }

// Ulimit is a resource limit of the first process.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// LogConfig says where the first process's output goes.
type LogConfig struct{ Type string }

// RestartPolicy says what the engine does when a container ends.
type RestartPolicy struct{ Name string }

// State of a container.
type State struct {
	Status     string // created, running, paused, restarting, removing, exited, dead
	Running    bool   // also while paused
	Paused     bool
	OOMKilled  bool
	Pid        int // on the host, 0 = none
	ExitCode   int
	FinishedAt time.Time
}

// Details of a container.
type Details struct {
	ID     string `json:"Id"`
	State  State
	Config struct{ Labels map[string]string }
}

// Create makes a container and returns its id. Conflict: the name is in use.
// NotFound: there is no such image.
func (c *Client) Create(ctx context.Context, name string, k Container) (id string, err error) {
	var out struct {
		ID string `json:"Id"`
	}
	if err := c.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, k, &out); err != nil {
		return "", err
	}
	if out.ID == "" {
		return "", errs.New(errs.Unavailable, "the container engine made a container without an id")
	}
	return out.ID, nil
}

// act does something with a container that needs no words.
func (c *Client) act(ctx context.Context, container, verb string) error {
	return c.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(container)+"/"+verb, nil, nil, nil)
}

// Start starts a container that was made; no error when it runs.
func (c *Client) Start(ctx context.Context, container string) error {
	return c.act(ctx, container, "start")
}

// Pause freezes a container, Unpause goes on; an error when it is so already.
func (c *Client) Pause(ctx context.Context, container string) error {
	return c.act(ctx, container, "pause")
}

// Unpause undoes Pause.
func (c *Client) Unpause(ctx context.Context, container string) error {
	return c.act(ctx, container, "unpause")
}

// Inspect returns what there is to know of a container.
func (c *Client) Inspect(ctx context.Context, container string) (Details, error) {
	var d Details
	err := c.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(container)+"/json", nil, nil, &d)
	return d, err
}

// Wait returns the exit code of a started container when it has ended. It
// waits as long as ctx.
func (c *Client) Wait(ctx context.Context, container string) (code int, err error) {
	var out struct{ StatusCode int }
	err = c.do(ctx, http.MethodPost, "/containers/"+url.PathEscape(container)+"/wait", nil, nil, &out)
	return out.StatusCode, err
}

// Remove ends and removes a container in any state, with its own volumes.
// NotFound: there is none. Conflict: its removal is already under way.
func (c *Client) Remove(ctx context.Context, container string) error {
	return c.call(ctx, http.MethodDelete, "/containers/"+url.PathEscape(container), url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
}

// Listed is a container of a list.
type Listed struct {
	ID     string `json:"Id"`
	State  string
	Labels map[string]string
}

// List names all containers, dead ones included, with the label ("key=value").
func (c *Client) List(ctx context.Context, label string) ([]Listed, error) {
	var out []Listed
	err := c.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"1"}, "filters": {filters(label)}}, nil, &out)
	return out, err
}

func filters(label string) string {
	data, _ := json.Marshal(map[string][]string{"label": {label}})
	return string(data)
}
