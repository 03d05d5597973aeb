package definition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schemaWalker looks at what a schema can reach before it is compiled: how much that
// is, and that it is inside.
type schemaWalker struct {
	doc  any
	cost int
	open map[string]bool // references that are being followed
}

var (
	single = []string{
		"items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
	}
	several  = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	named    = []string{"properties", "patternProperties", "dependentSchemas", "dependencies"}
	foreign  = []string{"$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"}
	definers = []string{"$defs", "definitions"}
)

func (w *schemaWalker) walk(schema any, depth int) error {
	table, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if w.cost++; w.cost > costMax {
		return fmt.Errorf("reaches more than %d parts", costMax)
	}
	if depth > depthMax {
		return fmt.Errorf("is nested deeper than %d", depthMax)
	}
	for _, key := range foreign {
		if _, has := table[key].(string); has {
			return fmt.Errorf("uses %s; only references to its own parts (#/…) are taken", key)
		}
	}
	for _, key := range single {
		if err := w.walk(table[key], depth+1); err != nil {
			return err
		}
	}
	for _, key := range several {
		list, _ := table[key].([]any)
		for _, sub := range list {
			if err := w.walk(sub, depth+1); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Concat(named, definers) {
		if err := w.walkAll(table[key], depth); err != nil {
			return err
		}
	}
	return w.follow(table, depth)
}

func (w *schemaWalker) walkAll(table any, depth int) error {
	subs, _ := table.(map[string]any)
	for _, sub := range subs {
		if err := w.walk(sub, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// follow walks what $ref points to.
func (w *schemaWalker) follow(table map[string]any, depth int) error {
	ref, has := table["$ref"].(string)
	if !has {
		return nil
	}
	if w.open[ref] || ref == "#" {
		return fmt.Errorf("refers to itself by %.80q", ref)
	}
	target, ok := w.find(ref)
	if !ok {
		return fmt.Errorf("refers to %.80q, which is not a part of it", ref)
	}
	w.open[ref] = true
	defer delete(w.open, ref)
	return w.walk(target, depth+1)
}

// find resolves #/a/b.
func (w *schemaWalker) find(ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok || strings.Contains(pointer, "%") {
		return nil, false
	}
	at := w.doc
	for part := range strings.SplitSeq(pointer, "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch here := at.(type) {
		case map[string]any:
			if at, ok = here[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(here) {
				return nil, false
			}
			at = here[i]
		default:
			return nil, false
		}
	}
	return at, true
}
