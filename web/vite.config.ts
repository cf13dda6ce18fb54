import { defineConfig } from 'vite';

// Where each app is built to, beside the package that embeds it.
const places: Record<string, string> = { admin: 'internal/admin/page/dist', player: 'internal/sandbox/player/dist' };

const service = process.env['CUTROOM_URL'] ?? 'http://localhost:8080';

// Relative addresses everywhere: an app is served under a path that is only
// known when its server starts.
export default defineConfig(({ mode: app }) => ({
  root: app,
  base: './',
  build: {
    outDir: `${import.meta.dirname}/../${places[app]}`,
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // The licences of what is built in ask for their text to go along.
    license: { fileName: 'licenses.md' },
  },
  server: {
    // What runs elsewhere, while working on an app.
    proxy: {
      '/api': service,
      '^/(sandbox|samples)/': { target: service, rewrite: (path) => `/player${path}` },
    },
  },
}));
