import { defineConfig } from 'vite';

// One module; what it depends on is installed beside it.
export default defineConfig({
  root: import.meta.dirname,
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    target: 'es2022',
    minify: false,
    lib: { entry: 'src/index.ts', formats: ['es'], fileName: 'index' },
    rolldownOptions: { external: [/^@noble\/hashes/, 'openapi-fetch'] },
  },
});
