import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The server puts its own nonce into each answer in the place of this word.
const nonce = "SKETE-NONCE";

export default defineConfig({
	plugins: [react(), tailwind()],
	base: "/ui/",
	// Chunks are cut by where files are: the same wherever the packages really lie.
	resolve: { preserveSymlinks: true },
	html: { cspNonce: nonce },
	build: {
		outDir: "../dist",
		emptyOutDir: true,
		target: "es2022",
		assetsInlineLimit: 0,
		modulePreload: { polyfill: false },
		reportCompressedSize: false,
	},
	server: {
		proxy: { "/v1": { target: "http://127.0.0.1:7733", ws: true }, "/login": "http://127.0.0.1:7733", "/logout": "http://127.0.0.1:7733" },
	},
	test: { environment: "happy-dom", include: ["test/**/*.test.{ts,tsx}"] },
});
