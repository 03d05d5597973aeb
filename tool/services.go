package tool

import (
	"context"
	"time"
)

// Services are declared processes that a machine keeps running, from any
// Source. Safe for concurrent use.
//
// Errors of class NotFound (no such service), Invalid (a declaration that is
// wrong), Conflict or Denied (the service must not be changed) and Limit are for the
// model; everything else is the platform's.
type Services interface {
	// Declare makes a service known, or changes it, and starts it. The same
	// declaration again changes nothing. It waits until the service is ready or
	// nothing more happens by itself, at most wait.
	Declare(ctx context.Context, s ServiceSpec, wait time.Duration) (Service, error)
	// Start, Stop and Restart act on a declared one and wait likewise.
	Start(ctx context.Context, name string, wait time.Duration) (Service, error)
	Stop(ctx context.Context, name string, wait time.Duration) (Service, error)
	Restart(ctx context.Context, name string, wait time.Duration) (Service, error)
	// Service returns one as it is now.
	Service(ctx context.Context, name string) (Service, error)
	// Services lists all by name.
	Services(ctx context.Context) ([]Service, error)
	// Log returns at most max bytes of what it wrote, from an offset on;
	// from -n is the last n bytes.
	Log(ctx context.Context, name string, from int64, max int) (ServiceLog, error)
}

// ServiceSpec declares a service.
type ServiceSpec struct {
	Name    string
	Command string // for a shell
	Dir     string // "" = where commands run
	Env     map[string]string
	Ports   []int // that it serves
	// At most one of ReadyHTTP (a port), ReadyTCP (a port) and ReadyLog (a
	// regular expression, RE2); none = ready once it runs.
	ReadyHTTP, ReadyTCP int
	ReadyPath, ReadyLog string
	ReadyTimeout        time.Duration // 0 = the machine's default
	Restart             string        // "always" (also ""), "on-failure", "never"
}

// Service is a service as it is. All texts are UTF-8.
type Service struct {
	Name, Command string
	// State is one of stopped, starting, ready, unready, backoff, crash-loop, failed.
	State    string
	Reason   string // in words
	PID      int    // 0 = it does not run
	Run      string // names its present or last run
	Restarts uint64
	Ports    []int
	Exit     *int   // of its last run that has ended
	Source   string // who declared it: "call", "file" or "spec"
	LogBytes int64
}

// ServiceLog is a piece of a log.
type ServiceLog struct {
	From int64 // the offset of Data
	Data []byte
	// Gone counts bytes between the offset that was asked for and From that are
	// not kept any more.
	Gone int64
	Size int64 // of the whole log so far
}
