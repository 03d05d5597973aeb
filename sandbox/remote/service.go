package remote

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Service makes machines. Unavailable: it does not answer, or not now. NotFound: it has
// no such machine.
type Service interface {
	// Create makes a machine that ends by itself after keep. Its labels are what Find
	// looks for. With an error, a Place that has an ID was made all the same.
	Create(ctx context.Context, labels map[string]string, keep time.Duration) (Place, error)
	// Find names the machines with these labels, which live.
	Find(ctx context.Context, labels map[string]string) ([]string, error)
	// Look says whether a machine is paused. NotFound: it has ended.
	Look(ctx context.Context, p Place) (paused bool, err error)
	// Keep has a machine end by itself only after so long from now.
	Keep(ctx context.Context, p Place, keep time.Duration) error
	// Kill ends a machine; it is no error if there is none.
	Kill(ctx context.Context, id string) error
	// Pause and Resume may be repeated. Unsupported: see CanPause.
	Pause(ctx context.Context, p Place) error
	Resume(ctx context.Context, p Place, keep time.Duration) error
	CanPause() bool
	// Notes say what is weaker with this service than with others.
	Notes() []string
	// Put writes a file beneath the home of the machine's user.
	Put(ctx context.Context, p Place, home, name string, data []byte) error
	// Run runs a line of sh to its end and returns what it printed.
	Run(ctx context.Context, p Place, script string) (stdout string, err error)
	// Start starts a line of sh that goes on without us, one in a machine, and returns
	// what Await knows it by.
	Start(ctx context.Context, p Place, script string) (program string, err error)
	// Await returns how the program ended, once it has.
	Await(ctx context.Context, p Place, program string) (how string, err error)
	// Address is where a port of the machine's loopback answers to HTTP, and with which
	// headers.
	Address(ctx context.Context, p Place, port int) (*url.URL, http.Header, error)
	// Close frees what connections it has.
	Close()
}

// Place is a machine as its service knows it.
type Place struct {
	ID string `json:"id"`
	// Tokens of the service for this machine, and beneath which name it is: of E2B's.
	Access  string `json:"access,omitempty"`
	Traffic string `json:"traffic,omitempty"`
	Domain  string `json:"domain,omitempty"`
}

// Bounds of what a service may answer.
const (
	answerBytesMax = 4 << 20
	outputBytesMax = 64 << 10 // of Run
	idBytesMax     = 128
	tokenBytesMax  = 4096
	callTimeout    = 30 * time.Second
)

// check refuses what no service has reason to answer: an id becomes part of addresses.
func (p Place) check() error {
	if !plain(p.ID, idBytesMax) || len(p.Access) > tokenBytesMax || len(p.Traffic) > tokenBytesMax || p.Domain != "" && !plain(p.Domain, 255) {
		return errs.New(errs.Unavailable, "the service made a machine with an id or tokens that cannot be")
	}
	return nil
}

// plain accepts what may stand in a host name with a port.
func plain(s string, most int) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return s != "" && len(s) <= most && s[0] != '.'
}
