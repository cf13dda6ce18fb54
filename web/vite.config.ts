import { defineConfig } from 'vite';

// The output folder of each app, in the package that embeds it.
const places: Record<string, string> = { admin: 'internal/domain/admin/page/dist', player: 'internal/sandbox/player/dist' };

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
    // The licences of the bundled packages require their text in the build.
    license: { fileName: 'licenses.md' },
  },
  server: {
    // The servers for developing an app.
    proxy: {
      '/api': service,
      '^/(sandbox|samples)/': { target: service, rewrite: (path) => `/player${path}` },
    },
  },
}));
