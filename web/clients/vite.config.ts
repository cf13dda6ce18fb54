import { defineConfig } from 'vite';

// Both programs as Node runs them.
export default defineConfig({
  build: {
    ssr: true,
    outDir: 'clients/dist',
    target: 'node20',
    rolldownOptions: { input: ['clients/film.ts', 'clients/film-hey.ts'] },
  },
});
