package oci

import "testing"

func TestParseReference_plainHTTPOnlyWhenAskedForOrWithOurselves(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:5000": true, "localhost:5000": true, "[::1]:5000": true, "127.8.8.8": true,
		"10.0.0.1:5000": false, "192.168.1.1": false, "registry.local": false, "example.test": false,
	} {
		for _, asked := range []bool{true, false} {
			ref, err := ParseReference(host+"/x", asked)
			if err != nil {
				t.Fatal(err)
			}
			if ref.plain != (want || asked) {
				t.Errorf("%s, asked %v: %v", host, asked, ref.plain)
			}
		}
	}
}
