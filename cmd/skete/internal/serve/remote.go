package serve

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/remote"
)

const (
	serviceKeyBytesMax = 4096
	serviceKeyTime     = 20 * time.Second
)

// openRemote makes the provider whose machines a service makes.
func openRemote(ctx context.Context, c Config, dir, guest string) (*remote.Provider, error) {
	s := c.Remote
	at, err := remote.ParseURL("remote.url", s.URL)
	if err != nil {
		return nil, err
	}
	var machines *url.URL
	if s.SandboxURL != "" {
		if machines, err = remote.ParseURL("remote.sandbox_url", s.SandboxURL); err != nil {
			return nil, err
		}
	}
	key, err := serviceKey(ctx, s)
	if err != nil {
		return nil, err
	}
	template := s.Template
	if template == "" {
		template = "base"
	}
	return remote.New(remote.Config{
		Name: remote.Name, Dir: dir, Keep: time.Duration(s.Timeout), Guest: guest, Log: c.Log,
		Service: remote.NewE2B(remote.E2B{URL: at, SandboxURL: machines, Domain: s.Domain, Key: key, Template: template}),
	})
}

// serviceKey reads the key of a service, from its file or from what a command prints. It
// stands in no setting, and so in no list of processes and no log.
func serviceKey(ctx context.Context, s config.Remote) (string, error) {
	const hint = "remote.key_file holds the key and nothing else; remote.key_command prints it"
	var data []byte
	var err error
	if s.KeyFile != "" {
		data, err = os.ReadFile(s.KeyFile)
	} else {
		ctx, cancel := context.WithTimeout(ctx, serviceKeyTime)
		defer cancel()
		data, err = exec.CommandContext(ctx, s.KeyCommand[0], s.KeyCommand[1:]...).Output()
	}
	if err != nil {
		return "", errs.Wrap(errs.Invalid, err, "the key of the provider remote cannot be read").WithHint("%s", hint)
	}
	key := strings.TrimSpace(string(data))
	if key == "" || len(key) > serviceKeyBytesMax || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errs.New(errs.Invalid, "what should be the key of the provider remote is none").WithHint("%s", hint)
	}
	return key, nil
}
