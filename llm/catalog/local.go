package catalog

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/llm/compat"
)

// Server is a model server that may run on this machine.
type Server struct {
	Name  string // of its models: NAME/ID
	Title string
	URL   string // base URL, without the version
}

// locals are the servers that are looked for, in the order of preference, at
// the addresses where they listen by default.
func locals() []Server {
	return []Server{
		{"ollama", "Ollama", "http://127.0.0.1:11434"},
		{"lmstudio", "LM Studio", "http://127.0.0.1:1234"},
		{"llamacpp", "llama.cpp", "http://127.0.0.1:8080"},
		{"vllm", "vLLM", "http://127.0.0.1:8000"},
	}
}

// Limits of looking for local servers. They answer at once or are not there.
const (
	probeTimeout  = 500 * time.Millisecond
	probeBytesMax = 1 << 20
	probeAge      = time.Minute // how long an answer is believed
	servedMax     = 500         // models of one server
)

// served is what a server says about one of its models.
type served struct {
	server Server
	id     string
	window int // 0 = it does not say
}

// scout looks for local servers and remembers what it found for a minute.
type scout struct {
	servers []Server
	client  *http.Client

	mu    sync.Mutex // held while looking: those who ask meanwhile want the same answer
	found []served
	until time.Time
}

// look returns the models of the servers that answer, in the order of servers.
func (s *scout) look(ctx context.Context) []served {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return s.found
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	lists := make([][]served, len(s.servers))
	var wg sync.WaitGroup
	for i, server := range s.servers {
		wg.Go(func() { lists[i] = ask(within, s.client, server, nil) })
	}
	wg.Wait()
	var found []served
	for _, l := range lists {
		found = append(found, l...)
	}
	if ctx.Err() != nil { // the caller left: what was found is not the whole
		return found
	}
	s.found, s.until = found, time.Now().Add(probeAge)
	return found
}

// windows remembers for a minute what configured servers say of their models.
type windows struct {
	mu    sync.Mutex // not held while asking
	found map[string]heard
}

type heard struct {
	list  []served
	until time.Time
}

// correct takes the window of a model from its server, where that says a smaller one
// or nothing was configured: a prompt that does not fit costs a call.
func (c *Catalog) correct(ctx context.Context, e *entry) {
	header, err := c.header(e.Entry)
	if err != nil {
		return
	}
	for _, s := range c.said(ctx, e.URL, header) {
		if s.id == e.ID && s.window > 0 && (e.info.Guessed || s.window < e.info.WindowTokens) {
			e.info.WindowTokens, e.info.Guessed = s.window, false
			e.info.OutputTokensMax = min(e.info.OutputTokensMax, s.window)
		}
	}
}

func (c *Catalog) said(ctx context.Context, url string, header http.Header) []served {
	c.windows.mu.Lock()
	known, ok := c.windows.found[url]
	c.windows.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.list
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	list := ask(within, c.client, Server{URL: url}, header)
	if ctx.Err() == nil {
		c.windows.mu.Lock()
		c.windows.found[url] = heard{list, time.Now().Add(probeAge)}
		c.windows.mu.Unlock()
	}
	return list
}

// header is what a server wants to see of an entry's key.
func (c *Catalog) header(e Entry) (http.Header, error) {
	key, err := c.key(e)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if !key.IsZero() {
		header.Set("Authorization", "Bearer "+key.Reveal())
	}
	for name, value := range e.Headers {
		header.Set(name, value)
	}
	return header, nil
}

// ask returns the models of a server, none if it does not answer as a model
// server does: anything may listen on these ports.
func ask(ctx context.Context, client *http.Client, server Server, header http.Header) []served {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, compat.ModelsURL(server.URL), nil)
	if err != nil {
		return nil
	}
	maps.Copy(req.Header, header)
	res, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, probeBytesMax))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return parseServed(server, body)
}

// parseServed reads a list of models. Windows have a name at each server.
func parseServed(server Server, body []byte) []served {
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			VLLM    int    `json:"max_model_len"`
			Loaded  int    `json:"loaded_context_length"`
			Context int    `json:"context_length"`
			Meta    struct {
				Window int `json:"n_ctx"`
			} `json:"meta"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil {
		return nil
	}
	var found []served
	for _, m := range list.Data {
		if m.ID == "" || len(m.ID) > 256 || !converses(m.ID) || len(found) == servedMax {
			continue
		}
		window := first(m.VLLM, m.Loaded, m.Meta.Window, m.Context)
		found = append(found, served{server: server, id: m.ID, window: max(0, window)})
	}
	return found
}

// converses leaves out models that make vectors, scores or sounds.
func converses(id string) bool {
	id = strings.ToLower(id)
	for _, part := range []string{"embed", "rerank", "whisper", "tts", "bge-", "minilm"} {
		if strings.Contains(id, part) {
			return false
		}
	}
	return true
}
