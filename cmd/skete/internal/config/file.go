package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/skete-dev/skete/errs"
)

// fileBytesMax bounds a configuration file.
const fileBytesMax = 1 << 20

func readFile(c *Config, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot read the configuration file %s", filepath.Base(path)).
			WithHint("check --config and SKETE_CONFIG")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "cannot read the configuration file %s", filepath.Base(path))
	}
	if len(data) > fileBytesMax {
		return errs.New(errs.Invalid, "the configuration file %s is larger than %d bytes", filepath.Base(path), fileBytesMax)
	}
	return parse(c, filepath.Base(path), data)
}

// parse reads YAML over c. name is for messages.
func parse(c *Config, name string, data []byte) error {
	if strings.ContainsAny(string(data), "&*") && hasAlias(string(data)) {
		return errs.New(errs.Invalid, "%s: anchors and aliases are not taken", name)
	}
	var whole any
	if yaml.Unmarshal(data, &whole) == nil && whole == nil {
		return nil // nothing but comments; decoding it would clear c
	}
	d := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	err := d.Decode(c)
	if err == nil {
		if err = d.Decode(new(Config)); errors.Is(err, io.EOF) {
			return nil
		}
		return errs.New(errs.Invalid, "%s: there is a second document behind ---", name)
	}
	where, text := name, err.Error()
	if y, ok := errors.AsType[yaml.Error](err); ok {
		text = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			where = fmt.Sprintf("%s:%d:%d", name, t.Position.Line, t.Position.Column)
		}
	}
	return errs.Wrap(errs.Invalid, err, "%s: %s", where, text).WithHint("the keys are: %s", strings.Join(Keys(), " "))
}

// hasAlias reports whether a line uses YAML's references, with which a small
// file can unfold to a huge one. A & or * inside a quoted value is fine.
func hasAlias(s string) bool {
	for line := range strings.Lines(s) {
		_, value, _ := strings.Cut(line, ":")
		for _, word := range []string{strings.TrimSpace(line), strings.TrimSpace(value), strings.TrimPrefix(strings.TrimSpace(line), "- ")} {
			if strings.HasPrefix(word, "&") || strings.HasPrefix(word, "*") {
				return true
			}
		}
	}
	return false
}

// field is one scalar or list setting.
type field struct {
	key string // limits.memory_mb
	v   reflect.Value
}

func (f field) env() string {
	return "SKETE_" + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

func (f field) text() string { return fmt.Sprint(f.v.Interface()) }

func (f field) negative() bool {
	switch f.v.Kind() {
	case reflect.Int, reflect.Int64:
		return f.v.Int() < 0
	case reflect.Float64:
		return f.v.Float() < 0 || f.v.Float() != f.v.Float()
	}
	return false
}

// set parses a value as the environment and flags write it.
func (f field) set(s string) error {
	var err error
	switch p := f.v.Addr().Interface().(type) {
	case *string:
		*p = s
	case *[]string:
		*p = words(s)
	case *bool:
		*p, err = strconv.ParseBool(s)
	case *int:
		*p, err = strconv.Atoi(s)
	case *int64:
		*p, err = strconv.ParseInt(s, 10, 64)
	case *float64:
		*p, err = strconv.ParseFloat(s, 64)
	case *Duration:
		return p.UnmarshalYAML([]byte(s))
	default:
		return fmt.Errorf("a value of kind %s cannot be set", f.v.Kind())
	}
	if err != nil {
		return fmt.Errorf("%.40q is not a %s", s, f.v.Kind())
	}
	return nil
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// flatten lists all settings of c that are one value or a list of words;
// setting one changes c. The lists of models, of MCP servers and of the pool are for the file.
func flatten(c *Config) []field { return flattenOf(c) }

// flattenOf is flatten for any struct of settings; it takes a pointer to one.
func flattenOf(c any) []field {
	var fields []field
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			key := prefix + v.Type().Field(i).Tag.Get("yaml")
			if v.Field(i).Kind() == reflect.Struct {
				walk(key+".", v.Field(i))
				continue
			}
			if t := v.Field(i).Type(); t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.String {
				continue
			}
			fields = append(fields, field{key: key, v: v.Field(i)})
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	return fields
}

// Keys lists all keys in the order of their documentation.
func Keys() []string {
	var keys []string
	for _, f := range flatten(&Config{}) {
		keys = append(keys, f.key)
	}
	return keys
}

// groups are the beginnings of variables that belong to skete alone.
var groups = []string{"SKETE_LIMITS_", "SKETE_DEFAULTS_", "SKETE_STORE_", "SKETE_LOG_", "SKETE_SECRETS_", "SKETE_REMOTE_", "SKETE_RUNLOOP_"}

func setEnv(fields []field, env []string) error {
	byName := map[string]field{}
	for _, f := range fields {
		byName[f.env()] = f
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		f, ok := byName[name]
		if !ok {
			if err := strange(name); err != nil {
				return err
			}
			continue
		}
		if value == "" && f.v.Kind() != reflect.String {
			continue // as good as not set; an empty string can be meant
		}
		if err := f.set(value); err != nil {
			return errs.New(errs.Invalid, "variable %s: %v", name, err)
		}
	}
	return nil
}

func strange(name string) error {
	for _, g := range groups {
		if strings.HasPrefix(name, g) {
			return errs.New(errs.Invalid, "there is no setting for the variable %.80s", name).
				WithHint("a variable is SKETE_ and the key: limits.memory_mb is SKETE_LIMITS_MEMORY_MB")
		}
	}
	return nil
}

func setPairs(fields []field, pairs []string) error {
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return errs.New(errs.Invalid, "--set %.80q: write key=value", pair)
		}
		if err := setKey(fields, key, value); err != nil {
			return err
		}
	}
	return nil
}

func setKey(fields []field, key, value string) error {
	for _, f := range fields {
		if f.key != key {
			continue
		}
		if err := f.set(value); err != nil {
			return errs.New(errs.Invalid, "%s: %v", key, err)
		}
		return nil
	}
	return errs.New(errs.Invalid, "there is no key %.80q", key).WithHint("the keys are: %s", strings.Join(Keys(), " "))
}
