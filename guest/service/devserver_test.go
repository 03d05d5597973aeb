package service

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOf_findsWhatACommandStarts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"scripts":{"dev":"NODE_ENV=x vite --port 3000","build":"vite build","start":"node server.js"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"vite": "vite", "npx vite --host": "vite", "cd app && ./node_modules/.bin/vite": "vite", "node node_modules/vite/bin/vite.js": "vite",
		"npm run dev": "vite", "pnpm dev": "vite", "yarn --silent dev": "vite", "npm run build": "", "npm start": "", "npm run missing": "",
		"vite build": "", "vite preview": "", "vitest": "", "echo invite": "", "": "",
	} {
		got := ""
		if s := devServerOf(shellWords(command), dir); s != nil {
			got = s.Name
		}
		if got != want {
			t.Errorf("%q is %q", command, got)
		}
	}
}

func TestEnv_opensTheHostCheckForThePreviewsAlone(t *testing.T) {
	s := devServerOf([]string{"vite"}, t.TempDir())
	for _, domain := range []string{"preview.example.com", ".preview.example.com"} {
		if got := s.Env(domain)["__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS"]; got != ".preview.example.com" {
			t.Errorf("%q", got)
		}
	}
	if s.Env("") != nil || (*devServer)(nil).Env("preview.example.com") != nil {
		t.Error("something is set where nothing is known")
	}
}

func TestIsConfig(t *testing.T) {
	s := devServerOf([]string{"vite"}, t.TempDir())
	for file, want := range map[string]bool{
		"/w/vite.config.ts": true, "/w/package.json": true, "/w/.env": true, "/w/.env.local": true, "/w/src/a.js": false, "/w/index.html": false, "/w/env": false,
	} {
		if s.IsConfig(file) != want {
			t.Errorf("%s: %v", file, !want)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte(`{"scripts":{"dev":"vite"}}`), "dev")
	f.Add([]byte(`{"scripts":[]}`), "dev")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		programServer(shellWords(parseScript(data, name))) // ends, and does not panic
	})
}
