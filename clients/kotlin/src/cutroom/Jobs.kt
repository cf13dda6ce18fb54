package cutroom

import java.io.File
import java.io.IOException
import java.net.URLEncoder
import java.util.UUID
import org.json.JSONObject

/** A job that the server has accepted. `reused` says that an earlier submit created it. */
data class Submitted(val jobId: String, val reused: Boolean)

/** Renders and separations: submitted under a key that is kept until the answer arrives, and followed to their end. */
class Jobs internal constructor(private val cutroom: Cutroom) {
    /** Submits a render. `slot` names the draft: see [separate]. */
    fun render(body: RenderConfigV3, slot: String = "render") = submit("/render/v3", body.json(), slot)

    /**
     * Submits a separation of an uploaded file. The submit is kept in the store under `slot` until there is an answer.
     * A call with the same slot and body, even after a crash of the app, is the same submit: it is charged once. Each
     * user has separate slots.
     */
    fun separate(body: SeparationByReference, slot: String = "separate") = submit("/separate/v3", body.json(), slot)

    private fun submit(path: String, body: JSONObject, slot: String): Submitted {
        val place = place(slot) ?: throw signedOut()
        val text = body.toString()
        val before = open(place)
        val open = if (before != null && before.getString("path") == path && before.getString("text") == text) before else {
            // The text is kept: the server compares it.
            JSONObject().put("path", path).put("text", text).put("key", UUID.randomUUID().toString())
                .also { cutroom.store.put(place.key, it.toString()) }
        }
        return resume(place, open)
    }

    /**
     * Sends a submit of the signed-in user that got no answer in an earlier run of the app. Null if there is none in this
     * slot.
     */
    fun unanswered(slot: String): Submitted? {
        val place = place(slot) ?: return null
        return open(place)?.let { resume(place, it) }
    }

    /** Where the open submit of a user's slot is kept. */
    private class Place(val user: String, val key: String)

    /**
     * The place of the signed-in user's slot. Earlier versions had one for all users: it belongs to the first user, so
     * that their submits are still found.
     */
    private fun place(slot: String): Place? {
        val user = cutroom.session()?.user?.sub ?: return null
        val first = cutroom.store.get(FIRST_USER) ?: user
        return Place(user, if (user == first) "cutroom.submit.$slot" else "cutroom.open.$user.$slot")
    }

    private fun open(place: Place) = cutroom.store.get(place.key)?.let(::JSONObject)

    private fun resume(place: Place, open: JSONObject): Submitted {
        val key = open.getString("key")
        val answer = cutroom.send("POST", open.getString("path"), open.getString("text"), mapOf("Idempotency-Key" to key), place.user)
        // A refusal by the service is an answer. Without one, the same submit must be sent again: an earlier try may
        // have been accepted, and neither a 401 nor a 429 nor a proxy's page rules that out.
        if (answer.status in 400..499 && answer.status !in UNDECIDED && answer.code != null) forget(place, key)
        val job = answer.read { Submitted(it.getString("jobId"), it.optBoolean("reused")) }
        forget(place, key)
        return job
    }

    /** Removes an answered submit, unless another one has taken its slot. */
    private fun forget(place: Place, key: String) {
        if (open(place)?.getString("key") == key) cutroom.store.put(place.key, null)
    }

    /** Stops a job in any state and erases its files. It is unknown afterwards. */
    fun delete(jobId: String) {
        cutroom.send("DELETE", (if (jobId.startsWith("sep-")) "/separate/" else "/render/") + checked(jobId)).orThrow()
    }

    /** The user's films, the newest first. [cursor] is the `nextCursor` of the page before. */
    fun films(limit: Int = 20, cursor: String? = null): RenderHistory =
        cutroom.send("GET", "/render" + page(limit, cursor)).read(RenderHistory::of)

    /** The user's separations, the newest first. */
    fun separations(limit: Int = 20, cursor: String? = null): SeparationHistory =
        cutroom.send("GET", "/separate" + page(limit, cursor)).read(SeparationHistory::of)

    /**
     * Follows a render until it is COMPLETED. [onState] receives every state that differs from the last, [onReachable]
     * whether the server could be reached. Throws JobFailed if the render fails.
     */
    fun film(jobId: String, onReachable: (Boolean) -> Unit = {}, onState: (RenderStatus) -> Unit = {}): RenderCompleted =
        follow(jobId, "/render/${checked(jobId)}/status", setOf("COMPLETED"), onReachable) { onState(RenderStatus.of(it)) }
            .read(RenderCompleted::of)

    /** Follows a separation until it is READY. Throws JobFailed if it fails, and a CutroomError if its stems are gone. */
    fun stems(jobId: String, onReachable: (Boolean) -> Unit = {}, onState: (SeparationStatus) -> Unit = {}): SeparationReady {
        val final = setOf("READY", "DISPOSED")
        val end = follow(jobId, "/separate/${checked(jobId)}", final, onReachable) { onState(SeparationStatus.of(it)) }
        if (end.read { it.getString("status") } == "DISPOSED") throw CutroomError(404, JSONObject().put("error", "invalid_stem_url"))
        return end.read(SeparationReady::of)
    }

    /** Downloads a film that is COMPLETED into a file, which it replaces. Throws an IOException if that cannot be written. */
    fun download(jobId: String, to: File) = save("/render/${checked(jobId)}/download", to)

    /** Downloads a picture of a film that is COMPLETED. */
    fun poster(jobId: String, to: File) = save("/render/${checked(jobId)}/poster", to)

    private fun save(path: String, to: File) {
        val part = File(to.path + ".part")
        try {
            part.outputStream().close() // a file that cannot be written is not the network's fault
            cutroom.send("GET", path) { first ->
                val location = if (first.status < 300) null else first.headers["location"] ?: throw IOException("a redirect to nowhere")
                // The object store must not get the token.
                val last = location?.let { cutroom.transport.send(Request("GET", it)) } ?: first
                last.use {
                    if (it.status != 200) throw IOException("the object store answered ${it.status}")
                    part.outputStream().use(it::copyTo)
                    val size = it.headers["content-length"]?.toLongOrNull()
                    if (size != null && part.length() != size) throw IOException("${part.length()} bytes of $size arrived")
                }
            }.orThrow()
            if (!part.renameTo(to)) throw IOException("cannot write $to")
        } finally {
            part.delete()
        }
    }

    /** Asks at once, then again and again: each answer comes as soon as the state differs from the last. */
    private fun follow(
        jobId: String,
        path: String,
        final: Set<String>,
        onReachable: (Boolean) -> Unit,
        onState: (JSONObject) -> Unit,
    ): Answer {
        var tag: String? = null
        while (true) {
            val headers = tag?.let { mapOf("Prefer" to "wait=${Contract.WAIT_SEC}", "If-None-Match" to it) } ?: emptyMap()
            val answer = reach(path, headers)
            onReachable(answer != null)
            if (answer != null && answer.status != 304) {
                val state = answer.read { it }
                onState(state)
                when (state.getString("status")) {
                    in final -> return answer
                    "FAILED" -> throw JobFailed(
                        jobId, state.text("errorCode") ?: "internal", state.text("error") ?: "the job failed", state.text("field"),
                    )
                }
            }
            val waited = answer != null && ("preference-applied" in answer.headers || (tag == null && "etag" in answer.headers))
            if (answer != null) tag = answer.headers["etag"] ?: tag
            if (!waited) Thread.sleep(1000L * Contract.POLL_SEC)
        }
    }

    /** An answer about the job. Null if the server does not give one at the moment. */
    private fun reach(path: String, headers: Map<String, String>): Answer? = try {
        val answer = cutroom.send("GET", path, headers = headers)
        if (answer.ok) answer.read { it.getString("status") }
        answer.takeUnless { it.status >= 500 || it.status == 429 }
    } catch (e: CutroomError) {
        if (e.status != 0) throw e
        null
    }

    private companion object {
        val UNDECIDED = setOf(401, 408, 429)
        val ID = Regex("[A-Za-z0-9-]+")

        /** The id of a job as a part of a path. It may come from a push or a link, so it must not lead to another path. */
        fun checked(jobId: String): String =
            if (ID.matches(jobId)) jobId else throw CutroomError(404, JSONObject().put("error", "unknown job"))
    }
}

/** The query of a page of a list. */
internal fun page(limit: Int, cursor: String?) =
    "?limit=$limit" + if (cursor == null) "" else "&cursor=" + URLEncoder.encode(cursor, "UTF-8")
