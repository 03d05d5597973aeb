package inside

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/skete-dev/skete/errs"
)

// methods are what can be called from the other side, by name. Each is a function that
// takes a context and values, and returns values and an error; the values are the
// elements of a JSON array. Functions, because the linker keeps every method of every
// type in a program that looks methods up by name.
type methods map[string]reflect.Value

// add adds functions.
func (m methods) add(name string, f any) { m[name] = reflect.ValueOf(f) }

// call calls one. Invalid: there is none, or the parameters are not its own.
func (m methods) call(ctx context.Context, name string, params json.RawMessage) (any, error) {
	f, ok := m[name]
	if !ok {
		return nil, errs.New(errs.Invalid, "there is no %.40q here", name)
	}
	var given []json.RawMessage
	if err := json.Unmarshal(params, &given); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%s: the parameters cannot be read", name)
	}
	t := f.Type()
	if len(given) != t.NumIn()-1 {
		return nil, errs.New(errs.Invalid, "%s takes %d parameters, not %d", name, t.NumIn()-1, len(given))
	}
	in := []reflect.Value{reflect.ValueOf(&ctx).Elem()}
	for i, raw := range given {
		v := reflect.New(t.In(i + 1))
		if err := json.Unmarshal(raw, v.Interface()); err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "%s: parameter %d cannot be read", name, i+1)
		}
		in = append(in, v.Elem())
	}
	out := f.Call(in)
	last := len(out) - 1
	if err, failed := reflect.TypeAssert[error](out[last]); failed && err != nil {
		return nil, err
	}
	results := make([]any, last)
	for i := range results {
		results[i] = out[i].Interface()
	}
	return results, nil
}

// remote calls what the other side has added beneath a prefix.
type remote struct {
	p      *peer
	prefix string
}

// call asks for a method. out are pointers to its results.
func (r remote) call(ctx context.Context, method string, in []any, out ...any) error {
	if in == nil {
		in = []any{}
	}
	var results []json.RawMessage
	if err := r.p.Call(ctx, r.prefix+method, in, &results, nil); err != nil {
		return err
	}
	if len(results) != len(out) {
		return errs.New(errs.Invalid, "%s%s has %d results, not %d", r.prefix, method, len(results), len(out))
	}
	for i, raw := range results {
		if err := json.Unmarshal(raw, out[i]); err != nil {
			return errs.Wrap(errs.Invalid, err, "%s%s: result %d cannot be read", r.prefix, method, i+1)
		}
	}
	return nil
}
