package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/internal/browsertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBrowserShowsPagesAndWhatTheyComplainAbout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		_, _ = w.Write([]byte("<title>one</title><p>hello</p><script>document.title = 'two'</script>"))
	}))
	defer srv.Close()
	p := browsertest.Start(t).Open(t, srv.URL)
	if got := p.Text(t, `document.title + " " + document.body.innerText.trim()`); got != "one hello" {
		t.Errorf("%q", got)
	}
	if c := strings.Join(p.Complaints(), "\n"); !strings.Contains(c, "Content Security Policy") {
		t.Errorf("no word of the broken policy: %q", c)
	}
	if got := p.Do(t, `Promise.resolve(6*7)`); got != "42" {
		t.Errorf("%s", got)
	}
}
