package secret

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// This file keeps what token endpoints (OAuth) have given sandboxes, which see a placeholder of
// each and never the token.

const (
	// TokensMax is how many are kept of a sandbox; the oldest goes first.
	TokensMax = 64
	// TokenMax is how long one may be: it is sent in a header.
	TokenMax = 16 << 10

	tokenForm      = 1
	tokenRandom    = 20 // bytes
	tokenWord      = "skete-token-"
	accessDefault  = time.Hour
	accessMin      = time.Minute
	accessMax      = 24 * time.Hour
	refreshLife    = 30 * 24 * time.Hour
	hiddenLife     = 24 * time.Hour // of one that has ended: its host may take it for longer than it said
	tokenHashBytes = 20
	// readAgain is how long what was read is used again. This server's own writes count at once;
	// it is another one's, which ends a secret or sweeps, that are seen as late as this.
	readAgain = 5 * time.Second
)

var tokenLetters = base32.StdEncoding.WithPadding(base32.NoPadding)

// Token is one that is kept.
type Token struct {
	Secret      string // by which it was got
	Placeholder string // the sandbox sees
	Value       Value
	forms       [][]byte // nil = not made yet
}

// Forms are the texts in which a token may come back. They are not to be changed.
func (t Token) Forms() [][]byte {
	if t.forms != nil {
		return t.forms
	}
	var forms [][]byte
	for _, form := range formsOf(t.Value.text) {
		forms = append(forms, []byte(form))
	}
	return forms
}

// NewToken is one that a token endpoint has just answered.
type NewToken struct {
	Value   Value
	Refresh bool          // it gets others
	Life    time.Duration // as it is said; 0 = nothing is
}

func (n NewToken) life() time.Duration {
	switch {
	case n.Refresh:
		return refreshLife
	case n.Life == 0:
		return accessDefault
	}
	return min(max(n.Life, accessMin), accessMax)
}

// tokenRecord is a token in the store. Its key is the sandbox and a hash of the placeholder.
type tokenRecord struct {
	V      int       `json:"v"`
	Tenant string    `json:"tenant"`
	Secret string    `json:"secret"`
	Made   time.Time `json:"made"` // the secret: another one of the same name has none of its tokens
	At     time.Time `json:"at"`
	Ends   time.Time `json:"ends"`
	Sealed []byte    `json:"sealed"`
}

// about is what a token is sealed to.
func (r tokenRecord) about(key string) []byte {
	return fmt.Appendf(nil, "skete token %s %s %s %d %d", key, r.Tenant, r.Secret, r.Made.UnixNano(), r.Ends.UnixNano())
}

// TokenConfig of Tokens.
type TokenConfig struct {
	KV     kv.Store // a bucket of its own
	Sealer Sealer
	Now    func() time.Time // nil = time.Now
}

// Tokens has the tokens of all sandboxes. Safe for concurrent use.
type Tokens struct {
	c      TokenConfig
	mu     sync.Mutex    // is held to add: so that the bound holds
	writes atomic.Uint64 // counts what was written: what was read before the last one is stale
}

// NewTokens returns what a bucket keeps.
func NewTokens(c TokenConfig) *Tokens {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Tokens{c: c}
}

// SandboxTokens are those of one sandbox. What it has read it uses again for a moment, as each
// request of a program asks. Safe for concurrent use.
type SandboxTokens struct {
	all             *Tokens
	tenant, sandbox string
	last            atomic.Pointer[reading]
}

// reading is what was read of a sandbox. It is not changed any more.
type reading struct {
	at     time.Time
	writes uint64 // Tokens.writes before
	list   []kept
}

// Of returns those of a sandbox, by its ID. The caller keeps it for as long as the sandbox is
// this server's.
func (t *Tokens) Of(tenant, sandbox string) *SandboxTokens {
	return &SandboxTokens{all: t, tenant: tenant, sandbox: sandbox}
}

// kept is a record as it was read.
type kept struct {
	tokenRecord
	key      string
	revision uint64
	token    Token
}

// List returns the tokens that were got by secrets as they are now: those that are live, and
// those that are over, which are still to be hidden and not to be exchanged.
func (s *SandboxTokens) List(ctx context.Context, by ...Held) (live, over []Token, err error) {
	all, err := s.recent(ctx)
	for _, k := range all {
		switch {
		case !slices.ContainsFunc(by, k.gotBy):
		case s.all.over(k.tokenRecord):
			over = append(over, k.token)
		default:
			live = append(live, k.token)
		}
	}
	return live, over, err
}

// recent returns what was read, if nothing was written since.
func (s *SandboxTokens) recent(ctx context.Context) ([]kept, error) {
	r := reading{at: s.all.c.Now(), writes: s.all.writes.Load()}
	if old := s.last.Load(); old != nil && old.writes == r.writes {
		if age := r.at.Sub(old.at); age >= 0 && age < readAgain {
			return old.list, nil
		}
	}
	var err error
	if r.list, err = s.read(ctx); err == nil {
		s.last.Store(&r)
	}
	return r.list, err
}

// gotBy reports whether a token was got by a secret as it is now.
func (k kept) gotBy(h Held) bool {
	return k.token.Placeholder != "" && k.Secret == h.Name && k.Made.Equal(h.made)
}

func (t *Tokens) over(r tokenRecord) bool { return !t.c.Now().Before(r.Ends) }

// gone reports whether a token need not be hidden any more.
func (t *Tokens) gone(r tokenRecord) bool { return !t.c.Now().Before(r.Ends.Add(hiddenLife)) }

// read reads all of the sandbox, the oldest first. What cannot be opened has no token.
func (s *SandboxTokens) read(ctx context.Context) ([]kept, error) {
	var list []kept
	err := s.all.c.KV.List(ctx, s.sandbox+"/", func(key string, data []byte, revision uint64) error {
		k := kept{key: key, revision: revision}
		if json.Unmarshal(data, &k.tokenRecord) == nil && k.V == tokenForm && k.Tenant == s.tenant {
			if plain, err := s.all.c.Sealer.Open(ctx, k.Sealed, k.about(key)); err == nil {
				word, value, _ := strings.Cut(string(plain), " ")
				k.token = Token{Secret: k.Secret, Placeholder: word, Value: Value{value}}
				k.token.forms = k.token.Forms()
			}
		}
		list = append(list, k)
		return nil
	})
	slices.SortFunc(list, func(a, b kept) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.key, b.key)) })
	return list, err
}

// Keep keeps tokens that were got by a secret and returns what stands for each. When it
// returns they survive the server's death. One that is kept already has the placeholder that
// it had, for longer.
func (s *SandboxTokens) Keep(ctx context.Context, by Held, fresh []NewToken) ([]Token, error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	defer s.all.writes.Add(1)
	all, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	same := make([]*kept, len(fresh))
	for i, n := range fresh {
		if at := slices.IndexFunc(all, func(k kept) bool { return k.gotBy(by) && !s.all.over(k.tokenRecord) && k.token.Value == n.Value }); at >= 0 {
			same[i] = &all[at]
		}
	}
	if err := s.makeRoom(ctx, all, same, TokensMax-len(fresh)); err != nil {
		return nil, err
	}
	var list []Token
	for i, n := range fresh {
		t, err := s.put(ctx, by, n, same[i])
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// makeRoom removes what is gone, then what is over, then the oldest, so that no more than room
// are left beside those that are to stay.
func (s *SandboxTokens) makeRoom(ctx context.Context, all []kept, stay []*kept, room int) error {
	var others []kept
	for i, k := range all {
		if !slices.Contains(stay, &all[i]) {
			others = append(others, k)
		}
	}
	slices.SortStableFunc(others, func(a, b kept) int {
		switch x, y := s.all.over(a.tokenRecord), s.all.over(b.tokenRecord); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	most := len(others) - room
	for i, k := range others {
		if i < most || s.all.gone(k.tokenRecord) {
			if err := s.all.c.KV.Delete(ctx, k.key, k.revision); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a token: a new one, or one that is there.
func (s *SandboxTokens) put(ctx context.Context, by Held, n NewToken, old *kept) (Token, error) {
	now := s.all.c.Now().UTC()
	r := tokenRecord{V: tokenForm, Tenant: s.tenant, Secret: by.Name, Made: by.made.UTC(), At: now, Ends: now.Add(n.life())}
	t := Token{Secret: by.Name, Value: n.Value}
	if old != nil {
		t.Placeholder = old.token.Placeholder
	} else {
		b := make([]byte, tokenRandom)
		_, _ = rand.Read(b)
		t.Placeholder = tokenWord + strings.ToLower(tokenLetters.EncodeToString(b))
	}
	key := s.sandbox + "/" + tokenHash(t.Placeholder)
	var err error
	if r.Sealed, err = s.all.c.Sealer.Seal(ctx, []byte(t.Placeholder+" "+n.Value.text), r.about(key)); err != nil {
		return t, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return t, err
	}
	if old != nil {
		_, err = s.all.c.KV.Update(ctx, key, data, old.revision)
	} else {
		_, err = s.all.c.KV.Create(ctx, key, data)
	}
	return t, err
}

func tokenHash(placeholder string) string {
	sum := sha256.Sum256([]byte(placeholder))
	return hex.EncodeToString(sum[:tokenHashBytes])
}

// EraseSandbox removes all of a sandbox.
func (t *Tokens) EraseSandbox(ctx context.Context, sandbox string) error {
	return t.remove(ctx, sandbox+"/", func(string, tokenRecord) bool { return true })
}

// EraseTenant removes all of a tenant's sandboxes.
func (t *Tokens) EraseTenant(ctx context.Context, tenant string) error {
	return t.remove(ctx, "", func(_ string, r tokenRecord) bool { return r.Tenant == tenant })
}

// EraseSecret removes all that were got by a secret.
func (t *Tokens) EraseSecret(ctx context.Context, tenant, name string) error {
	return t.remove(ctx, "", func(_ string, r tokenRecord) bool { return r.Tenant == tenant && r.Secret == name })
}

// Sweep removes what is gone, and what is of sandboxes that are not known.
func (t *Tokens) Sweep(ctx context.Context, known func(sandbox string) bool) error {
	return t.remove(ctx, "", func(sandbox string, r tokenRecord) bool {
		return !known(sandbox) || r.V == tokenForm && t.gone(r)
	})
}

func (t *Tokens) remove(ctx context.Context, prefix string, gone func(sandbox string, r tokenRecord) bool) error {
	defer t.writes.Add(1)
	over := map[string]uint64{}
	err := t.c.KV.List(ctx, prefix, func(key string, data []byte, revision uint64) error {
		var r tokenRecord
		_ = json.Unmarshal(data, &r) // what cannot be read belongs to its sandbox alone
		if sandbox, _, _ := strings.Cut(key, "/"); gone(sandbox, r) {
			over[key] = revision
		}
		return nil
	})
	for key, revision := range over {
		if err == nil {
			err = t.c.KV.Delete(ctx, key, revision)
		}
		if errs.Is(err, errs.Conflict) { // it was renewed meanwhile: the next sweep sees it
			err = nil
		}
	}
	return err
}
