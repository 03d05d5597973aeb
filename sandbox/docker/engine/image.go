package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sort"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// Image is one image of a list.
type Image struct {
	ID     string `json:"Id"`
	Labels map[string]string
}

// Images lists those with the label ("key=value").
func (c *Client) Images(ctx context.Context, label string) ([]Image, error) {
	var out []Image
	err := c.call(ctx, http.MethodGet, "/images/json", url.Values{"filters": {filters(label)}}, nil, &out)
	return out, err
}

var imageID = pattern.Lazy(`^(sha256:)?[0-9a-f]{64}$`)

// Import makes an image of one layer, a tar archive, and returns its id. It
// takes as long as ctx allows: archives may be large.
func (c *Client) Import(ctx context.Context, name string, labels map[string]string, archive io.Reader) (id string, err error) {
	q := url.Values{"fromSrc": {"-"}, "repo": {name}}
	keys := make([]string, 0, len(labels))
	for k := range labels {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		q.Add("changes", "LABEL "+k+"="+labels[k])
	}
	data, err := c.exchange(ctx, http.MethodPost, "/images/create", q, "application/x-tar", archive)
	if err != nil {
		return "", err
	}
	return importedID(data)
}

// importedID finds the id in an import's progress, one JSON object a line. An
// engine reports a failure there too, after a good status.
func importedID(progress []byte) (string, error) {
	d := json.NewDecoder(bufio.NewReader(bytes.NewReader(progress)))
	id := ""
	for {
		var line struct{ Status, ID, Error string }
		err := d.Decode(&line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", errs.Wrap(errs.Unavailable, err, "the container engine's answer makes no sense")
		}
		if line.Error != "" {
			return "", errs.Wrap(errs.Unavailable, &Error{Status: http.StatusOK, Words: line.Error}, "the container engine did not take the image")
		}
		if imageID().MatchString(line.Status) {
			id = line.Status
		}
	}
	if id == "" {
		return "", errs.New(errs.Unavailable, "the container engine did not say which image it made")
	}
	return id, nil
}

// RemoveImage deletes an image. Conflict: a container uses it. NotFound: there is none.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/images/"+url.PathEscape(id), nil, nil, nil)
}

// Info is what an engine says of itself.
type Info struct {
	ServerVersion   string
	Driver          string // of the storage
	DockerRootDir   string
	CgroupVersion   string
	OSType          string
	MemoryLimit     bool
	SwapLimit       bool
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	PidsLimit       bool
	SecurityOptions []string
	Rootless        bool // Podman's; Docker says so in SecurityOptions
}

// Info asks the engine for what it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var i Info
	err := c.call(ctx, http.MethodGet, "/info", nil, nil, &i)
	return i, err
}
