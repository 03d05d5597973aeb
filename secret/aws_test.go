package secret

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skete-dev/skete/egress"
)

// The examples of the vendor's own documents: what a program has signed with other keys has
// the signature that they give.
func TestSign_examples(t *testing.T) {
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const storage, iam = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	for name, x := range map[string]struct {
		keys, method, url, headers string
		scope, signed, want        string
	}{
		"get an object": {
			storage, "GET", "https://examplebucket.s3.amazonaws.com/test.txt", "Range: bytes=0-9\nX-Amz-Content-Sha256: " + empty + "\nX-Amz-Date: 20130524T000000Z",
			"20130524/us-east-1/s3", "host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
		},
		"put an object": {
			storage, "PUT", "https://examplebucket.s3.amazonaws.com/test$file.text",
			"Date: Fri, 24 May 2013 00:00:00 GMT\nX-Amz-Date: 20130524T000000Z\nX-Amz-Storage-Class: REDUCED_REDUNDANCY\nX-Amz-Content-Sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
			"20130524/us-east-1/s3", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		"a query without a value": {
			storage, "GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", "X-Amz-Date: 20130524T000000Z\nX-Amz-Content-Sha256: " + empty,
			"20130524/us-east-1/s3", "host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
		},
		"list objects": {
			storage, "GET", "https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2", "X-Amz-Date: 20130524T000000Z\nX-Amz-Content-Sha256: " + empty,
			"20130524/us-east-1/s3", "host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
		},
		"list users": {
			iam, "GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", "Content-Type: application/x-www-form-urlencoded; charset=utf-8\nX-Amz-Date: 20150830T123600Z",
			"20150830/us-east-1/iam", "content-type;host;x-amz-date", "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
		},
		"the simplest": {
			iam, "GET", "https://example.amazonaws.com/", "X-Amz-Date: 20150830T123600Z",
			"20150830/us-east-1/service", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, x.method, x.url, x.headers, x.scope, x.signed, "")
			if err := (Held{Grant: Grant{As: AWS}, value: New(x.keys)}).Sign(r); err != nil {
				t.Fatal(err)
			}
			id, _, _ := strings.Cut(x.keys, ":")
			want := "AWS4-HMAC-SHA256 Credential=" + id + "/" + x.scope + "/aws4_request, SignedHeaders=" + x.signed + ", Signature=" + x.want
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("%s, not\n%s", got, want)
			}
		})
	}
}

// request is one that a program has signed with words that stand for its keys.
func request(t *testing.T, method, url, headers, scope, signed, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		r.Body = nil
	}
	for line := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	if scope != "" {
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=skete-secret-cloud/"+scope+"/aws4_request, SignedHeaders="+signed+", Signature=0123")
	}
	return r
}

// What was not signed stays as it is; what cannot be signed anew is refused in words; nothing
// of the program's own keys is left.
func TestSign(t *testing.T) {
	held := Held{Grant: Grant{As: AWS, Where: egress.Rule{Host: "a.example"}}, value: New("AKID:SECRET:SESSION")}
	const date, in = "X-Amz-Date: 20150830T123600Z", "20150830/us-east-1/service"
	for name, x := range map[string]struct {
		url, headers, scope, body string
		says                      string
	}{
		"not signed":        {"https://a.example/", "Accept: x", "", "", ""},
		"by another way":    {"https://a.example/", "Authorization: Bearer mine", "", "", ""},
		"a link":            {"https://a.example/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=1", "", "", "", "links that are signed"},
		"no date":           {"https://a.example/", "", in, "", "without X-Amz-Date"},
		"a strange scope":   {"https://a.example/", date, "20150830/us-east-1", "", "none of AWS4"},
		"a scope in pieces": {"https://a.example/", date + "\nX-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", in, "x", "in pieces"},
		"unsigned pieces":   {"https://a.example/", date + "\nX-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER", in, "x", ""},
		"too large":         {"https://a.example/", date, in, strings.Repeat("x", awsBodyMax+1), "larger than 16 MB"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, "POST", x.url, x.headers, x.scope, "host;x-amz-date", x.body)
			before := r.Header.Get("Authorization")
			err := held.Sign(r)
			if x.says == "" && err != nil || x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)) {
				t.Errorf("%v", err)
			}
			if after := r.Header.Get("Authorization"); x.scope == "" && after != before {
				t.Errorf("%q becomes %q", before, after)
			}
		})
	}
	r := request(t, "POST", "https://a.example/a%20b/c", date+"\nX-Amz-Security-Token: mine\nX-Amz-Target: T", in, "host;range;x-amz-date;x-amz-security-token", "body")
	if err := held.Sign(r); err != nil {
		t.Fatal(err)
	}
	auth := r.Header.Get("Authorization")
	if !strings.Contains(auth, "Credential=AKID/"+in) || !strings.Contains(auth, "SignedHeaders=host;x-amz-date;x-amz-security-token;x-amz-target,") || strings.Contains(auth, "skete-secret") {
		t.Error(auth)
	}
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "body" || r.Header.Get(awsSession) != "SESSION" || r.ContentLength != 4 {
		t.Errorf("%q, %v, %q, %d", b, err, r.Header.Get(awsSession), r.ContentLength)
	}
	var all strings.Builder
	if err := r.Header.Write(&all); err != nil || strings.Contains(all.String(), "SECRET") {
		t.Errorf("the key is sent: %s", all.String())
	}
}

func FuzzSign(f *testing.F) {
	f.Add("/a%2fb/../c?x=1&y", "Credential=a/b/c/d/aws4_request, SignedHeaders=host", "20150830T123600Z")
	f.Add("/?%zz&=&a=b=c", "Credential=,SignedHeaders=;;", "")
	f.Fuzz(func(t *testing.T, target, auth, date string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example"+target, nil)
		if err != nil || strings.ContainsAny(auth+date, "\r\n\x00") {
			return
		}
		r.Header.Set("Authorization", awsAlgorithm+" "+auth)
		r.Header.Set(awsDate, date)
		held := Held{Grant: Grant{As: AWS}, value: New("AKID:THESECRET")}
		if err := held.Sign(r); err == nil && !strings.Contains(r.Header.Get("Authorization"), "Credential=AKID/") {
			t.Fatalf("%q", r.Header)
		}
		if strings.Contains(r.Header.Get("Authorization"), "THESECRET") {
			t.Fatal("the key is sent")
		}
	})
}
