package transport

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
)

// checkText refuses text that is not UTF-8, naming the field: encoding/json
// would replace each such byte by U+FFFD without a word. Fields of bytes are
// sent as base64 and may hold anything.
func checkText(v any) error {
	if field := brokenText(reflect.ValueOf(v), ""); field != "" {
		return errs.New(errs.Invalid, "%s is not UTF-8, and cannot be sent as it is", fieldOf(field)).
			WithHint("such bytes can be in files and in the stdin of a command")
	}
	return nil
}

// brokenText is the first field beneath v whose text is not UTF-8, "" = none.
func brokenText(v reflect.Value, field string) string {
	if !v.IsValid() {
		return ""
	}
	switch own := v.Interface().(type) {
	case json.RawMessage:
		return brokenIf(!utf8.Valid(own), field)
	case json.Marshaler, encoding.TextMarshaler:
		return "" // it writes its own text
	}
	switch v.Kind() {
	case reflect.String:
		return brokenIf(!utf8.ValidString(v.String()), field)
	case reflect.Pointer, reflect.Interface:
		return brokenText(v.Elem(), field)
	case reflect.Struct:
		return brokenField(v, field)
	case reflect.Map:
		return brokenEntry(v, field)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if found := brokenText(v.Index(i), fmt.Sprintf("%s[%d]", field, i)); found != "" {
				return found
			}
		}
	}
	return ""
}

func brokenField(v reflect.Value, field string) string {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if f.Anonymous && name == "" {
			name = field // its fields are those of v
		} else {
			name = below(field, name, f.Name)
		}
		if found := brokenText(v.Field(i), name); found != "" {
			return found
		}
	}
	return ""
}

func brokenEntry(v reflect.Value, field string) string {
	for entry := v.MapRange(); entry.Next(); {
		key := entry.Key()
		if key.Kind() == reflect.String && !utf8.ValidString(key.String()) {
			return fmt.Sprintf("the name %.40q in %s", key.String(), brokenIf(true, field))
		}
		if found := brokenText(entry.Value(), below(field, fmt.Sprint(key), "")); found != "" {
			return found
		}
	}
	return ""
}

// below is the path of a field by its name on the wire, or else in Go.
func below(field, name, other string) string {
	if name == "" {
		name = other
	}
	if field == "" {
		return name
	}
	return field + "." + name
}

func brokenIf(broken bool, field string) string {
	switch {
	case !broken:
		return ""
	case field == "":
		return "the text"
	}
	return field
}
