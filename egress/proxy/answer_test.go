package proxy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skete-dev/skete/secret"
)

// tokensOf numbers what it is to keep.
func tokensOf(got *[]secret.NewToken) func([]secret.NewToken) ([]secret.Token, error) {
	return func(fresh []secret.NewToken) (list []secret.Token, _ error) {
		*got = append(*got, fresh...)
		for i, n := range fresh {
			list = append(list, secret.Token{Value: n.Value, Placeholder: fmt.Sprintf("PLACEHOLDER-%d", i)})
		}
		return list, nil
	}
}

func jwt(claims string) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(`{"alg":"RS256"}`)) + "." + e([]byte(claims)) + "." + e([]byte("the signature of the host"))
}

func TestSealAnswer(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"two tokens":       {`{"access_token":"real/access+token", "refresh_token":"real-refresh", "expires_in":3600}`, `{"access_token":"PLACEHOLDER-0","refresh_token":"PLACEHOLDER-1","expires_in":3600}`},
		"nothing to hide":  {` {"error": "invalid_grant",  "n":1.0e2}`, ` {"error": "invalid_grant",  "n":1.0e2}`},
		"empty and null":   {`{"access_token":"", "refresh_token":null}`, `{"access_token":"", "refresh_token":null}`},
		"a copy":           {`{"access_token":"real-access","a":["x",{"b":"real-access"}]}`, `{"access_token":"PLACEHOLDER-0","a":["x",{"b":"PLACEHOLDER-0"}]}`},
		"in a text":        {`{"access_token":"real-access","uri":"https://x/?t=real-access&y=<"}`, `{"access_token":"PLACEHOLDER-0","uri":"https://x/?t=PLACEHOLDER-0&y=<"}`},
		"another user's":   {`{"ok":true,"authed_user":{"access_token":"real-access"}}`, `{"ok":true,"authed_user":{"access_token":"PLACEHOLDER-0"}}`},
		"another case":     {`{"Access_Token":"real-access"}`, `{"Access_Token":"PLACEHOLDER-0"}`},
		"escaped":          {`{"\u0061ccess_token":"real\/access\u002btoken","a":"real\u002faccess+token"}`, `{"access_token":"PLACEHOLDER-0","a":"PLACEHOLDER-0"}`},
		"one in the other": {`{"access_token":"real-access","refresh_token":"real-access-2"}`, `{"access_token":"PLACEHOLDER-0","refresh_token":"PLACEHOLDER-1"}`},
		"the same":         {`{"access_token":"real-access","refresh_token":"real-access"}`, `{"access_token":"PLACEHOLDER-0","refresh_token":"PLACEHOLDER-0"}`},
		"no JWT":           {`{"id_token":"real-access"}`, `{"id_token":"PLACEHOLDER-0"}`},
		"numbers stay":     {`{"access_token":"real-access","n":1.00,"m":12345678901234567890}`, `{"access_token":"PLACEHOLDER-0","n":1.00,"m":12345678901234567890}`},
		"one that it has":  {`{"error":"bad","what":"old\u002dtoken"}`, `{"error":"bad","what":"OLD"}`},
	} {
		var got []secret.NewToken
		out, _, err := sealAnswer([]byte(c.body), []secret.Token{{Value: secret.New("old-token"), Placeholder: "OLD"}}, tokensOf(&got))
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, out, err, c.want)
		}
	}
}

// Who the user is can still be read, and proves nothing; unless it says a token.
func TestSealAnswer_idToken(t *testing.T) {
	var got []secret.NewToken
	real := jwt(`{"sub":"me"}`)
	out, hidden, err := sealAnswer([]byte(`{"id_token":"`+real+`","again":"`+real+`"}`), nil, tokensOf(&got))
	var o map[string]string
	if err == nil {
		err = json.Unmarshal(out, &o)
	}
	end := strings.LastIndex(real, ".") + 1
	if err != nil || len(got) != 0 || !strings.HasPrefix(o["id_token"], real[:end]) || len(o["id_token"]) <= end+20 || strings.Contains(string(out), real[end:]) || o["again"] != o["id_token"] {
		t.Errorf("%s, %v, %v", out, got, err)
	}
	if len(hidden) != 1 || hidden[0].Value.Reveal() != real {
		t.Errorf("hidden elsewhere: %d", len(hidden))
	}
	out, _, err = sealAnswer([]byte(`{"id_token":"`+jwt(`{"at":"real-access"}`)+`","access_token":"real-access"}`), nil, tokensOf(&got))
	if want := `{"id_token":"PLACEHOLDER-1","access_token":"PLACEHOLDER-0"}`; err != nil || string(out) != want {
		t.Errorf("%s, %v, not %s", out, err, want)
	}
}

func TestSealAnswer_lives(t *testing.T) {
	for said, want := range map[string]string{`3600`: "1h0m0s", `"60"`: "1m0s", `0.5`: "500ms", `-1`: "0s", `"soon"`: "0s", `1e300`: "596523h14m8s", `null`: "0s", `{}`: "0s"} {
		var got []secret.NewToken
		_, _, err := sealAnswer([]byte(`{"expires_in":`+said+`,"access_token":"real-access","refresh_token":"real-refresh"}`), nil, tokensOf(&got))
		if err != nil || len(got) != 2 || got[0].Life.String() != want || got[0].Refresh || !got[1].Refresh {
			t.Errorf("%s: %+v, %v", said, got, err)
		}
	}
}

// badAnswers are none that is passed on.
var badAnswers = map[string]struct{ body, why string }{
	"twice":                {`{"access_token":"real-access-1","access_token":"real-access-2"}`, "twice"},
	"twice in other cases": {`{"access_token":"real-access-1","ACCESS_TOKEN":"real-access-2"}`, "twice"},
	"twice, escaped":       {`{"access_token":"real-access-1","\u0061ccess_token":"real-access-2"}`, "twice"},
	"a number":             {`{"access_token":12345678}`, "is no text"},
	"a list":               {`{"refresh_token":["real-refresh"]}`, "is no text"},
	"a short one":          {`{"access_token":"short"}`, "5 bytes"},
	"a long one":           {`{"access_token":"` + strings.Repeat("x", secret.TokenMax+1) + `"}`, "can be hidden"},
	"in a name":            {`{"access_token":"real-access","real-access":1}`, "cannot be hidden"},
	"its own name":         {`{"access_token":"access_token"}`, "cannot be hidden"},
	"in a number":          {`{"access_token":"12345678","n":112345678}`, "cannot be hidden"},
	"too many":             {`{"a":[` + strings.TrimSuffix(strings.Repeat(`{"access_token":"real-access-%"},`, 9), ",") + `]}`, "more than 8"},
	"too deep":             {`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "too deeply"},
	"a byte order mark":    {"\ufeff" + `{"access_token":"real-access"}`, "no JSON object"},
	"two objects":          {`{"a":1}{"access_token":"real-access"}`, "no JSON object"},
	"a list of them":       {`[{"access_token":"real-access"}]`, "no JSON object"},
	"a text":               {`"real-access"`, "no JSON object"},
	"a form":               {`access_token=real-access`, "no JSON object"},
	"half":                 {`{"access_token":"real-access"`, "no JSON object"},
	"a comma too many":     {`{"access_token":"real-access",}`, "no JSON object"},
	"not UTF-8":            {"{\"access_token\":\"real-access\xff\"}", "no JSON object"},
	"nothing but spaces":   {"  ", "no JSON object"},
}

func TestSealAnswer_bad(t *testing.T) {
	for name, c := range badAnswers {
		body := c.body
		for i := 0; strings.Contains(body, "%"); i++ {
			body = strings.Replace(body, "%", fmt.Sprint(i), 1)
		}
		var got []secret.NewToken
		out, _, err := sealAnswer([]byte(body), nil, tokensOf(&got))
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %.200s, %v, not %s", name, out, err, c.why)
		}
		if err != nil && strings.Contains(err.Error(), "real") {
			t.Errorf("%s: it is told why: %v", name, err)
		}
	}
	failing := errors.New("full")
	if _, _, err := sealAnswer([]byte(`{"access_token":"real-access"}`), nil, func([]secret.NewToken) ([]secret.Token, error) { return nil, failing }); !errors.Is(err, failing) {
		t.Errorf("what could not be kept: %v", err)
	}
}

// FuzzSealAnswer looks for an answer that says a token, or that is not what it was but for
// tokens.
func FuzzSealAnswer(f *testing.F) {
	for _, s := range []string{
		`{"access_token":"real/access+token","refresh_token":"real-refresh","expires_in":"5"}`, `{"a":[{"access_token":"real-access","b":{"c":"xreal-accessx"}}],"n":1.50}`,
		`{"id_token":"` + jwt(`{"sub":"me"}`) + `","access_token":"12345678"}`, `{"Refresh_toKen":"real\u002brefresh","\u0061":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	for _, c := range badAnswers {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got []secret.NewToken
		out, hidden, err := sealAnswer(body, nil, tokensOf(&got))
		if err != nil {
			return
		}
		var before, after any
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(out, &after) != nil || !utf8.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
		var reals []string
		for _, h := range hidden {
			reals = append(reals, h.Value.Reveal())
		}
		for _, real := range reals {
			if strings.Contains(string(out), real) {
				t.Errorf("%q became %q, which says %q", body, out, real)
			}
		}
		alike(t, reals, before, after)
	})
}

// alike compares what is not a token, and does not say one.
func alike(t *testing.T, reals []string, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok || len(a) != len(b) {
			t.Fatalf("%v became %v", before, after)
		}
		for name, v := range b {
			text, isText := v.(string)
			for _, known := range []string{accessToken, refreshToken, idToken} {
				if strings.EqualFold(name, known) && isText && text != "" && a[name] == v {
					t.Errorf("%s stays %q", name, v)
				}
			}
			alike(t, reals, v, a[name])
		}
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) != len(b) {
			t.Fatalf("%v became %v", before, after)
		}
		for i := range b {
			alike(t, reals, b[i], a[i])
		}
	case string:
		for _, real := range reals {
			if strings.Contains(b, real) {
				return
			}
		}
		if before != after {
			t.Errorf("%q became %q", before, after)
		}
	default:
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%v became %v", before, after)
		}
	}
}
