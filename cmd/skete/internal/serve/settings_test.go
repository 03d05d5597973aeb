package serve

import (
	"reflect"
	"testing"

	"github.com/skete-dev/skete/cmd/skete/internal/config"
)

// fill sets every field of a struct of numbers and texts to something.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Float64:
			f.SetFloat(float64(i + 1))
		default:
			f.SetString("x")
		}
	}
}

// TestSettings_reachTheManager: whatever can be configured of limits and
// defaults is in force, and whatever is in force can be configured.
func TestSettings_reachTheManager(t *testing.T) {
	var l config.Limits
	var d config.Defaults
	fill(reflect.ValueOf(&l).Elem())
	fill(reflect.ValueOf(&d).Elem())
	for _, pair := range [][2]any{{l, limits(l)}, {d, defaults(d)}} {
		from, to := reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])
		if from.NumField() != to.NumField() {
			t.Errorf("%s has %d fields, %s %d", from.Type(), from.NumField(), to.Type(), to.NumField())
		}
		for i := range to.NumField() {
			if to.Field(i).IsZero() {
				t.Errorf("%s.%s cannot be configured", to.Type(), to.Type().Field(i).Name)
			}
		}
	}
}

// A server without a configuration keeps one machine of a kind that was asked for.
func TestSettings_thePoolKeepsOne(t *testing.T) {
	if c := warmConfig(config.Builtin()); c.DemandMax != 1 || len(c.Sizes) != 0 {
		t.Errorf("%+v", c)
	}
}
