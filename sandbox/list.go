package sandbox

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Bounds of a page.
const (
	pageDefault = 100
	pageMax     = 1000
)

// Select picks from all what the filter shows, newest first, and cuts a page.
// Invalid: the filter, or its token.
func (f Filter) Select(all []Info) (Page, error) {
	if err := f.check(); err != nil {
		return Page{}, err
	}
	after := position{at: time.Unix(1<<40, 0)} // before the newest
	if f.PageToken != "" {
		var err error
		if after, err = parseToken(f.PageToken); err != nil {
			return Page{}, err
		}
	}
	found := []Info{}
	for _, i := range all {
		if f.shows(i) && after.compare(positionOf(i)) < 0 {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return positionOf(a).compare(positionOf(b)) })
	size := f.PageSize
	if size == 0 {
		size = pageDefault
	}
	if len(found) <= size {
		return Page{Items: found}, nil
	}
	return Page{Items: found[:size], Next: positionOf(found[size-1]).token()}, nil
}

func (f Filter) check() error {
	var p problems
	p.number("page_size", f.PageSize, 0, pageMax)
	for _, s := range f.States {
		if !slices.Contains([]State{Creating, Running, Paused, Stopped, Failed, Destroyed}, s) {
			p.add("state", "%.40q is no state", s)
		}
	}
	return p.err()
}

func (f Filter) shows(i Info) bool {
	if len(f.States) == 0 && i.State == Destroyed || len(f.States) > 0 && !slices.Contains(f.States, i.State) {
		return false
	}
	for k, v := range f.Metadata {
		if got, ok := i.Spec.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// position is a place in the order of lists: newest first, then by ID.
type position struct {
	at time.Time
	id ID
}

func positionOf(i Info) position { return position{i.CreatedAt, i.ID} }

func (p position) compare(q position) int {
	if c := q.at.Compare(p.at); c != 0 {
		return c
	}
	return cmp.Compare(p.id, q.id)
}

// token writes the position as something to hand out.
func (p position) token() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(b, p.id...))
}

func parseToken(s string) (position, error) {
	bad := errs.New(errs.Invalid, "page_token: not from a page of this server")
	if len(s) > 64 {
		return position{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 8+idLen {
		return position{}, bad
	}
	id, err := ParseID(string(b[8:]))
	if err != nil {
		return position{}, bad
	}
	return position{time.Unix(0, int64(binary.BigEndian.Uint64(b))), id}, nil
}
