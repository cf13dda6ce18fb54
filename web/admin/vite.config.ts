import { defineConfig } from 'vite';

// Relative addresses everywhere: the app is served under a path that is only
// known when the service starts.
export default defineConfig({
  base: './',
  build: {
    outDir: '../../internal/admin/page/dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // The licences of what is built in ask for their text to go along.
    license: { fileName: 'licenses.md' },
  },
  server: {
    // The reports of a service that runs elsewhere, while working on the app.
    proxy: { '/api': process.env['CUTROOM_URL'] ?? 'http://localhost:8080' },
  },
});
