package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
)

func TestOf(t *testing.T) {
	secret := errors.New("open /var/lib/skete/secret: no such file")
	for name, tt := range map[string]struct {
		err  error
		want api.Problem
	}{
		"classified":   {errs.New(errs.NotFound, "no sandbox x").WithHint("list them"), api.Problem{Title: "Not Found", Status: 404, Class: "not_found", Detail: "no sandbox x", Hint: "list them"}},
		"wrapped":      {fmt.Errorf("start x: %w", errs.Wrap(errs.Limit, secret, "too many")), api.Problem{Title: "Too Many Requests", Status: 429, Class: "limit", Detail: "too many"}},
		"unclassified": {secret, api.Problem{Title: "Internal Server Error", Status: 500, Class: "internal", Detail: "internal error; the server's log has the cause"}},
		"too late":     {fmt.Errorf("x: %w", context.DeadlineExceeded), api.Problem{Title: "Gateway Timeout", Status: 504, Class: "unavailable", Detail: "the time for this call ran out"}},
		"at":           {At(412, errs.New(errs.Conflict, "moved")), api.Problem{Title: "Precondition Failed", Status: 412, Class: "conflict", Detail: "moved"}},
		"coded":        {fmt.Errorf("plan: %w", errs.New(errs.Conflict, "no way").WithCode("x_y")), api.Problem{Title: "Conflict", Status: 409, Class: "conflict", Detail: "no way", Code: "x_y"}},
		"tricks":       {errs.New(errs.Invalid, "a\x1b[2Jb\xff\u009bc\nd"), api.Problem{Title: "Bad Request", Status: 400, Class: "invalid", Detail: "a\uFFFD[2Jb\uFFFD\uFFFDc d"}},
	} {
		if diff := cmp.Diff(tt.want, Of(tt.err).Problem); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if Of(nil) != nil {
		t.Error("no error is no problem")
	}
	if d := Of(errs.New(errs.Invalid, "%s", strings.Repeat("x", 1<<20))).Detail; len(d) > detailBytesMax+10 {
		t.Errorf("a detail of %d bytes", len(d))
	}
}

// Clients rely on codes, so the documentation names each.
func TestOf_codesAreDocumented(t *testing.T) {
	field, _ := reflect.TypeFor[api.Problem]().FieldByName("Code")
	for _, code := range errs.Codes {
		if !regexp.MustCompile(`\b` + code + `\b`).MatchString(field.Tag.Get("doc")) {
			t.Errorf("%s is not in the documentation of a problem's code", code)
		}
	}
}

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	p := *Of(errs.New(errs.Limit, "slow down"))
	p.RetryAfter = 1500 * time.Millisecond
	Write(w, fmt.Errorf("wrapped: %w", &p))
	var got api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	h := w.Result().Header
	if w.Code != 429 || got.Class != "limit" || h.Get("Retry-After") != "2" || h.Get("Content-Type") != contentType || h.Get("Content-Length") != "" {
		t.Errorf("%d %v %+v", w.Code, h, got)
	}
}

func TestFromHuma(t *testing.T) {
	for _, tt := range []struct {
		status, want int
		class        string
	}{{422, 400, "invalid"}, {415, 415, "invalid"}, {413, 413, "invalid"}, {404, 404, "not_found"}, {408, 408, "unavailable"}, {500, 500, "internal"}} {
		p := fromHuma(tt.status, "text").(*Error)
		if p.Status != tt.want || p.Class != tt.class {
			t.Errorf("%d became %+v", tt.status, p.Problem)
		}
	}
	p := fromHuma(500, "unexpected", errors.New("/secret/path")).(*Error)
	if strings.Contains(p.Detail, "secret") || len(p.Errors) != 0 || !strings.Contains(p.Unwrap().Error(), "/secret/path") {
		t.Errorf("%+v, for the log %v", p.Problem, p.Unwrap())
	}
}

// What is wrong is repeated, and not what stands beside it.
func TestFromHuma_repeats(t *testing.T) {
	for _, c := range []struct{ value, want any }{
		{"x", "x"},
		{5.5, 5.5},
		{strings.Repeat("x", valueBytesMax), nil},
		{map[string]any{"env": map[string]any{"TOKEN": "hunter2"}, "mystery": 1}, nil},
		{[]any{"hunter2"}, nil},
	} {
		p := fromHuma(400, "validation failed", &huma.ErrorDetail{Message: "it is wrong", Location: "body", Value: c.value}).(*Error)
		if d := cmp.Diff([]api.FieldError{{Message: inWords("it is wrong"), Location: "body", Value: c.want}}, p.Errors); d != "" {
			t.Error(d)
		}
	}
}
