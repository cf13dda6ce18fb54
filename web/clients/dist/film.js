import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import createClient from "openapi-fetch";
// clients/film.ts
var wrong = 42;
var bare = { quality: "low" };
var [, , clip = "", film = ""] = process.argv;
var { BASE: baseUrl = "", ID_TOKEN: idToken = "" } = process.env;
var api = createClient({ baseUrl });
/** The answer, or an error that says what was refused. */
async function answer(call) {
	const { data, error, response } = await call;
	if (data === void 0) throw new Error(`${response.status} ${JSON.stringify(error)}`);
	return data;
}
async function upload(bytes) {
	const body = {
		sha256Hex: createHash("sha256").update(bytes).digest("hex"),
		sizeBytes: bytes.length,
		ext: "mp4",
		contentType: "video/mp4"
	};
	const { assetKey, uploadUrl } = await answer(api.POST("/api/v2/assets/upload-url", { body }));
	if (uploadUrl) {
		const put = await fetch(uploadUrl, {
			method: "PUT",
			body: new Uint8Array(bytes),
			headers: { "Content-Type": "video/mp4" }
		});
		if (!put.ok) throw new Error(`upload: ${put.status}`);
	}
	return assetKey;
}
async function finished(jobId) {
	for (let tag = "";;) {
		const header = {
			Prefer: "wait=30",
			...tag && { "If-None-Match": tag }
		};
		const { data: state, response } = await api.GET("/api/v2/render/{jobId}/status", { params: {
			path: { jobId },
			header
		} });
		tag = response.headers.get("ETag") ?? "";
		if (state?.status === "COMPLETED") return state;
		if (state?.status === "FAILED") throw new Error(`${state.errorCode}: ${state.error}`);
		if (!state && response.status !== 304) throw new Error(`status: ${response.status}`);
	}
}
var { accessToken } = await answer(api.POST("/api/v2/auth/provider_a", { body: { idToken } }));
api.use({ onRequest({ request }) {
	request.headers.set("Authorization", `Bearer ${accessToken}`);
} });
var sourceAssetKey = await upload(await readFile(clip));
var body = {
	segments: [{
		sourceAssetKey,
		order: 0,
		durationMs: 2e3,
		trimEndMs: 1e3
	}, {
		sourceAssetKey,
		order: 1,
		durationMs: 2e3,
		trimStartMs: 1e3,
		speedScale: 2
	}],
	quality: "low"
};
var header = { "Idempotency-Key": crypto.randomUUID() };
var { jobId } = await answer(api.POST("/api/v2/render/v3", {
	body,
	params: { header }
}));
var state = await finished(jobId);
var bytes = await answer(api.GET("/api/v2/render/{jobId}/download", {
	params: { path: { jobId } },
	parseAs: "arrayBuffer"
}));
if (bytes.byteLength !== state.sizeBytes) throw new Error(`${bytes.byteLength} bytes of ${state.sizeBytes}`);
await writeFile(film, new Uint8Array(bytes));
export { bare, wrong };
