package apt

import (
	"os"
	"os/exec"
	"strings"
)

// ProxyEnv is how the host reaches archives, as variables for a program: what
// our own environment says, else what the host's apt is set to.
func ProxyEnv() []string {
	var env []string
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	if len(env) > 0 {
		return env
	}
	out, err := exec.Command("apt-config", "dump", "--format", "%f=%v%n", "Acquire::http::Proxy", "Acquire::https::Proxy").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case value == "" || value == "DIRECT" || strings.HasPrefix(value, "false"):
		case key == "Acquire::http::Proxy":
			env = append(env, "http_proxy="+value)
		case key == "Acquire::https::Proxy":
			env = append(env, "https_proxy="+value)
		}
	}
	return env
}
