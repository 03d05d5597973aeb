package server

import (
	"net/http"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// collection is what a tenant has of one kind, each by its name: skills, secrets. Reading
// needs the right read, the rest write.
type collection struct{ kind, path string }

// all is an operation on the collection.
func (c collection) all(method, id, summary string) route.Operation {
	scope := key.Write
	if method == http.MethodGet {
		scope = key.Read
	}
	return route.Operation{Method: method, Path: c.path, Scope: scope, ID: id, Tag: c.kind, Summary: summary}
}

// one is an operation on one of them.
func (c collection) one(method, id, summary string) route.Operation {
	o := c.all(method, id, summary)
	o.Path += "/{name}"
	return o
}

// opened returns the store of a kind. Unsupported: the server has none.
func opened[T comparable](store T, kind string) (T, error) {
	var none T
	if store == none {
		return none, errs.New(errs.Unsupported, "this server keeps no %s", kind)
	}
	return store, nil
}
