package openai

import (
	"encoding/json"
	"slices"
)

// strict reports whether a schema qualifies for the vendor's strict mode:
// closed objects whose properties are all required, and a few keywords. Others
// go out as they are, and the agent checks what comes back in either case.
func strict(schema json.RawMessage) bool {
	var root map[string]any
	return json.Unmarshal(schema, &root) == nil && root["type"] == "object" && qualifies(root, 0)
}

// schemaDepthMax is how deep the vendor lets objects nest, with a level for
// each list between them.
const schemaDepthMax = 10

func qualifies(v any, depth int) bool {
	s, ok := v.(map[string]any)
	if !ok || depth > schemaDepthMax {
		return false
	}
	for key, value := range s {
		switch key {
		case "type", "title", "description", "enum", "const", "required", "additionalProperties":
		case "properties":
		case "items":
			if !qualifies(value, depth+1) {
				return false
			}
		case "anyOf":
			list, ok := value.([]any)
			if !ok || !all(list, depth+1) {
				return false
			}
		default:
			return false
		}
	}
	if s["type"] != "object" {
		return s["properties"] == nil
	}
	return closed(s, depth)
}

func all(list []any, depth int) bool {
	return !slices.ContainsFunc(list, func(v any) bool { return !qualifies(v, depth) })
}

// closed reports whether an object allows what it names, no more and no less.
func closed(s map[string]any, depth int) bool {
	properties, ok := s["properties"].(map[string]any)
	if !ok || s["additionalProperties"] != false {
		return false
	}
	required, _ := s["required"].([]any) // absent: none
	for name, value := range properties {
		if !slices.Contains(required, any(name)) || !qualifies(value, depth+1) {
			return false
		}
	}
	return len(required) == len(properties)
}
