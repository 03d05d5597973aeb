package thread

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Blobs returns the hashes of the blobs that the event names: in fields "blob"
// and "…_blob", and the "hash" of media. What a model or a tool wrote as JSON is
// not looked into. A blob of JSON may name others.
func (e Event) Blobs() []string {
	if _, is := e.Body.(Unknown); is || e.Body == nil {
		return nil
	}
	return blobsOf(reflect.ValueOf(e.Body), nil)
}

func blobsOf(v reflect.Value, found []string) []string {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			found = blobsOf(v.Elem(), found)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() || v.Type().Elem().Kind() == reflect.Uint8 {
			return found
		}
		for i := range v.Len() {
			found = blobsOf(v.Index(i), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "blob" && name != "hash" && !strings.HasSuffix(name, "_blob") {
				found = blobsOf(v.Field(i), found)
			} else if v.Field(i).Kind() == reflect.String && v.Field(i).Len() > 0 {
				found = append(found, v.Field(i).String())
			}
		}
	}
	return found
}
