package anthropic

import "encoding/json"

// schemaFits reports whether the vendor takes a schema for its structured
// output: closed objects and a few keywords. Others are not sent; the agent
// checks the answer in either case.
func schemaFits(schema json.RawMessage) bool {
	var root map[string]any
	return json.Unmarshal(schema, &root) == nil && root["type"] == "object" && fits(root, 0)
}

// schemaDepthMax bounds the nesting of a schema.
const schemaDepthMax = 64

func fits(v any, depth int) bool {
	s, ok := v.(map[string]any)
	if !ok || depth > schemaDepthMax {
		return false
	}
	for key, value := range s {
		switch key {
		case "type", "title", "description", "enum", "const", "required", "default":
		case "additionalProperties":
			if value != false {
				return false
			}
		case "properties", "$defs":
			if !allFit(value, depth) {
				return false
			}
		case "items":
			if !fits(value, depth+1) {
				return false
			}
		case "anyOf", "allOf":
			list, ok := value.([]any)
			if !ok {
				return false
			}
			for _, item := range list {
				if !fits(item, depth+1) {
					return false
				}
			}
		default: // references may be recursive, numbers bounded: refused
			return false
		}
	}
	return s["type"] != "object" || s["additionalProperties"] == false
}

func allFit(v any, depth int) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for _, item := range m {
		if !fits(item, depth+1) {
			return false
		}
	}
	return true
}
